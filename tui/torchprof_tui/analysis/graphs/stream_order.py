"""Find the order of capture of a replay that ran on two streams, where the capture does not name its kernels.

CUDA records the calls of a capture without kernel names, and the executor of a graph spreads its branches over streams,
so that time is not the order of capture. But each stream keeps that order: the calls are an interleaving of both
streams. The interleaving is chosen in which most kernels have a name that suits their op (`cos_kernel`, `aten::cos`),
by dynamic programming; a kernel that other interleavings of that score place elsewhere gets no launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import I32, I64

MAX_CELLS = 4_000_000
"""Cells of the table (kernels of one stream times those of the other): 32 MB for each of four tables."""

FORBIDDEN = -(1 << 20)
"""Score of a kernel with a call that cannot have launched it: a copy, a fill."""

_OPS_OF_CLASS = {
    KernelClass.GEMM: ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "gemm"),
    KernelClass.REDUCTION: ("sum", "mean", "max", "min", "amax", "amin", "any", "all", "prod", "argmax", "norm"),
    KernelClass.COPY: ("copy", "clone", "contiguous", "cat", "stack", "to"),
    KernelClass.GATHER: ("index", "index_select", "embedding", "gather", "scatter"),
}
_ALIASES = {"zero": "fill", "zeros": "fill", "ones": "fill"}
_MIN_WORD = 3
"""Letters of a word of an op's name that is looked for in names of kernels."""


def match_two_streams(first: I64, second: I64, scores: I64) -> tuple[I32, I32]:
    """Assign the calls 0..n+m-1 to the kernels of two streams: int32[n], int32[m], -1 for those that may be others.

    `first` int64[n], `second` int64[m]: rows of `scores` int64[kinds, n + m], the score of each call for each kind of
    kernel. Returns -1 for all where the streams are too long.
    """
    n, m = len(first), len(second)
    unknown = np.full(n, -1, np.int32), np.full(m, -1, np.int32)
    if (n + 1) * (m + 1) > MAX_CELLS:
        return unknown
    forward = _best_scores(first, second, scores)
    backward = _best_scores(first[::-1], second[::-1], scores[:, ::-1])[::-1, ::-1]
    best = int(forward[n, m])
    if best <= FORBIDDEN // 2:
        return unknown
    i, j = np.arange(n)[:, None], np.arange(m + 1)[None, :]
    through_first = forward[:-1] + scores[first[:, None], i + j] + backward[1:] == best
    i, j = np.arange(n + 1)[:, None], np.arange(m)[None, :]
    through_second = forward[:, :-1] + scores[second[None, :], i + j] + backward[:, 1:] == best
    return _single(through_first), _single(through_second.T)


def score_calls(kernels: Sequence[str], ops: Sequence[str]) -> I64:
    """Score how well the name of each kernel suits the op of each call: int64[kernels, calls], 0 to 2."""
    distinct = list(dict.fromkeys(ops))
    table = np.array([[_score(kernel, op) for op in distinct] for kernel in kernels], np.int64)
    index = {op: number for number, op in enumerate(distinct)}
    return table.reshape(len(kernels), len(distinct))[:, [index[op] for op in ops]]


@lru_cache(maxsize=1 << 16)
def _score(kernel: str, op: str) -> int:
    base = op.rsplit("::", 1)[-1].lower().strip("_")
    base = _ALIASES.get(base, base)
    if not base:
        return 0
    name = kernel.lower()
    if base in name or base in _OPS_OF_CLASS.get(decode_kernel_name(kernel).kernel_class, ()):
        return 2
    return int(any(len(word) >= _MIN_WORD and word in name for word in base.split("_")))


def _best_scores(first: I64, second: I64, scores: I64) -> I64:
    """Return the best score of the first i kernels of one stream and the first j of the other: int64[n + 1, m + 1]."""
    n, m = len(first), len(second)
    best = np.empty((n + 1, m + 1), np.int64)
    columns = np.arange(m)
    for i in range(n + 1):
        along = np.concatenate([[0], np.cumsum(scores[second, i + columns])])
        if i == 0:
            best[0] = along
        else:
            down = best[i - 1] + scores[first[i - 1], i - 1 + np.arange(m + 1)]
            best[i] = along + np.maximum.accumulate(down - along)
    return best


def _single(is_best: np.ndarray) -> I32:
    """Return the call of each kernel that is on a best path at one place only: int32[k], else -1."""
    place = np.argmax(is_best, axis=1)
    call = np.arange(len(is_best)) + place
    return np.where(is_best.sum(axis=1) == 1, call, -1).astype(np.int32)
