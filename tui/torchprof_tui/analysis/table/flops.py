"""What the calls of a table computed, how fast, and how fast the device could have: FLOPs, TFLOP/s, share of the peak.

An operator's FLOPs come from its shapes (`flop_formulas`), a Triton kernel's from what Inductor recorded of it. Where
operators with a count lie in one another (`linear` → `addmm`) each has its own; sums over a trace take the innermost.
The FLOPs of an innermost operator are also those of the longest kernel that it launched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor, include_ancestors
from torchprof_tui.analysis.kernel.footprint import find_device
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.table.calls import Calls
from torchprof_tui.analysis.table.flop_formulas import count_flops, has_formula
from torchprof_tui.analysis.table.op_args import Inputs, OpArgs
from torchprof_tui.analysis.table.peak_rates import peak_tflops, short_type
from torchprof_tui.analysis.table.table_rows import GroupBy, ProfilerTable
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool
from torchprof_tui.trace.model.trace import Trace

DTYPES = ("", "fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class CallFlops:
    """m calls: `count` float64 (0 where none is known), `dtype` uint8 into DTYPES, `innermost` bool.

    `ideal` float64: ns that the device would take at its peak; NaN where the peak is not known.
    """

    count: F64
    dtype: I64
    is_innermost: Bool
    time_at_peak: F64


@dataclass(frozen=True)
class RowFlops:
    """Columns over the k rows of a table, NaN for "not known": FLOPs, TFLOP/s of GPU time, share of the peak 0..1."""

    flops: F64
    tflops: F64
    share: F64


MAX_CALL_DEPTH = 1000
"""Calls above a multiplication that learn what it computed in: no operator is called through more."""


def compute_call_flops(trace: Trace, calls: Calls, args: OpArgs) -> CallFlops:
    """The FLOPs of every call. One formula per distinct set of inputs; then numpy over all calls."""
    count, dtype = _count_operator_flops(calls, args)
    innermost = count > 0
    above = calls.parent[innermost]
    around = np.zeros(len(calls), np.bool_)
    around[above[above >= 0]] = True
    innermost &= ~include_ancestors(calls.parent, around)
    leaves = np.flatnonzero(innermost).astype(np.int32)
    kernel = _find_longest_kernels(calls, leaves)
    ran = leaves[kernel >= 0]
    kernel = kernel[kernel >= 0]
    dtype[ran[(dtype[ran] == DTYPES.index("fp32")) & _tf32_mask(calls, kernel)]] = DTYPES.index("tf32")
    _propagate_dtype_up(calls, leaves, dtype)
    count[kernel], dtype[kernel] = count[ran], dtype[ran]
    peaks = _peak_tflops_by_dtype(trace, calls, kernel)
    ideal = np.full(len(calls), np.nan)
    have = np.flatnonzero(count > 0)
    ideal[have] = count[have] / (peaks[dtype[have]] * 1e3)  # TFLOP/s are 1000 operations a ns
    return CallFlops(count, dtype, innermost, ideal)


def sum_row_flops(table: ProfilerTable, calls: Calls, call_flops: CallFlops) -> RowFlops:
    """Sums over the calls of each row, those aside that call their like. Rates are over the GPU time of the same calls.

    Torch's own "Total FLOPs" counts both where an operator calls itself.
    """
    row = np.repeat(np.arange(len(table)), np.diff(table.first))
    member = table.members
    # A row of many names holds operators inside operators, and their kernels: only the innermost count there.
    counts = call_flops.count[member] > 0
    if not table.per_name and table.group_by is not GroupBy.CLASS:
        counts &= call_flops.is_innermost[member]
    above = np.maximum(calls.parent[member], 0)
    inner = counts & (calls.parent[member] >= 0) & (calls.name[above] == calls.name[member])
    calls_itself = np.zeros(len(calls), np.bool_)
    calls_itself[above[inner]] = True  # as autocast has `addmm` cast its inputs and call `addmm`
    counts &= ~calls_itself[member]
    row, member = row[counts], member[counts]
    gpu = calls.gpu[member]
    size = len(table)
    total = np.bincount(row, weights=call_flops.count[member], minlength=size)
    timed = gpu > 0
    time = np.bincount(row[timed], weights=gpu[timed], minlength=size)
    done = np.bincount(row[timed], weights=call_flops.count[member][timed], minlength=size)
    ideal = np.bincount(row[timed], weights=call_flops.time_at_peak[member][timed], minlength=size)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where(time > 0, done / time / 1e3, np.nan)
        share = np.where(time > 0, ideal / time, np.nan)
    return RowFlops(np.where(total > 0, total, np.nan), rate, share)


def _count_operator_flops(calls: Calls, args: OpArgs) -> tuple[F64, I64]:
    """(FLOPs, place in DTYPES) of each call, 0 where there are none."""
    count, dtype = np.zeros(len(calls)), np.zeros(len(calls), np.int64)
    known = np.fromiter((has_formula(name) for name in calls.names), np.bool_, len(calls.names))
    recorded = np.fromiter((each.flops is not None for each in args.all_inputs), np.bool_, len(args.all_inputs))
    places = np.flatnonzero((known[calls.name] & (args.input_index > 0) & ~calls.on_gpu) | recorded[args.input_index])
    key = calls.name[places].astype(np.int64) * len(args.all_inputs) + args.input_index[places]
    distinct, inverse = np.unique(key, return_inverse=True)
    found = np.zeros(len(distinct))
    types = np.zeros(len(distinct), np.int64)
    for place, each in enumerate(distinct.tolist()):
        inputs = args.all_inputs[each % len(args.all_inputs)]
        counted = inputs.flops or count_flops(calls.names[each // len(args.all_inputs)], inputs.dims, inputs.concrete)
        found[place], types[place] = counted or 0, _dtype_index(inputs)
    count[places], dtype[places] = found[inverse], types[inverse]
    return count, dtype


def _dtype_index(inputs: Inputs) -> int:
    """The type of the first tensor that is multiplied: the first that has one."""
    shorts = (short_type(each) for each in inputs.types)
    return DTYPES.index(next((short for short in shorts if short), ""))


def _find_longest_kernels(calls: Calls, leaves: I32) -> I32:
    """int32[k]: the longest GPU work launched in each of these calls, -1 for none."""
    leaf_of = np.full(len(calls), -1, np.int32)
    leaf_of[leaves] = np.arange(len(leaves), dtype=np.int32)
    work = np.flatnonzero(calls.on_gpu & ~calls.annotation)
    around = find_nearest_ancestor(calls.parent, work, leaf_of >= 0)
    work, found = work[around >= 0], leaf_of[around[around >= 0]]
    by_time = np.argsort(calls.gpu[work], kind="stable")
    longest = np.full(len(leaves), -1, np.int32)
    longest[found[by_time]] = work[by_time]  # what is written last stays
    return longest


def _tf32_mask(calls: Calls, kernels: I32) -> Bool:
    """bool[k]: does the kernel's name say that it multiplies fp32 in TF32?"""
    used = np.unique(calls.name[kernels])
    says = np.zeros(len(calls.names), np.bool_)
    says[used] = ["tf32" in decode_kernel_name(calls.names[name]).dtypes for name in used.tolist()]
    found: Bool = says[calls.name[kernels]]
    return found


def _propagate_dtype_up(calls: Calls, leaves: I32, dtype: I64) -> None:
    """Autocast changes the type inside `linear`: what it computes in is what its innermost operator computes in.

    So far above as any operator calls another.
    """
    at, value = calls.parent[leaves], dtype[leaves]
    for _ in range(MAX_CALL_DEPTH):
        if not len(at):
            break
        inside = at >= 0
        at, value = at[inside], value[inside]
        dtype[at] = value
        at = calls.parent[at]


def _peak_tflops_by_dtype(trace: Trace, calls: Calls, kernels: I32) -> F64:
    """float64[dtypes]: TFLOP/s of the device that these kernels ran on, NaN where it is not known."""
    peaks = np.full(len(DTYPES), np.nan)
    names = {str(device.get("name") or "") for device in trace.devices}
    if len(names) > 1 and len(kernels):  # a mixed node: by what the first kernel ran on
        device = find_device(trace, int(calls.event[kernels[0]]))
        names = {device.name} if device else set()
    if len(names) == 1:
        name = names.pop()
        for place, short in enumerate(DTYPES):
            peak = peak_tflops(name, short)
            peaks[place] = np.nan if peak is None else peak
    return peaks
