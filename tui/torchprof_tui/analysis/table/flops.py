"""Compute FLOPs, TFLOP/s and the share of the device's peak rate for the calls of a table.

An operator's FLOPs come from its shapes (`op_formulas`), a Triton kernel's from the count that Inductor recorded.
Where operators with a count are nested (`linear` → `addmm`) each has its own; sums over a trace count the innermost.
The FLOPs of an innermost operator are also those of the kernels that do them (`flop_kernels`).

An operator may launch copies, casts and layout changes beside its product, which may take longer. A product belongs to
the kernels whose decoded class multiplies (GEMM, convolution, attention), without their helper steps; several of them
(the two gradients of a convolution, a product in pieces) share its FLOPs by time. Where no kernel's name says that it
multiplies, the longest one that computes anything gets them all; copies and helper steps get none.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor, include_ancestors
from torchprof_tui.analysis.graphs.captured_nodes import remove_mark
from torchprof_tui.analysis.kernel.footprint import find_device
from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.table.counted_calls import Calls
from torchprof_tui.analysis.table.op_args import OpArgs
from torchprof_tui.analysis.table.profiler_table import GroupBy, ProfilerTable
from torchprof_tui.analysis.throughput.device_peaks import DTYPES, peak_tflops, short_type
from torchprof_tui.analysis.throughput.op_formulas import count_flops, has_formula
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace

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
    used = sorted_unique(calls.name[work])
    rank_of_name = np.zeros(len(calls.names), np.int64)
    rank_of_name[used] = [_rank_name(decode_kernel_name(calls.names[name])) for name in used.tolist()]
    rank: I64 = rank_of_name[calls.name[work]]
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


@record(slots=False)
class CallFlops:
    """FLOPs of m calls: `count` float64 (0 where unknown), `dtype` int64 index into DTYPES, `is_innermost` bool.

    `time_at_peak` float64: ns that the device would take at its peak rate; NaN where the peak is unknown.
    """

    count: F64
    dtype: I64
    is_innermost: Bool
    time_at_peak: F64


@record(slots=False)
class RowFlops:
    """Columns over the k rows of a table, NaN for unknown: FLOPs, TFLOP/s of GPU time, share of the peak 0..1."""

    flops: F64
    tflops: F64
    share: F64


MAX_CALL_DEPTH = 1000  # calls above a matrix product that get its data type: no operator is called through more


def compute_call_flops(trace: Trace, calls: Calls, args: OpArgs) -> CallFlops:
    """Compute the FLOPs of every call: one formula per distinct set of inputs, then numpy over all calls."""
    count, dtype = _count_operator_flops(calls, args)
    is_innermost = count > 0
    callers = calls.parent[is_innermost]
    is_caller = np.zeros(len(calls), np.bool_)
    is_caller[callers[callers >= 0]] = True
    is_innermost &= ~include_ancestors(calls.parent, is_caller)
    leaves = np.flatnonzero(is_innermost).astype(np.int32)
    kernels, leaf, kernel_share = find_flop_kernels(calls, leaves)
    leaves_with_kernel = leaves[leaf]
    used_names = sorted_unique(calls.name[kernels])
    is_tf32 = np.zeros(len(calls.names), np.bool_)
    is_tf32[used_names] = ["tf32" in decode_kernel_name(calls.names[name]).dtypes for name in used_names.tolist()]
    rounded = leaves_with_kernel[is_tf32[calls.name[kernels]]]  # the kernel's name says that it multiplies in TF32
    dtype[rounded[dtype[rounded] == DTYPES.index("fp32")]] = DTYPES.index("tf32")
    # Autocast changes the type inside `linear`: all callers get it.
    call, value = calls.parent[leaves], dtype[leaves]
    for _ in range(MAX_CALL_DEPTH):
        if not len(call):
            break
        has_caller = call >= 0
        call, value = call[has_caller], value[has_caller]
        dtype[call] = value
        call = calls.parent[call]
    count[kernels], dtype[kernels] = count[leaves_with_kernel] * kernel_share, dtype[leaves_with_kernel]
    peaks = _peak_tflops_by_dtype(trace, calls, kernels)
    time_at_peak = np.full(len(calls), np.nan)
    counted = np.flatnonzero(count > 0)
    time_at_peak[counted] = count[counted] / (peaks[dtype[counted]] * 1e3)  # TFLOP/s are 1000 operations a ns
    return CallFlops(count, dtype, is_innermost, time_at_peak)


def sum_row_flops(table: ProfilerTable, calls: Calls, call_flops: CallFlops) -> RowFlops:
    """Sum FLOPs over the calls of each row, without calls that call an operator of the same name.

    Rates are over the GPU time of the same calls. Torch's own "Total FLOPs" counts both where an operator calls itself.
    """
    row = np.repeat(np.arange(len(table)), np.diff(table.first))
    members = table.members
    # Rows of groups hold nested operators and their kernels: count only the innermost.
    is_counted = call_flops.count[members] > 0
    if not table.per_name and table.group_by is not GroupBy.CLASS:
        is_counted &= call_flops.is_innermost[members]
    caller = np.maximum(calls.parent[members], 0)
    is_recursive = is_counted & (calls.parent[members] >= 0) & (calls.name[caller] == calls.name[members])
    calls_itself = np.zeros(len(calls), np.bool_)
    calls_itself[caller[is_recursive]] = True  # under autocast `addmm` casts its inputs and calls `addmm`
    is_counted &= ~calls_itself[members]
    row, members = row[is_counted], members[is_counted]
    gpu = calls.gpu[members]
    size = len(table)
    total_flops = np.bincount(row, weights=call_flops.count[members], minlength=size)
    has_time = gpu > 0
    gpu_time = np.bincount(row[has_time], weights=gpu[has_time], minlength=size)
    timed_flops = np.bincount(row[has_time], weights=call_flops.count[members][has_time], minlength=size)
    time_at_peak = np.bincount(row[has_time], weights=call_flops.time_at_peak[members][has_time], minlength=size)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where(gpu_time > 0, timed_flops / gpu_time / 1e3, np.nan)
        share = np.where(gpu_time > 0, time_at_peak / gpu_time, np.nan)
    return RowFlops(np.where(total_flops > 0, total_flops, np.nan), rate, share)


def _count_operator_flops(calls: Calls, args: OpArgs) -> tuple[F64, I64]:
    """Count the FLOPs of each call, 0 where there are none; return them and the index into DTYPES of each."""
    count, dtype = np.zeros(len(calls)), np.zeros(len(calls), np.int64)
    has_count = np.fromiter((has_formula(remove_mark(name)) for name in calls.names), np.bool_, len(calls.names))
    has_recorded_flops = np.fromiter(
        (inputs.flops is not None for inputs in args.all_inputs), np.bool_, len(args.all_inputs)
    )
    indices = np.flatnonzero(
        (has_count[calls.name] & (args.input_index > 0) & ~calls.on_gpu) | has_recorded_flops[args.input_index]
    )
    key = calls.name[indices].astype(np.int64) * len(args.all_inputs) + args.input_index[indices]
    distinct, inverse = np.unique(key, return_inverse=True)
    distinct_flops = np.zeros(len(distinct))
    distinct_dtypes = np.zeros(len(distinct), np.int64)
    for position, distinct_key in enumerate(distinct.tolist()):
        name, input_index = divmod(distinct_key, len(args.all_inputs))
        inputs = args.all_inputs[input_index]
        flops = inputs.flops or count_flops(remove_mark(calls.names[name]), inputs.dims, inputs.concrete)
        dtypes = (short_type(dtype_name) for dtype_name in inputs.types)
        distinct_flops[position], distinct_dtypes[position] = (
            flops or 0,
            DTYPES.index(next((dtype for dtype in dtypes if dtype), "")),
        )
    count[indices], dtype[indices] = distinct_flops[inverse], distinct_dtypes[inverse]
    return count, dtype


def _peak_tflops_by_dtype(trace: Trace, calls: Calls, kernels: I32) -> F64:
    """Return the TFLOP/s of the device that these kernels ran on, NaN where unknown: float64[dtypes]."""
    peaks = np.full(len(DTYPES), np.nan)
    names = {device.name for device in trace.devices}
    if len(names) > 1 and len(kernels):  # different GPUs on one node: use the device of the first kernel
        device = find_device(trace, int(calls.event[kernels[0]]))
        names = {device.name} if device else set()
    if len(names) == 1:
        name = names.pop()
        for index, dtype in enumerate(DTYPES):
            peak = peak_tflops(name, dtype)
            peaks[index] = np.nan if peak is None else peak
    return peaks
