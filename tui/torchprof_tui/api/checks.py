"""Check and compare traces, follow chains of events and critical paths, and predict steps, for the Python API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from torchprof_tui.analysis.compare.side_choice import RankNumbers, compare_runs, select_ranks
from torchprof_tui.analysis.compare.step_selection import StepSelection
from torchprof_tui.analysis.critical_path.critical_path import CriticalPath
from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.analysis.dispatch.chain import find_chain
from torchprof_tui.analysis.dispatch.source_line import SourceLineFinder
from torchprof_tui.analysis.dispatch.step_rows import compare_steps
from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.analysis.doctor.read_problems import Remark
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope, range_scope
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.analysis.rank_path.joined_path import find_path_of_rank, find_path_of_run
from torchprof_tui.analysis.what_if.scenario import ScenarioError
from torchprof_tui.answers.arguments import check_choice
from torchprof_tui.answers.chain import Chain, build_chain, build_chain_steps
from torchprof_tui.answers.check import Check, build_check
from torchprof_tui.answers.diff import Diff, build_diff
from torchprof_tui.answers.what_if import WhatIf, build_what_if, forecast_step
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace


def check_range(trace: Trace, start_ns: int | None, end_ns: int | None) -> Check:
    """Check a range of a trace, by default all of it. Raises TraceError for an empty range, OSError, LookupError."""
    if start_ns is None and end_ns is None:
        return build_check(check_trace(trace, default_scope(trace)))
    first, last = trace.span
    t0, t1 = first if start_ns is None else start_ns, last if end_ns is None else end_ns
    if t1 <= t0:
        raise TraceError(f"no time between {t0} and {t1} ns; the trace goes from {first} to {last} ns")
    return build_check(check_trace(trace, range_scope(t0, t1)))


def list_remarks(trace: Trace) -> tuple[Remark, ...]:
    """List what the doctor says of a file."""
    return tuple(diagnose_trace(trace).remarks)


def follow_chain(trace: Trace, lines: SourceLineFinder, event: int, all_steps: bool) -> Chain:
    """Build the chain through an event, with its rows over `all_steps`. Raises TraceError, OSError, LookupError."""
    found = find_chain(trace, event)
    chain = build_chain(trace, found, lines.find_chain_line(found))
    if not all_steps:
        return chain
    rank = trace.rank_of_event(event)
    steps = compare_steps(rank.trace, event - rank.first)
    if steps is None:
        raise TraceError(f"{trace.label}: event {event} is in no step")
    return msgspec.structs.replace(chain, steps=build_chain_steps(steps, rank.first))


def read_critical_path(
    trace: Trace, step: int | None, start_ns: int | None, end_ns: int | None, rank: int | None
) -> CriticalPath:
    """Find the critical path of a step or a range, of all ranks or of one. Raises TraceError where there is none."""
    time_range = None
    if start_ns is not None or end_ns is not None:
        if step is not None:
            raise TraceError("critical_path: either a step or a range")
        first, last = trace.span
        time_range = (first if start_ns is None else start_ns), (last if end_ns is None else end_ns)
    try:
        ranks = trace.merged_ranks
        if rank is not None and (ranks is not None or rank != trace.rank):
            chosen = None if ranks is None else ranks.find_rank(rank)
            if chosen is None or ranks is None:
                known = "" if ranks is None else ", ".join(str(each.number) for each in ranks.all)
                there = f"there are ranks {known}" if known else "there is one trace"
                raise TraceError(f"critical_path: no rank {rank}; {there}")
            return find_path_of_rank(ranks, ranks.all.index(chosen), step, time_range)
        return find_path_of_run(trace, step, time_range)
    except WindowError as error:
        raise TraceError(f"{trace.label}: {error}") from error


def predict_step(trace: Trace, scenarios: Sequence[str], step: int | None) -> WhatIf:
    """Predict a step with these changes, of several ranks joined. Raises TraceError."""
    try:
        return build_what_if(trace, *forecast_step(trace, scenarios, step))
    except (WindowError, ScenarioError) as error:
        raise TraceError(f"{trace.label}: {error}") from error


__all__ = ["SourceLineFinder"]

DiffBy = Literal["op", "module", "kernel", "class", "cause"]
StepNumbers = tuple[int, int] | None  # numbers of the first and the last step, None for the steady ones


def compare_traces(a: Trace, b: Trace, ranks: RankNumbers, steps: tuple[StepNumbers, StepNumbers], by: DiffBy) -> Diff:
    """Compare two traces. Raises ComparisonError, TraceError, OSError, LookupError."""
    check_choice("by", by, get_args(DiffBy), "rows are matched by")
    selections = StepSelection(numbers=steps[0]), StepSelection(numbers=steps[1])
    return build_diff(compare_runs((a, b), (a.label, b.label), select_ranks(a, b, ranks), ranks, selections), by)
