"""Find critical paths, and predict steps, for the Python API."""

from __future__ import annotations

from collections.abc import Sequence

from torchprof_tui.analysis.critical_path.critical_path import CriticalPath
from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.analysis.rank_path.joined_path import find_path_of_rank, find_path_of_run
from torchprof_tui.analysis.what_if.scenario import ScenarioError
from torchprof_tui.answers.what_if import WhatIf, build_what_if, forecast_step
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace


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
