"""Patterns of Ascend NPUs: ops that are compiled as they run, and ops that run on the NPU's control processors."""

from __future__ import annotations

from collections import Counter

import numpy as np

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.host_activity import OP_COMPILATION_REGEX
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_GPU
from torchprof_tui.trace.core.arrays import I64, find_median, is_in, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_COMPILE_ONLY_REGEX = r"(AscendCL@)?(opCompile|aclopCompile(V2)?$)"
_TASK_TYPE, _AI_CPU = "Task Type", "AI_CPU"
_MAX_READS = 512  # kernel names whose task type is read from the file; a model has fewer
_MAX_OPS = 3  # ops that a finding names


@register_pattern(
    "Ops are compiled as they run",
    meaning="the NPU's runtime compiles or looks up an op in each call: hundreds of microseconds instead of ten",
    action="use the precompiled ops: switch just-in-time compilation off before the model is created",
    code="torch_npu.npu.set_compile_mode(jit_compile=False)",
    decided="Calls of CANN that compile and execute an op (aclopCompileAndExecute, aclopCompile) of any duration. "
    "Time at stake: the NPU's idle time during these calls.",
    thresholds=(thresholds.OP_COMPILATION_SHARE,),
    needs=(ScopeView.missing_calls_reason,),
)
def op_compilation(view: ScopeView) -> Answer:
    tables = view.tables
    calls = view.select_in_scope(tables.compute_once(find_compiling_calls))
    if not len(calls):
        return Answer.absent()
    if not len(tables.work):
        return Answer.cannot_tell(NO_GPU)
    in_scope = view.clip(calls.intervals)
    idle = max((in_scope - tables.busy_intervals[device]).total for device in tables.devices)
    name = tables.name(int(calls.row[0]))
    ops = tables.launching_ops[1][is_in(tables.work.call, calls.row)]
    seen = (
        f"{view.format_count(len(calls), 'call')} of {name} take "
        f"{format_duration(in_scope.total)}, {format_duration(find_median(calls.duration))} in the median"
        f"{_name_ops(tables, ops[ops >= 0])}; the NPU was idle {format_duration(idle)} meanwhile"
    )
    if idle < thresholds.OP_COMPILATION_SHARE.value * view.scope.length:
        return Answer.absent(seen)
    compiling = view.covered_time(tables.match_names(_COMPILE_ONLY_REGEX, Kind.RUNTIME))
    if compiling:
        seen += f"; compiling alone is {format_duration(compiling)} of it"
    remedy = None
    if 2 * compiling >= in_scope.total:
        remedy = Remedy(
            "ops are compiled for new shapes: switch just-in-time compilation off, keep shapes fixed, or record later "
            "steps",
            "torch_npu.npu.set_compile_mode(jit_compile=False)",
        )
    return Answer.fired(seen, calls.row, idle, remedy, calls.intervals)


def find_compiling_calls(tables: TraceTables) -> EventTable:
    """Find the calls of CANN that compile ops, without those made inside another."""
    calls = tables.match_names(OP_COMPILATION_REGEX, Kind.RUNTIME)
    return calls.select(~is_in(tables.trace.parent[calls.row], calls.row))


def _name_ops(tables: TraceTables, ops: I64) -> str:
    counted = Counter(tables.name(int(op)) for op in ops).most_common(_MAX_OPS)
    return f", for {', '.join(name for name, _ in counted)}" if counted else ""


@register_pattern(
    "Ops on the NPU's control processors",
    meaning="an op without an implementation for the vector and matrix units runs on the AI CPU, at least ten times "
    "as slow; the usual reason is the data type (int64, float64, bool)",
    action="give the op a data type that the AI cores support (float32, float16, int32), or move it out of the step",
    code="x = x.to(torch.float32)  # before the op; create masks and counters as int32",
    decided="Kernels whose task type is AI_CPU, or with AiCpu in their name, by the operator that launched them.",
    thresholds=(thresholds.AI_CPU_SHARE, thresholds.CONVERSION_TIME),
    needs=(ScopeView.missing_gpu_reason,),
)
def ai_cpu_ops(view: ScopeView) -> Answer:
    work = view.work
    chosen = is_in(work.events.name, view.tables.compute_once(find_ai_cpu_names)) & (work.kind == Kind.KERNEL)
    if not chosen.any():
        return Answer.absent()
    time, share = int(view.work_time[chosen].sum()), view.share_of_gpu_time(chosen)
    kernels = work.events.select(chosen)
    ops, longest = view.outer_op[chosen], format_duration(int(kernels.duration.max()))
    seen = (
        f"{format_percent(share)} of NPU time in {view.format_count(len(kernels), 'kernel')}"
        f" on the AI CPU, the longest {longest}"
        f"{_name_ops(view.tables, ops[ops >= 0])}"
    )
    is_small = time < thresholds.CONVERSION_TIME.value * max(view.device_time, 1)
    if share < thresholds.AI_CPU_SHARE.value or is_small:
        return Answer.absent(seen)
    return Answer.fired(seen, kernels.row, view.covered_time(kernels))


def find_ai_cpu_names(tables: TraceTables) -> I64:
    """Find the names (numbers) of kernels that run on the AI CPU; reads the task type of one kernel of each name."""
    trace, work = tables.trace, tables.work
    names, first = np.unique(work.events.name, return_index=True)
    is_npu = any(decode_kernel_name(trace.names[name]).library == "CANN" for name in names.tolist())
    if not is_npu:
        return np.zeros(0, np.int64)
    chosen = []
    for number, (name, index) in enumerate(zip(names.tolist(), first.tolist(), strict=True)):
        row = int(work.events.row[index])
        if "AiCpu" in trace.names[name] or (number < _MAX_READS and _read_task_type(tables, row) == _AI_CPU):
            chosen.append(name)
    return sorted_unique(np.array(chosen, np.int64))


def _read_task_type(tables: TraceTables, row: int) -> object:
    try:
        return tables.trace.event(row).read_args().get(_TASK_TYPE)
    except (OSError, LookupError, TypeError, ValueError):
        return None
