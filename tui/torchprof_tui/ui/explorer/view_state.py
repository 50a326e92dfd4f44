"""Where somebody is in a trace: what is on screen, what is selected, marked and found, and what every move does.

No screen in here: moves change this state and cost microseconds; drawing happens once per frame, later.
"""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Step, Trace
from torchprof_tui.trace.query import linked_events, navigation
from torchprof_tui.trace.query.navigation import extent
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.explorer.goto_target import StepNumber, parse_goto_target
from torchprof_tui.ui.explorer.lanes.lane_view_state import LaneViewState
from torchprof_tui.ui.explorer.lanes.screen_lines import LaneArrangement
from torchprof_tui.ui.explorer.range_mark import RangeMark
from torchprof_tui.ui.explorer.search_state import NameSearch

ZOOM_FACTOR = 0.75
"""One key press shows this share of the time; five of them a quarter."""

PAN_DIVISOR = 10
"""One key press pans by a tenth of the screen, a capital by half of it."""


class ViewState:
    """The state of the explorer. Methods that cannot do what they are asked return a line that says why, else ""."""

    def __init__(self, trace: Trace, width: int = 80, height: int = 20) -> None:
        self.trace = trace
        self.viewport = Viewport.whole(trace.span, max(width, 1))
        self.lane_view = LaneViewState(trace, height)
        self.search = NameSearch(trace)
        self.selected = -1
        self.lane = -1
        self.pointer_time: int | None = None
        self.mark: RangeMark | None = None
        self._last_child: dict[int, int] = {}  # parent -> the child from which `parent` was reached
        self._last_fit: tuple[int, Viewport] | None = None

    # -- the screen ----------------------------------------------------------------------------------------

    def resize(self, width: int, height: int) -> None:
        """The lanes have another size; what is selected stays in sight."""
        if width < 1 or height < 1:
            return
        if width != self.viewport.width:
            self.viewport = self.viewport.resize(width)
        if height != self.lane_view.height:
            self.lane_view.resize(height)
            self._scroll_into_view()

    def pin_unseen_stream(self) -> None:
        """The first look at a trace whose lanes do not all fit: the busiest stream is pinned on top.

        Python stacks are dozens of rows deep, and seeing a launch and its kernel at once is the whole point.
        """
        if self.trace.ranks is not None:
            return  # a line each shows what their GPUs did
        stream = self.lane_view.find_unseen_stream()
        if stream >= 0:
            self.toggle_pin(stream)

    def cursor_time(self) -> int:
        """The time that zooming with a key holds in its place.

        The middle of what can be seen of the selected event, because it is what one looks at. Where nothing is
        selected, or it is out of sight, the mouse pointer, as long as it is over the lanes; without one, the
        middle of the screen. The ruler shows it as `▼`.
        """
        view = self.viewport
        if self.selected >= 0:
            start, end = extent(self.trace, self.selected)
            if start < view.t1 and end > view.t0:
                return (max(start, view.t0) + min(end, view.t1)) // 2
        if self.pointer_time is not None and view.t0 <= self.pointer_time < view.t1:
            return self.pointer_time
        return (view.t0 + view.t1) // 2

    def zoom(self, steps: int, at: int | None = None) -> None:
        """In (out where negative) by so many key presses, around `at` or the cursor."""
        self.viewport = self.viewport.zoom(self.cursor_time() if at is None else at, ZOOM_FACTOR**steps)
        self._extend_mark()

    def pan(self, tenths: int) -> None:
        self.pan_cells(tenths * max(1, self.viewport.width // PAN_DIVISOR))

    def pan_cells(self, cells: int) -> None:
        self.viewport = self.viewport.pan_cells(cells)
        self._extend_mark()

    def pan_to(self, time: int) -> None:
        """This time in the middle."""
        self.viewport = self.viewport.centre(time)
        self._extend_mark()

    def fit_selection(self) -> str:
        """The selected event, and its parent when that is what fills the screen already; or the marked range."""
        event = self.selected
        if event < 0:
            if self.mark is None:
                return "nothing is selected: ← → select an event, 0 shows the whole trace"
            self.viewport = self.viewport.fit(self.mark.start, self.mark.end)
            return ""
        if self._last_fit is not None and self._last_fit[1] == self.viewport:
            event = int(self.trace.parent[self._last_fit[0]])
            if event < 0:
                self.fit_all()
                return ""
        self.viewport = self.viewport.fit(*extent(self.trace, event))
        self._last_fit = (event, self.viewport)
        return ""

    def fit_all(self) -> None:
        self.viewport = Viewport.whole(self.trace.span, self.viewport.width)

    # -- the selection -------------------------------------------------------------------------------------

    def select(self, event: int) -> None:
        """Select (-1: nothing) and bring it into sight, moving the screen no more than that takes."""
        self.selected = event
        if event < 0:
            return
        self.lane = int(self.trace.lane[event])
        self.lane_view.reveal_lane(self.lane)
        start, end = extent(self.trace, event)
        view = self.viewport
        overlaps = start < view.t1 and end > view.t0
        if not overlaps or (end - start < view.span and not (view.t0 <= start and end <= view.t1)):
            self.viewport = view.reveal(start, end)
        self._scroll_into_view()
        self._extend_mark()

    def next_in_row(self, distance: int) -> str:
        """To the next or previous event of the row."""
        if self.selected < 0:
            return self.select_at_cursor()
        event = navigation.find_row_neighbour(self.trace, self.trace.row_index, self.selected, distance)
        if event < 0:
            return f"the {'last' if distance > 0 else 'first'} event of this row"
        self.select(event)
        return ""

    def select_parent(self) -> str:
        """To the parent; from the outermost event to the lane above."""
        if self.selected < 0:
            return self._select_adjacent_lane(-1) if self.lane >= 0 else self.select_at_cursor()
        parent = int(self.trace.parent[self.selected])
        if parent < 0:
            return self._select_adjacent_lane(-1)
        self._last_child[parent] = self.selected
        self.select(parent)
        return ""

    def select_child(self) -> str:
        """To the child that one came from, or the first one on screen; from the innermost to the lane below."""
        if self.selected < 0:
            return self._select_adjacent_lane(1) if self.lane >= 0 else self.select_at_cursor()
        child = self._last_child.get(self.selected, -1)
        if child < 0:
            time = max(int(self.trace.start[self.selected]), self.viewport.t0)
            child = navigation.nearest_child(self.trace, self.selected, time)
        if child < 0:
            return self._select_adjacent_lane(1)
        self.select(child)
        return ""

    def select_at_cursor(self) -> str:
        """The event at the cursor on the first lane that has any."""
        cursor = self.cursor_time()
        order = self.lane_view.lane_order()
        here = self.current_lane()
        if here in order and self.trace.lanes[here].role is Role.RANK:
            order = order[order.index(here) :]  # one looks at this rank
        for lane in order:
            event = self.lane_view.find_nearest_event(lane, cursor)
            if event >= 0:
                self.select(event)
                return ""
        return "this trace has no events to select"

    def follow_link(self, forward: bool) -> str:
        """Along a link: launch ⇢ GPU work, forward ⇢ backward, and back.

        Forward from a call that launched several pieces of GPU work goes to the first, and from there to the
        next; from an op without a backward, to the first GPU work that was launched beneath it.
        """
        if self.selected < 0:
            return "select an event first: ] follows it to the GPU work that it launched, [ goes back"
        event = (linked_events.follow_link if forward else linked_events.follow_link_back)(self.trace, self.selected)
        if event < 0:
            return "no link leads on from here" if forward else "no link leads back from here"
        self.select(event)
        return ""

    def select_adjacent_step(self, later: bool) -> str:
        """To the next or previous step."""
        steps = self.current_steps()
        if not steps:
            return "no steps in this trace: the profiled program did not call prof.step()"
        time = int(self.trace.start[self.selected]) if self.selected >= 0 else self.cursor_time()
        number = navigation.find_adjacent_step(self.current_trace(), time, later)
        if number < 0:
            return f"the {'last' if later else 'first'} step"
        self.select(steps[number].event)
        return ""

    def go_to(self, text: str) -> str:
        """`12ms` to a time, `#3` or `step 3` to a step."""
        if not text.strip():
            return ""
        try:
            wanted = parse_goto_target(text)
        except ValueError as error:
            return str(error)
        if isinstance(wanted, StepNumber):
            return self._select_step(wanted.number)
        low, high = self.viewport.limits
        self.viewport = self.viewport.centre(wanted.time)
        self.pointer_time = min(max(wanted.time, low), high)
        return "" if low <= wanted.time <= high else "the trace does not reach that far"

    def _select_step(self, number: int) -> str:
        for step in self.current_steps():
            if step.number == number:
                self.select(step.event)
                return ""
        known = ", ".join(f"#{step.number}" for step in self.current_steps()[:8])
        return f"no step #{number}" + (f"; there are {known}" if known else ": this trace has none")

    def select_match(self, later: bool) -> str:
        """To the next or previous event found, around the ends."""
        if self.search.matches is None:
            return "nothing was searched for: / searches"
        event = self.search.find_adjacent_match(self.selected, self.viewport.t0, later)
        if event < 0:
            return f"{self.search.query!r} is in no name"
        self.select(event)
        return ""

    # -- the mark ------------------------------------------------------------------------------------------

    def toggle_mark(self) -> None:
        """Begin a range at the selected event (it is the range, until one moves on) or the cursor; or fix it."""
        live = self.mark is not None and self.mark.live
        self.mark = self.mark.freeze() if self.mark is not None and live else RangeMark.begin_at(self._cursor_range())

    def mark_range(self, start: int, end: int) -> None:
        """Mark from here to there, as the mouse does."""
        self.mark = RangeMark.from_range(start, end, self.viewport.limits) or self.mark

    def clear_last(self) -> str:
        """One thing less: the mark, then the search, then the selection. Says what went."""
        if self.mark is not None:
            self.mark = None
            return "mark cleared"
        if self.search.matches is not None:
            self.search.set_query("")
            return "search cleared"
        if self.selected >= 0:
            self.selected = -1
            return "selection cleared"
        return ""

    def active_range(self) -> tuple[int, int, str]:
        """The time that a question is about, and what to call it: the marked range, else the selected event, else what
        is on screen."""
        if self.mark is not None:
            return self.mark.start, self.mark.end, "the marked range"
        if self.selected >= 0:
            return *extent(self.trace, self.selected), self.trace.event(self.selected).name
        return self.viewport.t0, self.viewport.t1, "what is on screen"

    # -- the lanes -----------------------------------------------------------------------------------------

    def current_rank(self) -> Rank | None:
        """Of several ranks the one that one looks at: that of the selected event or the current lane, else the first.

        What is told of a process as a whole is told of this one.
        """
        if self.trace.ranks is None:
            return None
        return self.trace.ranks.rank_of_lane(self.lane) if self.lane >= 0 else self.trace.ranks.all[0]

    def current_trace(self) -> Trace:
        """The trace of the process that one looks at."""
        rank = self.current_rank()
        return self.trace if rank is None else rank.trace

    def current_steps(self) -> list[Step]:
        """Its steps, with events numbered as in the whole."""
        rank = self.current_rank()
        return self.trace.steps if rank is None else rank.steps

    def current_lane(self) -> int:
        """The lane that keys act on: the selected event's, or the first one; -1 in an empty trace.

        In a folded rank that is the rank's own line.
        """
        return (
            self.lane_view.displayed_lane(self.lane) if self.lane >= 0 else next(iter(self.lane_view.lane_order()), -1)
        )

    def toggle_fold(self, lanes: tuple[int, ...]) -> None:
        self._apply_arrangement(self.lane_view.arrangement.toggle_fold(lanes))

    def fold_all(self, fold: bool) -> None:
        lanes = frozenset(range(len(self.trace.lanes))) if fold else frozenset()
        self._apply_arrangement(replace(self.lane_view.arrangement, folded=lanes))

    def toggle_pin(self, lane: int) -> None:
        self._apply_arrangement(self.lane_view.arrangement.toggle_pin(lane))

    def hide_lane(self, lane: int) -> str:
        order = self.lane_view.lane_order()
        if lane not in order or len(order) == 1:
            return "the last lane stays"
        place = order.index(lane)
        if self.selected >= 0 and int(self.trace.lane[self.selected]) == lane:
            self.selected = -1
        self.lane = order[place + 1] if place + 1 < len(order) else order[place - 1]
        self._apply_arrangement(self.lane_view.arrangement.hide_lane(lane))
        return ""

    def unhide_lanes(self) -> str:
        """Bring hidden lanes back. Says how many."""
        count = len(self.lane_view.arrangement.hidden)
        self._apply_arrangement(self.lane_view.arrangement.unhide_all())
        return f"{count} hidden lane{'s' if count != 1 else ''} shown again" if count else "no lane is hidden"

    # -- inside --------------------------------------------------------------------------------------------

    def _apply_arrangement(self, arrangement: LaneArrangement) -> None:
        if self.lane_view.apply_arrangement(arrangement):
            self._scroll_into_view()

    def _scroll_into_view(self) -> None:
        """Have the selected event, or else the lane that one is on, in sight."""
        if self.selected >= 0:
            self.lane_view.scroll_to_row(int(self.trace.lane[self.selected]), int(self.trace.row[self.selected]))
        elif self.lane >= 0:
            self.lane_view.scroll_to_row(self.lane, 0)

    def _select_adjacent_lane(self, direction: int) -> str:
        order = self.lane_view.lane_order()
        here = self.current_lane() if self.lane >= 0 else -1
        place = order.index(here) + direction if here in order else 0
        if not 0 <= place < len(order):
            return f"the {'first' if direction < 0 else 'last'} lane"
        lane = order[place]
        event = self.lane_view.find_nearest_event(lane, self.cursor_time())
        if direction < 0 and event >= 0 and lane not in self.lane_view.arrangement.folded:
            event = navigation.innermost_at(self.trace, event, self.cursor_time())
        self.lane = lane
        self.select(event)
        self._scroll_into_view()
        return ""

    def _cursor_range(self) -> tuple[int, int]:
        if self.selected >= 0:
            return extent(self.trace, self.selected)
        cursor = self.cursor_time()
        return cursor, cursor + 1

    def _extend_mark(self) -> None:
        if self.mark is not None:
            self.mark = self.mark.extend_to(*self._cursor_range())
