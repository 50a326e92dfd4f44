"""Find the kernels that do the floating-point operations of an operator.

An operator may launch copies, casts and layout changes beside its product, which may take longer. A product belongs to
the kernels whose decoded class multiplies (GEMM, convolution, attention), without their helper steps; several of them
(the two gradients of a convolution, a product in pieces) share its FLOPs by time. Where no kernel's name says that it
multiplies, the longest one that computes anything gets them all; copies and helper steps get none.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor
from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.table.counted_calls import Calls
from torchprof_tui.trace.core.arrays import F64, I32, I64

_PRODUCTS = (KernelClass.GEMM, KernelClass.CONV, KernelClass.ATTENTION)
_MOVES = (KernelClass.COPY, KernelClass.MEMORY, KernelClass.COLLECTIVE)
_PRODUCT_RANK = 4
_HELPER_WORDS = ("split-K", "step", "combine", "preprocess", "convert", "dO · O", "reduce", "reduction")


def find_flop_kernels(calls: Calls, leaves: I32) -> tuple[I32, I64, F64]:
    """Find the GPU work that does the FLOPs of each of these calls.

    Returns three arrays of k entries, longest kernel of a call last: the calls of the kernels int32, the index into
    `leaves` that each belongs to int64, and its share of that call's FLOPs float64, which sum to 1 for each call.
    """
    leaf_of = np.full(len(calls), -1, np.int64)
    leaf_of[leaves] = np.arange(len(leaves))
    work = np.flatnonzero(calls.on_gpu & ~calls.annotation).astype(np.int32)
    leaf_call = find_nearest_ancestor(calls.parent, work, leaf_of >= 0)
    work, leaf = work[leaf_call >= 0], leaf_of[leaf_call[leaf_call >= 0]]
    rank = _rank_work(calls, work)
    best = np.ones(len(leaves), np.int64)
    np.maximum.at(best, leaf, rank)
    is_best = rank == best[leaf]
    work, leaf = work[is_best], leaf[is_best]
    order = np.lexsort((calls.gpu[work], leaf))
    work, leaf = work[order], leaf[order]
    is_longest = np.append(leaf[1:] != leaf[:-1], True)[: len(leaf)]
    kept = is_longest | (best[leaf] == _PRODUCT_RANK)
    work, leaf = work[kept], leaf[kept]
    time = np.maximum(calls.gpu[work].astype(np.float64), 1e-9)  # kernels without duration share equally
    return work, leaf, time / np.bincount(leaf, weights=time, minlength=len(leaves))[leaf]


def _rank_work(calls: Calls, work: I32) -> I64:
    """Rank GPU work by how likely it does an operator's arithmetic: int64[k], the highest of a call does."""
    used = np.unique(calls.name[work])
    rank_of_name = np.zeros(len(calls.names), np.int64)
    rank_of_name[used] = [_rank_name(decode_kernel_name(calls.names[name])) for name in used.tolist()]
    ranks: I64 = rank_of_name[calls.name[work]]
    return ranks


def _rank_name(kernel: KernelName) -> int:
    """Rank a kernel: 4 products, 3 steps of Winograd and FFT, 2 unknown and fused kernels, 1 other arithmetic.

    0 for copies, and for helper steps of products, which do none of the counted operations.
    """
    if kernel.kernel_class in _PRODUCTS:
        if kernel.family == "convolution step":
            return 3 if kernel.display.startswith(("winograd", "FFT")) else 0
        if kernel.family == "cuBLAS helper":
            return _PRODUCT_RANK if kernel.display.startswith("dot") else 0
        return 0 if any(word in kernel.display for word in _HELPER_WORDS) else _PRODUCT_RANK
    if kernel.kernel_class in (KernelClass.OTHER, KernelClass.TRITON):
        return 2
    return 0 if kernel.kernel_class in _MOVES else 1
