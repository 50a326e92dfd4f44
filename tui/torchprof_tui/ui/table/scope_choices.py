"""What a table can be restricted to, seen from where one was on the lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchprof_tui.analysis.table.event_scope import lane_mask, range_mask, step_mask
from torchprof_tui.analysis.table.profiler_table import Profile
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.ui.explorer.view_state import ViewState


@dataclass(frozen=True, slots=True)
class TableScope:
    """`only()`: the events that count, bool[n] over the rank's own trace; None for all. Costs a pass: ask a thread."""

    label: str
    select_events: Callable[[], Bool | None]


def list_table_scopes(profile: Profile, view_state: ViewState) -> list[TableScope]:
    """Always the whole trace first; then the marked range, what is on screen, the step and the lane that one is at."""
    trace = profile.trace
    rank = view_state.current_rank()
    whole = "whole trace" if rank is None else f"{rank.label}, whole trace"
    found = [TableScope(whole, lambda: None)]
    view = view_state.viewport
    if view_state.mark is not None:
        mark = view_state.mark
        found.append(TableScope("the marked range", lambda: range_mask(trace, mark.start, mark.end)))
    if view.t0 > trace.span[0] or view.t1 < trace.span[1]:
        found.append(TableScope("on screen", lambda: range_mask(trace, view.t0, view.t1)))
    middle = view_state.cursor_time()
    step = next((each for each in trace.steps if each.start <= middle < each.start + each.duration), None)
    if step is not None:
        found.append(TableScope(step.name, lambda: step_mask(trace, step, profile.request_times)))
    lane = view_state.current_lane() - (0 if rank is None else rank.first_lane)
    if lane >= 0:
        found.append(TableScope(trace.lanes[lane].label, lambda: lane_mask(trace, lane)))
    return found
