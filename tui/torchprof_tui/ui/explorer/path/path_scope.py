"""The part of the trace whose critical path is shown: a marked range, a step, or what is on screen without steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torchprof_tui.analysis.repetition.step_list import are_repetitions
from torchprof_tui.trace.model.trace import Step, Trace
from torchprof_tui.ui.lanes.view_state import ViewState

MARKED_RANGE = "the marked range"

ALL_RANKS = -1
"""Instead of the index of a rank: the path of all ranks."""


@dataclass(frozen=True, slots=True)
class PathScope:
    """A scope of one rank or of ALL_RANKS, ns. `event`: of a recorded step, in the whole trace; -1 for a range."""

    rank_index: int
    start: int
    end: int
    label: str
    event: int = -1

    @property
    def is_marked(self) -> bool:
        return self.event < 0 and self.label == MARKED_RANGE


def choose_scope(state: ViewState, rank_index: int, before: PathScope | None) -> PathScope:
    """Choose the scope: the mark once its end is set, else the step of the selection, else that in mid-screen.

    `before`: the scope until now, which stays while it is on screen and the selection is in no other step. Without
    steps on screen it is the time on screen.
    """
    view = state.viewport
    if state.mark is not None and not state.mark.live:
        return PathScope(rank_index, state.mark.start, state.mark.end, MARKED_RANGE)
    if before is not None and (before.rank_index != rank_index or before.is_marked or not _is_visible(before, state)):
        before = None
    time = _find_selected_time(state)
    if before is not None and (time is None or before.start <= time < before.end):
        return before
    steps = state.current_steps()
    if time is not None:
        for step in steps:
            if step.start <= time < step.start + step.duration:
                return _describe_step(step, rank_index)
    if before is not None:
        return before
    middle = (view.t0 + view.t1) // 2
    visible = [step for step in steps if step.start < view.t1 and step.start + step.duration > view.t0]
    if visible:
        nearest = min(visible, key=lambda step: abs(2 * step.start + step.duration - 2 * middle))
        return _describe_step(nearest, rank_index)
    first, last = state.current_trace().span
    start, end = max(view.t0, first), min(view.t1, last)
    label = "the whole recording" if (start, end) == (first, last) else "the time that was on screen"
    return PathScope(rank_index, start, end, label)


def join_ranks(scope: PathScope, trace: Trace) -> PathScope:
    """Return the scope of all ranks that a scope of one belongs to: its step, as on the first rank, or its range."""
    step = next((each for each in trace.all_ranks[scope.rank_index].steps if each.event == scope.event), None)
    if step is None:
        return replace(scope, rank_index=ALL_RANKS)
    for each in trace.all_ranks[0].steps:
        if each.number == step.number:
            return PathScope(ALL_RANKS, each.start, each.start + each.duration, each.name, each.event)
    return replace(scope, rank_index=ALL_RANKS, event=-1)


def covers_whole(trace: Trace, scope: PathScope) -> bool:
    """Return whether a scope is all of a rank's trace."""
    return scope.event < 0 and (scope.start, scope.end) == trace.span


def _describe_step(step: Step, rank_index: int) -> PathScope:
    event = -1 if are_repetitions([step]) else step.event
    return PathScope(rank_index, step.start, step.start + step.duration, step.name, event)


def _is_visible(scope: PathScope, state: ViewState) -> bool:
    return scope.start < state.viewport.t1 and scope.end > state.viewport.t0


def _find_selected_time(state: ViewState) -> int | None:
    """Return the start of the selected event, of GPU work that of its launch: the step that it belongs to has it."""
    if state.selected < 0:
        return None
    launch = int(state.trace.links.launch_of[state.selected])
    return int(state.trace.start[launch if launch >= 0 else state.selected])
