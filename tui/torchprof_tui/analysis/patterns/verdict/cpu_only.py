"""Diagnose a scope without GPU work: what the program's main thread did."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.host_activity import DATA_LOADER_REGEX
from torchprof_tui.analysis.patterns.engine.host_code_time import (
    COMMUNICATION,
    DO_LESS_PER_OP,
    HOST_CODE,
    INPUT,
    OPS,
    PROFILER,
    divide_main_thread,
    find_host_code,
    find_main_thread,
)
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.patterns.rules.host_code import CREATING_OP
from torchprof_tui.analysis.patterns.verdict.diagnosis import Diagnosis, Says, always, diagnose_finding
from torchprof_tui.analysis.patterns.verdict.tree_model import OUTSIDE, TimePart, TimeTree, part_sort_key
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.core.arrays import I64, is_in

_LABELS = {
    INPUT: "data loader",
    COMMUNICATION: "communication",
    OPS: "ops",
    HOST_CODE: "host code outside any op",
    PROFILER: "profiler",
    OUTSIDE: "outside the recorded program",
}
_MAX_OPS_LISTED = 8


def build_cpu_time_tree(view: ScopeView) -> TimeTree | None:
    """Divide the time of the program's main thread; None if no op was recorded in the scope."""
    main, times = find_main_thread(view), divide_main_thread(view)
    if main is None or not times:
        return None
    ops = _divide_ops(view, main.select(view.tables.ops).row, times[OPS])
    parts = [TimePart(name, _LABELS[name], part.total, ops if name == OPS else ()) for name, part in times.items()]
    outside = view.scope.length - sum(part.time for part in parts)
    parts.append(TimePart(OUTSIDE, _LABELS[OUTSIDE], outside))
    parts.sort(key=part_sort_key)
    return TimeTree(tuple(part for part in parts if part.time), view.scope.length, 1)


def diagnose_cpu(view: ScopeView, tree: TimeTree, findings: Sequence[Finding] = ()) -> Diagnosis:
    """Diagnose what takes most of the main thread's time."""
    parts = [part for part in tree.parts if part.id not in (OUTSIDE, PROFILER)]
    measured = sum(part.time for part in parts) or 1
    worst = max(parts, key=lambda part: part.time, default=None)
    if worst is None:
        return Diagnosis(HOST_CODE, 0.0, always("the program did almost no work"))
    share = worst.time / measured
    fired = {found.id: found for found in findings if found.has_fired}
    slow, uses_gpu = fired.get("cpu-contention"), len(view.tables.calls) > 0
    if slow is not None and worst.id == OPS:
        say, waiting = _say_share("ops wait for CPU cores for"), slow.answer.at_stake / measured
        return Diagnosis(OPS, waiting, say, slow.remedy.action, events=slow.answer.events, pattern=slow.id)
    if worst.id == INPUT:
        remedy = (
            "its workers are too slow: use more workers (up to the number of cores), a larger prefetch_factor, or "
            "faster decoding"
            if view.tables.practices.uses_workers
            else "load in worker processes (num_workers), up to the number of cores, ahead of the step"
        )
        waits = view.select_in_scope(view.tables.match_names(DATA_LOADER_REGEX))
        return Diagnosis(INPUT, share, _say_share("the data loader takes"), remedy, events=waits.row)
    if worst.id == OPS and worst.parts:
        return _diagnose_ops(view, worst, measured, fired)
    if worst.id == COMMUNICATION:
        remedy = "send less often and more at once: larger buckets, or gradients that are accumulated over batches"
        return Diagnosis(COMMUNICATION, share, _say_share("communication takes"), remedy)
    what, host = "code outside any op takes", find_host_code(view)
    if host.owners:
        say = _say_share(what, f", {host.describe_owners()}")
        return Diagnosis(HOST_CODE, share, say, host.choose_remedy(view), events=host.events)
    if 2 * host.intervals.total < host.time:
        others = view.ops.select(view.trace.lane[view.ops.row] != (host.main.lane if host.main else -1))
        op = _divide_ops(view, others.row, others.intervals)[0].id
        say = _say_share(what, f", most of it while another thread runs ops, most of all {op}")
        remedy = choose_op_remedy(op, uses_gpu=uses_gpu)
        return Diagnosis(HOST_CODE, share, say, remedy, events=others.row[others.name == view.trace.names.index(op)])
    return Diagnosis(HOST_CODE, share, _say_share(what), host.choose_remedy(view) or DO_LESS_PER_OP)


