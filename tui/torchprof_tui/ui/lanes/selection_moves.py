"""Moves of the selection by key: along a row, to parent and child, along links, to the next step or match.

Changes the `ViewState` only; no widget is touched.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.repetition.repeat_fold import RepeatRun
from torchprof_tui.analysis.repetition.step_list import are_repetitions
from torchprof_tui.analysis.search.name_search import is_case_sensitive
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.query import navigation
from torchprof_tui.ui.lanes.view_state import ViewState


class SelectionMoves:
    """Move the selection of a `ViewState`. Each method returns why it could not move, else ""."""

    def __init__(self, view_state: ViewState) -> None:
        self._view_state, self._trace = view_state, view_state.trace
        self._last_child: dict[int, int] = {}  # parent -> the child from which it was last reached

    def next_in_row(self, distance: int) -> str:
        """Select the next (or, for a negative distance, previous) event of the row; without a selection, a kernel."""
        state = self._view_state
        if state.selected < 0:
            kernel = self._find_kernel_on_screen(is_last=distance < 0)
            if kernel < 0:
                return self.select_at_cursor()
            state.select(kernel)
            return ""
        event = navigation.find_row_neighbour(self._trace, self._trace.row_index, state.selected, distance)
        if event < 0:
            return f"the {'last' if distance > 0 else 'first'} event of this row"
        state.select(event)
        return ""

    def select_parent(self) -> str:
        """Select the parent; from an outermost event, go to the lane above."""
        state = self._view_state
        if state.selected < 0:
            return self._select_adjacent_lane(-1) if state.lane >= 0 else self.select_at_cursor()
        parent = int(self._trace.parent[state.selected])
        if parent < 0:
            return self._select_adjacent_lane(-1)
        self._last_child[parent] = state.selected
        state.select(parent)
        return ""

    def select_child(self) -> str:
        """Select the child last left for this parent, else the first one on screen; without one, the lane below."""
        state = self._view_state
        if state.selected < 0:
            return self._select_adjacent_lane(1) if state.lane >= 0 else self.select_at_cursor()
        child = self._last_child.get(state.selected, -1)
        if child < 0:
            time = max(int(self._trace.start[state.selected]), state.viewport.t0)
            child = navigation.nearest_child(self._trace, state.selected, time)
        if child < 0:
            return self._select_adjacent_lane(1)
        state.select(child)
        return ""

    def _find_kernel_on_screen(self, is_last: bool) -> int:
        """Find the kernel that begins first (or last) on screen, on the first lane with one; -1 without any.

        One whose launch was recorded, if there is any: the others have no chain.
        """
        state, trace = self._view_state, self._trace
        begin, end, fold = state.viewport.t0, state.viewport.t1, state.viewport.fold
        if state.pointer_time is not None:
            begin, end = (begin, state.cursor_time()) if is_last else (state.cursor_time(), end)
        for lane in (trace.lanes[number] for number in state.lane_view.lane_order()):
            if lane.role is not Role.STREAM:
                continue
            rows = slice(lane.first, lane.last)
            start = trace.start[rows]
            inside = (trace.kind[rows] == Kind.KERNEL) & (start >= begin) & (start < end)
            found = lane.first + np.flatnonzero(inside)
            order = np.lexsort(
                (-trace.start[found] if is_last else trace.start[found], trace.links.launch_of[found] < 0)
            )
            for event in found[order].tolist():
                if fold is None or fold.find_seam(*navigation.extent(trace, event)) < 0:
                    return int(event)
        return -1

    def select_at_cursor(self) -> str:
        """Select the event nearest to the cursor on the first lane that has any; from a current rank on."""
        state = self._view_state
        cursor = state.cursor_time()
        order = state.lane_view.lane_order()
        current = state.current_lane()
        if current in order and self._trace.lanes[current].role is Role.RANK:
            order = order[order.index(current) :]
        for lane in order:
            event = state.lane_view.find_nearest_event(lane, cursor)
            if event >= 0:
                state.select(event)
                return ""
        return "this trace has no events to select"

    @property
    def has_link(self) -> bool:
        """Whether the selected event has a link forward."""
        return self._view_state.selected >= 0 and navigation.follow_link(self._trace, self._view_state.selected) >= 0

    def follow_link(self, forward: bool) -> str:
        """Follow a link: launch ⇢ GPU work, forward ⇢ backward, or back.

        Forward from a call that launched several pieces of GPU work selects the first, and from there the next;
        from an op without a backward, the first GPU work launched beneath it.
        """
        state = self._view_state
        if state.selected < 0:
            return "select an event first: ] follows it to the GPU work that it launched, [ goes back"
        event = (navigation.follow_link if forward else navigation.follow_link_back)(self._trace, state.selected)
        if event < 0:
            return "no forward link" if forward else "no backward link"
        state.select(event)
        return ""

    def select_adjacent_step(self, later: bool) -> str:
        """Select the next or previous step of the current rank; while repeats are folded, show the repeat beside."""
        state = self._view_state
        found = state.folding.find_run(state.cursor_time())
        if found is not None:
            run, shown = found
            index = shown + (1 if later else -1)
            if not 0 <= index < len(run):
                return f"the {'last' if later else 'first'} {run.name} of {len(run):,}"
            return self._show_repeat(run, shown, index)
        steps = state.current_steps()
        if not steps:
            return "no steps: the profiled program did not call prof.step(), and no repetition was found"
        if state.selected >= 0:
            time = int(self._trace.start[state.selected])
        else:  # without a pointer, the first step that begins on screen
            time = state.viewport.t0 - 1 if later and state.pointer_time is None else state.cursor_time()
        index = navigation.find_adjacent_step(steps, time, later)
        if index < 0:
            return f"the {'last' if later else 'first'} {'repetition' if are_repetitions(steps) else 'step'}"
        step = steps[index]
        state.select(step.event)
        if are_repetitions(steps) and step.duration < state.viewport.span:  # the event is only the first kernel
            state.viewport = state.viewport.reveal(step.start, step.start + step.duration)
        return ""

    def show_slowest_repeat(self) -> str:
        """Show the slowest repeat of the folded run at the cursor. Returns a message: which, or why not."""
        state = self._view_state
        found = state.folding.find_run(state.cursor_time())
        if found is None:
            return "no repeats are folded: u folds them"
        run, shown = found
        if shown == run.slowest:
            return f"the slowest {run.name} is shown already: {state.folding.describe(int(run.bounds[shown]))}"
        return self._show_repeat(run, shown, run.slowest)

    def _show_repeat(self, run: RepeatRun, shown: int, index: int) -> str:
        """Show another repeat of a folded run, with the selection at the same place in it. Returns which it is."""
        state, trace = self._view_state, self._trace
        start, bounds = int(run.bounds[shown]), (int(run.bounds[index]), int(run.bounds[index + 1]))
        is_inside = state.selected >= 0 and run.find(int(trace.start[state.selected])) == shown
        message = state.show_hidden(bounds[0])
        if is_inside:
            state.select(navigation.find_counterpart(trace, trace.row_index, state.selected, start, bounds))
        return message

    def select_match(self, later: bool) -> str:
        """Select the next or previous match of the search, wrapping around the ends."""
        state = self._view_state
        if state.search.matches is None:
            return "no search yet: / starts one"
        event = state.search.find_adjacent_match(state.selected, state.viewport.t0, later)
        if event < 0:
            case = " with these capitals: try small letters" if is_case_sensitive(state.search.query) else ""
            return f"no match for {state.search.query!r}{case}"
        state.select(event)
        return ""

    def _select_adjacent_lane(self, direction: int) -> str:
        """Go to the lane above (-1) or below (1), to its event nearest to the cursor: upwards the innermost one there.

        A lane without events becomes the current lane, with nothing selected.
        """
        state = self._view_state
        order = state.lane_view.lane_order()
        current = state.current_lane() if state.lane >= 0 else -1
        index = order.index(current) + direction if current in order else 0
        if not 0 <= index < len(order):
            return f"the {'first' if direction < 0 else 'last'} lane"
        lane = order[index]
        event = state.lane_view.find_nearest_event(lane, state.cursor_time())
        if direction < 0 and event >= 0 and lane not in state.lane_view.arrangement.folded:
            event = navigation.innermost_at(self._trace, event, state.cursor_time())
        state.lane = lane
        state.select(event)
        state.scroll_into_view()
        return ""
