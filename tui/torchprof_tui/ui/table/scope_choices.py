"""List the scopes that a table can be restricted to, from the view state of the lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchprof_tui.analysis.table.event_scope import lane_mask, range_mask, step_mask
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.ui.lanes.view_state import ViewState


@dataclass(frozen=True, slots=True)
class TableScope:
    """A scope of the table.

    `select_events()` returns the events in it, bool[n] over the rank's own trace, or None for all. It passes over all
    events, so call it in a worker.
    """

    label: str
    select_events: Callable[[], Bool | None]


def list_table_scopes(profile: Profile, view_state: ViewState) -> list[TableScope]:
    """List the scopes: the whole trace, the marked range, the visible range, the current step, the current lane."""
    trace = profile.trace
    rank = view_state.current_rank()
    scopes = [TableScope(f"{rank.label_prefix(', ')}{trace.part or 'whole trace'}", lambda: None)]
    viewport = view_state.viewport
    if view_state.mark is not None:
        mark = view_state.mark
        scopes.append(TableScope("the marked range", lambda: range_mask(trace, mark.start, mark.end)))
    if viewport.t0 > trace.span[0] or viewport.t1 < trace.span[1]:
        scopes.append(TableScope("on screen", lambda: range_mask(trace, viewport.t0, viewport.t1)))
    time = view_state.cursor_time()
    current_step = next((step for step in trace.steps if step.start <= time < step.start + step.duration), None)
    if current_step is not None:
        scopes.append(TableScope(current_step.name, lambda: step_mask(trace, current_step, profile.request_times)))
    lane = view_state.current_lane() - rank.first_lane
    if lane >= 0:
        scopes.append(TableScope(trace.lanes[lane].label, lambda: lane_mask(trace, lane)))
    return scopes