def _say_share(before: str, after: str = "") -> Says:
    return lambda share: f"{before} {format_percent(share)} of the CPU's time{after}"


def _diagnose_ops(view: ScopeView, ops_part: TimePart, measured: int, fired: Mapping[str, Finding]) -> Diagnosis:
    """Diagnose a main thread that is mostly in ops: a loop of small ones, many calls of one, or the longest."""
    op, ops = ops_part.parts[0], view.ops
    events = ops.row[ops.name == view.trace.names.index(op.id)]
    loop, calls = fired.get("op-loop"), fired.get("call-count")
    if loop is not None and loop.answer.at_stake >= thresholds.EXPLAINED_SHARE_OF_WAIT.value * ops_part.time:
        return diagnose_finding(loop, OPS, loop.answer.at_stake / measured)
    if calls is not None and is_in(calls.answer.events, events).any():
        return diagnose_finding(calls, OPS, calls.answer.at_stake / measured)
    say = _say_share("ops take", f", {op.id} {format_percent(op.time / measured)}")
    remedy = choose_op_remedy(op.id, uses_gpu=len(view.tables.calls) > 0)
    return Diagnosis(OPS, ops_part.time / measured, say, remedy, events=events)


def choose_op_remedy(op: str, *, uses_gpu: bool = False) -> str:
    """Choose what to do about an op that takes most of a CPU's time, by its class."""
    if uses_gpu:
        if CREATING_OP.match(op):
            return "create these tensors on the GPU (device=…), not on the CPU"
        return "record again with the GPU's work: without it the reason is unknown"
    remedies = (remedy for pattern, remedy in _OP_REMEDIES if pattern.match(op))
    return next(remedies, "process more at once (a larger batch), or compile the code around it (torch.compile)")


_OP_REMEDIES = (
    (
        re.compile(r"aten::(_?slow_conv|thnn_conv)"),
        "this is the fallback without oneDNN: enable it (torch.backends.mkldnn.enabled), compute in float32, or "
        "install a build with it",
    ),
    (
        re.compile(r"(aten|mkldnn)::.*conv"),
        "use channels_last, and bf16 where the CPU has it (torch.autocast('cpu', torch.bfloat16)); check that all "
        "cores are used (torch.get_num_threads())",
    ),
    (
        re.compile(r"(aten|mkldnn|mkl|quantized)::.*(mm|linear|matmul|einsum|dot|lstm|gru|rnn|attention)"),
        "check that all cores are used (torch.get_num_threads()), and use bf16 where the CPU has it "
        "(torch.autocast('cpu', torch.bfloat16))",
    ),
    (CREATING_OP, "create these values once, outside the loop"),
    (re.compile(r"aten::_foreach|aten::_fused_|Optimizer\.step"), "update all parameters at once (fused=True)"),
    (
        re.compile(r"aten::(copy_|_to_copy|to|clone|contiguous|cat|stack|index|gather|embedding)"),
        "copy less: keep one data type and layout, and take all rows with one index",
    ),
)
"""By class of op, first match: what helps on a CPU."""


def _divide_ops(view: ScopeView, rows: I64, op_time: Intervals) -> tuple[TimePart, ...]:
    """Divide the time of ops by the name of the innermost op, largest first; the rest as "others"."""
    trace = view.trace
    start = np.asarray(trace.start[rows])
    end = start + trace.duration[rows]
    # Self time inside the op time: what the op covers, less what its child ops cover.
    covered = op_time.measure_within(start, end)
    # A Python frame may lie between two ops.
    parent = view.tables.innermost_ancestor(rows, view.tables.mark_rows(rows))
    is_child = parent >= 0
    self_time = covered.copy()
    np.subtract.at(self_time, np.searchsorted(rows, parent[is_child]), covered[is_child])
    by_name = np.bincount(np.asarray(trace.name[rows]), weights=np.maximum(self_time, 0))
    order = np.argsort(-by_name, kind="stable")[:_MAX_OPS_LISTED]
    parts = [TimePart(trace.names[name], trace.names[name], int(by_name[name])) for name in order if by_name[name]]
    rest = op_time.total - sum(part.time for part in parts)
    return (*parts, TimePart("others", "other ops", rest)) if rest > 0 else tuple(parts)
