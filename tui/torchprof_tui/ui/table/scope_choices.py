"""List the scopes that a table can be restricted to, from the view state of the lanes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torchprof_tui.analysis.patterns.engine.check_scope import Scope, range_scope, step_scope
from torchprof_tui.analysis.table.event_scope import lane_mask, range_mask, step_mask
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.ui.lanes.view_state import ViewState


@record
class TableScope:
    """A scope of the table.

    `select_events()` returns the events in it, bool[n] over the rank's own trace, or None for all. It passes over all
    events, so call it in a worker. `time`: what is checked for it; None for the whole trace, and for a lane.
    """

    label: str
    select_events: Callable[[], Bool | None]
    time: Scope | None = None


def list_table_scopes(profile: Profile, view_state: ViewState) -> list[TableScope]:
    """List the scopes: the whole trace, the marked range, the visible range, the current step, the current lane."""
    trace = profile.trace
    rank = view_state.current_rank()
    scopes = [TableScope(f"{rank.label_prefix(', ')}{trace.part or 'whole trace'}", lambda: None)]
    viewport = view_state.viewport
    if view_state.mark is not None:
        mark = view_state.mark
        select_marked = partial(range_mask, trace, mark.start, mark.end)
        scopes.append(TableScope("the marked range", select_marked, range_scope(mark.start, mark.end)))
    if viewport.t0 > trace.span[0] or viewport.t1 < trace.span[1]:
        select_shown = partial(range_mask, trace, viewport.t0, viewport.t1)
        scopes.append(TableScope("on screen", select_shown, range_scope(viewport.t0, viewport.t1)))
    time = view_state.cursor_time()
    current_step = next((step for step in trace.steps if step.start <= time < step.start + step.duration), None)
    if current_step is not None:
        step = current_step

        def select_step() -> Bool:  # the times are computed on first use, in a worker
            return step_mask(trace, step, profile.request_times)

        scopes.append(TableScope(step.name, select_step, step_scope(step)))
    lane = view_state.current_lane() - rank.first_lane
    if lane >= 0:
        scopes.append(TableScope(trace.lanes[lane].label, lambda: lane_mask(trace, lane)))
    return scopes
