"""The pattern of what remains to be paid where CUDA graphs are replayed."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, Severity, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_LINKS
from torchprof_tui.analysis.patterns.rules.torch_compile import AOT_PROLOGUE_REGEX, CACHE_LOOKUP_REGEX, PREGRAPH_REGEX
from torchprof_tui.trace.core.arrays import sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind


def find_input_copies(tables: TraceTables) -> EventTable:
    """Find the copies launched right before a graph is replayed, with no other GPU work between: its inputs."""
    work, trace = tables.work, tables.trace
    launches = tables.practices.graph_launches
    linked = work.launch >= 0
    copy_names = np.zeros(len(trace.names), dtype=np.bool_)
    used = sorted_unique(work.events.name).astype(np.int64)
    copy_names[used] = ["copy" in trace.names[name].lower() for name in used.tolist()]
    is_copy = linked & ((work.kind == Kind.COPY) | work.class_mask(KernelClass.COPY) | copy_names[work.events.name])
    # A call is a copy if all its work is.
    calls = sorted_unique(np.concatenate([work.launch[linked], launches.row])).astype(np.int64)
    other = np.zeros(len(trace), dtype=np.bool_)
    other[work.launch[linked & ~is_copy]] = True
    order = np.lexsort((trace.start[calls], trace.lane[calls]))
    calls = calls[order]
    lane = trace.lane[calls]
    is_replay = np.isin(calls, launches.row)
    ends_run = is_replay | other[calls]  # a run of copies ends at a replay, or at other work
    index = np.arange(len(calls))
    next_end = np.minimum.accumulate(np.where(ends_run, index, len(calls))[::-1])[::-1]
    has_end = next_end < len(calls)
    next_end = np.minimum(next_end, max(len(calls) - 1, 0))
    feeds = ~ends_run & has_end & is_replay[next_end] & (lane[next_end] == lane) if len(calls) else ends_run
    return work.events.select(np.flatnonzero(linked & np.isin(work.launch, calls[feeds])))


@register_pattern(
    "Inputs are copied before a graph runs",
    meaning="a graph reads its inputs at fixed addresses, so new inputs are copied there before each replay",
    action="write the inputs directly to the addresses that the graph reads",
    code="static_x.copy_(batch, non_blocking=True); graph.replay()  # load into static_x, and drop other copies",
    decided="Copies that are launched right before a graph, with no other work in between. Shown with them: the "
    "other costs of a replay, which are the launch and the guards of compiled code.",
    thresholds=(thresholds.GRAPH_COPY_SHARE,),
    severity=Severity.PROBLEM,
    needs=(ScopeView.missing_calls_reason, ScopeView.missing_work_reason),
)
def graph_input_copies(view: ScopeView) -> Answer:
    tables = view.tables
    launches = view.select_in_scope(tables.practices.graph_launches)
    if not len(launches):
        return Answer.absent("no graph is replayed")
    if not (tables.work.launch >= 0).any():
        return Answer.cannot_tell(NO_LINKS)
    copies = view.select_in_scope(tables.compute_once(find_input_copies))
    time, summary = view.covered_time(copies), describe_replay_costs(view)
    if time < thresholds.GRAPH_COPY_SHARE.value * view.scope.length:
        return Answer.absent(summary)
    return Answer.fired(summary, np.sort(copies.row), time, _choose_copy_remedy(view))


def describe_replay_costs(view: ScopeView) -> str:
    """Describe what graphs still cost: copies into their inputs, the calls that replay them, guards."""
    copies = view.select_in_scope(view.tables.compute_once(find_input_copies))
    launches = view.select_in_scope(view.tables.practices.graph_launches)
    guards = view.match_names(rf"{CACHE_LOOKUP_REGEX}|{AOT_PROLOGUE_REGEX}|{PREGRAPH_REGEX}")
    parts = [
        f"{format_count(len(copies), 'copy', 'copies')} into inputs {_format_time(view, view.covered_time(copies))}",
        f"{format_count(len(launches), 'replay')} {_format_time(view, view.covered_time(launches))}",
    ]
    if len(guards):
        parts.append(f"guards {_format_time(view, view.covered_time(guards))}")
    return ", ".join(parts)


def _format_time(view: ScopeView, time: int) -> str:
    return f"{format_duration(time)} ({format_percent(time / view.scope.length)})"


def _choose_copy_remedy(view: ScopeView) -> Remedy | None:
    """Choose the remedy by who captured the graph: compiled code, or the program itself."""
    if not view.tables.practices.uses_compile:
        return None
    return Remedy(
        "keep the inputs at one address and mark them as static, so that compiled code does not copy them",
        "torch._dynamo.mark_static_address(x)",
    )
