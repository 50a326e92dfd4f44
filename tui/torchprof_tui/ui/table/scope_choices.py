"""What a table can be restricted to, seen from where one was on the lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchprof_tui.analysis.table.event_scope import in_lane, in_range, in_step
from torchprof_tui.analysis.table.profiler_table import Profile
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.ui.explorer.view_state import Walk


@dataclass(frozen=True, slots=True)
class TableScope:
    """`only()`: the events that count, bool[n] over the rank's own trace; None for all. Costs a pass: ask a thread."""

    label: str
    only: Callable[[], Bool | None]


def table_scopes(profile: Profile, walk: Walk) -> list[TableScope]:
    """Always the whole trace first; then the marked range, what is on screen, the step and the lane that one is at."""
    trace = profile.trace
    rank = walk.rank()
    whole = "whole trace" if rank is None else f"{rank.label}, whole trace"
    found = [TableScope(whole, lambda: None)]
    view = walk.viewport
    if walk.mark is not None:
        mark = walk.mark
        found.append(TableScope("the marked range", lambda: in_range(trace, mark.start, mark.end)))
    if view.t0 > trace.span[0] or view.t1 < trace.span[1]:
        found.append(TableScope("on screen", lambda: in_range(trace, view.t0, view.t1)))
    middle = walk.cursor()
    step = next((each for each in trace.steps if each.start <= middle < each.start + each.duration), None)
    if step is not None:
        found.append(TableScope(step.name, lambda: in_step(trace, step, profile.asked)))
    lane = walk.current_lane() - (0 if rank is None else rank.first_lane)
    if lane >= 0:
        found.append(TableScope(trace.lanes[lane].label, lambda: in_lane(trace, lane)))
    return found
