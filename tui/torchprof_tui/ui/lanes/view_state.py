"""The explorer's state: viewport, selection, marked range, search and lane arrangement, and the changes to each.

A change costs microseconds; drawing happens later, once per frame. Which event a key selects next
is decided in `selection_moves`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple

from torchprof_tui.analysis.repetition.repeat_fold import RepeatFold
from torchprof_tui.analysis.repetition.step_list import list_steps
from torchprof_tui.analysis.search.name_search import BadPattern, SearchResult, search_names
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration, parse_time
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Step, Trace
from torchprof_tui.trace.query.navigation import extent, find_same_event, match_lanes, shift_of
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.name_display import list_lane_names
from torchprof_tui.ui.lanes.lane_view_state import LaneViewState
from torchprof_tui.ui.lanes.repeat_folding import RepeatFolding
from torchprof_tui.ui.lanes.screen_lines import LaneArrangement


class NameSearch:
    """Search the names of a trace. `matches` is None while there is no valid query.

    `is_last_question`: n N go through the matches even while the cheatsheet is open, because the search came after it.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.query = ""
        self.matches: SearchResult | None = None
        self.is_last_question = False

    @cached_property
    def _lane_names(self) -> dict[int, tuple[str, ...]]:
        return list_lane_names(self._trace)

    def set_query(self, text: str) -> str:
        """Find the events whose names, in full or as the lanes print them, match; "" ends the search.

        The text is contained in the name, or is `/a regular expression/`.

        Returns what is wrong with the text, else "". The selection stays.
        """
        self.query = text
        self.matches = None
        self.is_last_question = False
        if not text:
            return ""
        result = search_names(self._trace, text, self._lane_names)
        if isinstance(result, BadPattern):
            return result.message
        self.matches = result
        self.is_last_question = True
        return ""

    def find_adjacent_match(self, event: int, time: int, later: bool) -> int:
        """Return the next or previous match from an event (or, for -1, from `time`), wrapping around; -1 for none."""
        if self.matches is None:
            return -1
        time = int(self._trace.start[event]) if event >= 0 else time
        index = (self.matches.find_next if later else self.matches.find_previous)(time, event)
        return int(self.matches.events[index]) if index >= 0 else -1

    def match_number(self, event: int) -> int:
        """Return the position of an event among the matches, from 1; 0 where it is not one."""
        if self.matches is None or event < 0:
            return 0
        return self.matches.find_index(int(self._trace.start[event]), event) + 1


MAX_PREVIOUS_VIEWS = 100  # views that `backspace` can return to


@record
class View:
    """What was shown: the viewport and its fold, the selected event and lane (-1 for none), the first line."""

    viewport: Viewport
    fold: RepeatFold | None
    selected: int
    lane: int
    top: int


@record
class RangeMark:
    """A range, ns. While `live`, it covers `anchor` (start and end of where it began) and the selection or cursor."""

    start: int
    end: int
    anchor: tuple[int, int]
    live: bool = False

    @classmethod
    def from_range(cls, start: int, end: int, limits: tuple[int, int]) -> RangeMark | None:
        """Return a frozen range of at least 1 ns, clipped to the limits; None where it lies outside of them."""
        low, high = limits
        start, end = max(start, low), min(max(end, start + 1), high)
        return cls(start, end, (start, end)) if start < end else None

    def extend_to(self, start: int, end: int) -> RangeMark:
        """Return the range that covers the anchor and (start, end); unchanged unless it is live."""
        if not self.live:
            return self
        first, last = self.anchor
        return replace(self, start=min(first, start), end=max(last, end))


class GotoTarget(NamedTuple):
    """A step (the N of ProfilerStep#N), a rank, or a time in ns from the trace's first event."""

    kind: Literal["step", "rank", "time"]
    value: int


def parse_goto_target(text: str) -> GotoTarget:
    """Parse a time, a step or a rank. Raises ValueError, with the accepted forms, for anything else."""
    target = text.strip().lower()
    rank = target.removeprefix("rank")
    if rank != target and (digits := rank.strip().removeprefix("#")).isdecimal():
        return GotoTarget("rank", int(digits))
    number = target.removeprefix("profiler").removeprefix("step").strip().removeprefix("#")
    if number != target and number.isdecimal():
        return GotoTarget("step", int(number))
    return GotoTarget("time", parse_time(target))


ZOOM_FACTOR = 0.75  # share of the visible time that one key press keeps; five presses keep about a quarter
PAN_DIVISOR = 10  # one key press pans by a tenth of the screen, a capital letter by half of it

NOTHING_TO_CLEAR = "nothing to clear: no mark, no search, no selection"
NO_LANES = "this trace has no lanes"
WHEEL_HINT = ": ctrl or alt with the wheel zooms, shift pans"
WHOLE_TRACE = "the whole trace is on screen: w zooms in"
LARGEST_ZOOM = "this is the largest zoom: s zooms out"


class ViewState:
    """Hold what is shown of a trace. Times are ns. Methods that return a string return a message for the status line.

    `selected`: an event, -1 for none. `lane`: the current lane, -1 before the first selection. `pointer_time`: the time
    under the mouse pointer, None while it is not over the lanes.
    """

    def __init__(self, trace: Trace, width: int = 80, height: int = 20) -> None:
        self.trace = trace
        self.viewport = Viewport.whole(trace.span, max(width, 1))
        self.lane_view = LaneViewState(trace, height)
        self.search = NameSearch(trace)
        self.selected = -1
        self.lane = -1
        self.pointer_time: int | None = None
        self.mark: RangeMark | None = None
        self._initial_arrangement = self.own_arrangement = self.lane_view.arrangement  # own: not the user's
        self.is_arranged = False  # whether the lanes are arranged for the size of the screen
        self._history: deque[View] = deque(maxlen=MAX_PREVIOUS_VIEWS)
        self.folding = RepeatFolding()
        self._last_fit: tuple[int, Viewport] | None = None  # the event that was fitted, and the viewport that showed it

    # -- viewport ------------------------------------------------------------------------------------------

    def resize(self, width: int, height: int) -> None:
        """Resize the lanes to `width` cells and `height` lines; the selection stays on screen."""
        if width < 1 or height < 1:
            return
        if width != self.viewport.width:
            self.viewport = self.viewport.resize(width)
        if height != self.lane_view.height:
            self.lane_view.resize(height)
            self.scroll_into_view()

    def reset_arrangement(self) -> None:
        """Undo `arrange_lanes`, for a screen of another size, unless the user has changed the arrangement since."""
        if self.lane_view.arrangement == self.own_arrangement:
            self.is_arranged = False
            self.own_arrangement = self._initial_arrangement
            self._apply_arrangement(self._initial_arrangement)

    def arrange_lanes(self) -> bool:
        """Arrange the lanes for the size of the screen: pin streams where they scroll, unfold ranks where they fit.

        Once the user has folded, pinned or hidden a lane, nothing changes and False is returned. Python stacks are
        dozens of rows deep, and a launch should be seen together with its kernel. Several ranks need no pins while
        they are folded: each has a line that shows its GPU work.
        """
        if self.is_arranged or self.lane_view.arrangement != self.own_arrangement:
            return False
        self.is_arranged = True
        if self.trace.merged_ranks is None:
            self._apply_arrangement(self.lane_view.pin_streams(0, len(self.trace.lanes)))
        else:
            self._apply_arrangement(self.lane_view.unfold_ranks())
        self.own_arrangement = self.lane_view.arrangement
        return True

    def cursor_time(self) -> int:
        """Return the time that zooming by key keeps in its column; the ruler shows it as `▼`.

        It is the middle of the visible part of the selected event. Where nothing is selected or the selection is off
        screen, it is the time under the mouse pointer; without a pointer over the lanes, the middle of the screen.
        """
        view = self.viewport
        if self.selected >= 0:
            start, end = extent(self.trace, self.selected)
            if start < view.t1 and end > view.t0:
                return view.midpoint(max(start, view.t0), min(end, view.t1))
        if self.pointer_time is not None and view.t0 <= self.pointer_time < view.t1:
            return self.pointer_time
        return view.midpoint(view.t0, view.t1)

    def zoom(self, steps: int, at: int | None = None) -> str:
        """Zoom in by `steps` key presses (out where negative), around `at` or the cursor. Returns why not, else ""."""
        time = self.cursor_time() if at is None else at
        return self._show(self.viewport.zoom(time, ZOOM_FACTOR**steps), LARGEST_ZOOM if steps > 0 else WHOLE_TRACE)

    def pan(self, tenths: int) -> str:
        """Pan by tenths of the screen, to later times where positive. Returns why not, else ""."""
        return self.pan_cells(tenths * max(1, self.viewport.width // PAN_DIVISOR))

    def pan_cells(self, cells: int) -> str:
        """Pan by cells, to later times where positive. Returns why not, else ""."""
        return self._show(self.viewport.pan_cells(cells), f"the {'end' if cells > 0 else 'start'} of the trace")

    def pan_to(self, time: int) -> str:
        """Centre the viewport on a time. Returns why nothing moves, else ""."""
        unfolded = self.folding.show_range(self.viewport, time, time + 1)
        return self._show(unfolded.centre(time), "the view shows this time already")

    def show_hidden(self, time: int) -> str:
        """Show the folded repeat at a time, ns, in place of the one that is shown. Returns a message: which."""
        self.viewport = self.folding.show_range(self.viewport, time, time + 1)
        return self.folding.describe(time)

    def toggle_repeats(self) -> str:
        """Fold the repeats, then those inside them, then unfold all. Returns a message: what is shown, or why not."""
        at = extent(self.trace, self.selected)[0] if self.selected >= 0 else None
        self.viewport, message = self.folding.toggle(self.viewport, self.current_rank(), at)
        self._extend_mark()
        return message

    def _show(self, viewport: Viewport, reason: str) -> str:
        """Show a viewport. Returns "", or why it cannot differ: the whole trace is on screen, else `reason`."""
        if viewport != self.viewport:
            self.viewport = viewport
            self._extend_mark()
            return ""
        return WHOLE_TRACE if viewport.is_whole and reason != LARGEST_ZOOM else reason

    def show_range(self, start: int, end: int) -> None:
        """Show just a range, ns."""
        self.viewport = self.viewport.fit(start, max(end, start + 1), margin=0)

    def scroll_lanes(self, lines: int, hint: str = "") -> str:
        """Scroll the lanes down by `lines` (up where negative). Returns why nothing moved, else "".

        `hint`: what else there is to do where all lanes are on screen.
        """
        before = self.lane_view.top
        self.lane_view.scroll(lines)
        if not self.lane_view.lane_lines.max_top(self.lane_view.height):
            return "all lanes are on screen" + hint
        return f"the {'last' if lines > 0 else 'first'} lanes" if self.lane_view.top == before else ""

    def fit_selection(self) -> str:
        """Fit the selected event to the screen, and when repeated its parent; without a selection the marked range."""
        event = self.selected
        if event < 0:
            if self.mark is None:
                return "nothing is selected: ← → select an event, 0 shows the whole trace"
            return self._show(self.viewport.fit(self.mark.start, self.mark.end), "the range fits the screen already")
        if self._last_fit is not None and self._last_fit[1] == self.viewport:
            event = int(self.trace.parent[self._last_fit[0]])
            if event < 0:
                return self.fit_all()
        before, self.viewport = self.viewport, self.viewport.fit(*extent(self.trace, event))
        self._last_fit = (event, self.viewport)
        return "" if self.viewport != before else "it fits the screen already; again: its parent"

    def fit_event(self, event: int) -> str:
        """Select an event and fit it to the screen."""
        self.select(event)
        return self.fit_selection()

    def show_in_step(self, event: int) -> None:
        """Select an event and show the step around it: of a step all steps, and where there is none the event."""
        start, duration = int(self.trace.start[event]), int(self.trace.duration[event])
        around = [step for step in self.current_steps() if step.start <= start < step.start + step.duration]
        self.fit_event(event)  # scrolls to its lane
        if any(event == step.event for step in around):
            self.fit_all()
        elif around:
            end = max(around[0].start + around[0].duration, start + duration)
            self.viewport = self.viewport.fit(around[0].start, end)

    def fit_all(self) -> str:
        """Show the whole trace. Returns why nothing changes, else ""."""
        return self._show(self.viewport.fit_limits(), WHOLE_TRACE)

    def jump(self, move: Callable[[], str | None]) -> str:
        """Run a move, and remember the view before it where it changed the viewport or scrolled by half a screen.

        Returns the move's message.
        """
        before = View(self.viewport, self.folding.fold, self.selected, self.lane, self.lane_view.top)
        message = move() or ""
        is_far = abs(self.lane_view.top - before.top) >= max(self.lane_view.height // 2, 1)
        if self.viewport != before.viewport or is_far:
            self._history.append(before)
        return message

    def go_back(self) -> str:
        """Return to the view before the last jump, with its selection. Returns why there is none, else ""."""
        if not self._history:
            return "no previous view: there was no jump yet"
        view = self._history.pop()
        self.select(view.selected)  # shows its lane, which may be hidden by now
        self.folding.fold = view.fold
        width = self.viewport.width
        self.viewport = view.viewport if view.viewport.width == width else view.viewport.resize(width)
        self.lane, self.lane_view.top = view.lane, view.top
        self.lane_view.scroll(0)
        self._extend_mark()
        return ""

    # -- selection -----------------------------------------------------------------------------------------

    def select(self, event: int) -> None:
        """Select an event (-1 for none) and reveal it, with as little panning and scrolling as possible."""
        self.selected = event
        if event < 0:
            return
        self.lane = int(self.trace.lane[event])
        self.lane_view.reveal_lane(self.lane)
        start, end = extent(self.trace, event)
        view = self.viewport = self.folding.show_range(self.viewport, start, end)
        overlaps = start < view.t1 and end > view.t0
        if not overlaps or (view.measure(start, end) < view.span and not (view.t0 <= start and end <= view.t1)):
            self.viewport = view.reveal(start, end)
        self.scroll_into_view()
        self._extend_mark()

    def go_to(self, text: str) -> str:
        """Go to a time (`12ms`), select a step (`#3`, `step 3`) or open a rank (`rank 1`). Returns why not, else ""."""
        if not text.strip():
            return ""
        try:
            kind, value = parse_goto_target(text)
        except ValueError as error:
            return str(error)
        if kind == "step":
            steps = self.current_steps()
            if (event := next((step.event for step in steps if step.number == value), None)) is not None:
                self.select(event)
                return ""
            known = ", ".join(f"#{step.number}" for step in steps[:8])
            return f"no step #{value}" + (f"; there are {known}" if known else ": this trace has none")
        if kind == "rank":
            return self._open_rank_of_number(value)
        low, high = self.viewport.limits
        self.pan_to(value)
        self.pointer_time = min(max(value, low), high)
        return "" if low <= value <= high else "that time is outside the trace"

    def list_places(self) -> list[tuple[str, str]]:
        """List (text, note) of the ranks, and of the steps of the current one, as `go_to` takes them."""
        ranks = [(rank.label, "open it: its lanes, its findings") for rank in self.trace.all_ranks if rank.is_merged]
        steps = [(f"step {step.number}", format_duration(step.duration)) for step in self.current_trace().steps]
        return [*ranks, *steps]

    def _open_rank_of_number(self, number: int) -> str:
        ranks = [rank for rank in self.trace.all_ranks if rank.is_merged]
        if not ranks:
            return f"no rank {number}: this trace is of one process; open the folder with the traces of all ranks"
        for rank in ranks:
            if rank.number == number:
                self.open_rank(rank)
                return ""
        known = ", ".join(str(rank.number) for rank in ranks[:8])
        return f"no rank {number}; there are {known}{', …' if len(ranks) > 8 else ''}"

    def open_rank(self, rank: Rank) -> None:
        """Make a rank the current one, with nothing selected: panels are about it. Show its lanes, unfolded."""
        self.selected, self.lane = -1, rank.header_lane
        if rank.header_lane in self.lane_view.arrangement.hidden:
            self.lane_view.reveal_lane(rank.header_lane)
        if rank.header_lane in self.lane_view.arrangement.folded:
            self.toggle_fold((rank.header_lane,))
        self.scroll_into_view()

    # -- marked range --------------------------------------------------------------------------------------

    def toggle_mark(self) -> str:
        """Start a live range at the selected event, else at the cursor; freeze the range where one is live.

        Returns why it is not frozen, else "".
        """
        if self.mark is None or not self.mark.live:
            anchor = self._cursor_range()
            self.mark = RangeMark(*anchor, anchor, live=True)
        elif self.mark.end - self.mark.start <= 1:
            return "the range is empty: move first (a d, ← →), then m sets its end"
        else:
            self.mark = replace(self.mark, live=False)
        return ""

    def mark_range(self, start: int, end: int) -> None:
        """Mark a range that was dragged with the mouse; a range outside the trace changes nothing."""
        self.mark = RangeMark.from_range(start, end, self.viewport.limits) or self.mark

    def clear_last(self) -> str:
        """Clear the mark, else the search, else the selection. Returns a message that names what was cleared."""
        if self.mark is not None:
            self.mark = None
            return "mark cleared"
        if self.search.matches is not None:
            self.search.set_query("")
            return "search cleared"
        if self.selected >= 0:
            self.selected = -1
            return "selection cleared"
        return NOTHING_TO_CLEAR

    def active_range(self) -> tuple[int, int, str]:
        """Return (start, end, label) of the marked range, else of the selected event, else of what is on screen."""
        if self.mark is not None:
            return self.mark.start, self.mark.end, "the marked range"
        if self.selected >= 0:
            return *extent(self.trace, self.selected), self.trace.event(self.selected).name
        first, end = self.trace.span  # the screen shows a margin on both sides of the trace
        start, end = max(self.viewport.t0, first), min(self.viewport.t1, end)
        if start >= end:  # a mark of the profiler's own, outside of the trace
            start, end = self.viewport.t0, self.viewport.t1
        return start, end, "the time on screen"

    # -- ranks and lanes -----------------------------------------------------------------------------------

    def current_rank(self) -> Rank:
        """Return the rank of the current lane, else the first one.

        Panels and tables about a whole process use this rank.
        """
        return self.trace.rank_of_lane(self.lane) if self.lane >= 0 else self.trace.all_ranks[0]

    def current_trace(self) -> Trace:
        return self.current_rank().trace

    def current_steps(self) -> list[Step]:
        """Return the steps of the current rank, or its repetitions, with event numbers of the whole trace."""
        return list_steps(self.current_rank())

    def current_lane(self) -> int:
        """Return the lane that keys act on: the current one, else the first; -1 in an empty trace.

        For a lane inside a folded rank, that is the rank's own lane.
        """
        if self.lane < 0:
            return next(iter(self.lane_view.lane_order()), -1)
        return self.lane_view.displayed_lane(self.lane)

    def toggle_fold(self, lanes: tuple[int, ...]) -> str:
        """Fold or unfold lanes. Returns why nothing happens, else ""."""
        if -1 in lanes:
            return NO_LANES
        self._apply_arrangement(self.lane_view.arrangement.toggle_fold(lanes))
        ranks = [self.trace.rank_of_lane(lane) for lane in lanes if self.trace.lanes[lane].role is Role.RANK]
        if len(ranks) != 1:
            return ""
        pinned = self.lane_view.arrangement.pinned
        if ranks[0].header_lane in self.lane_view.arrangement.folded:
            others = tuple(k for k in pinned if not ranks[0].first_lane <= k < ranks[0].last_lane)
            self._apply_arrangement(replace(self.lane_view.arrangement, pinned=others))
            return ""
        self._apply_arrangement(self.lane_view.pin_streams(ranks[0].first_lane, ranks[0].last_lane))
        added = [self._lane_label(lane) for lane in self.lane_view.arrangement.pinned if lane not in pinned]
        return f"pinned on top: {', '.join(added)}; p unpins" if added else ""

    def fold_all(self, fold: bool) -> str:
        """Fold or unfold all lanes. Returns why nothing happens, else ""."""
        lanes = frozenset(range(len(self.trace.lanes))) if fold else frozenset()
        if lanes == self.lane_view.arrangement.folded:
            return f"all lanes are {'folded' if fold else 'unfolded'} already"
        self._apply_arrangement(replace(self.lane_view.arrangement, folded=lanes))
        return ""

    def toggle_pin(self, lane: int) -> str:
        """Pin or unpin a lane. Returns why nothing happens, else ""."""
        if lane < 0:
            return NO_LANES
        self._apply_arrangement(self.lane_view.arrangement.toggle_pin(lane))
        self.lane = lane  # the lane that the next key acts on, marked
        is_pinned = lane in self.lane_view.arrangement.pinned
        return f"{self._lane_label(lane)}: {'pinned on top, p lets it go' if is_pinned else 'no longer pinned'}"

    def hide_lane(self, lane: int) -> str:
        """Hide a lane and make its neighbour the current one. Returns a message: what was hidden, or why it stays."""
        order = self.lane_view.lane_order()
        if lane not in order or len(order) == 1:
            return "the last lane stays" if lane in order else NO_LANES
        index = order.index(lane)
        if self.selected >= 0 and int(self.trace.lane[self.selected]) == lane:
            self.selected = -1
        self.lane = order[index + 1] if index + 1 < len(order) else order[index - 1]
        self._apply_arrangement(replace(self.lane_view.arrangement, hidden=self.lane_view.arrangement.hidden | {lane}))
        return f"hidden: {self._lane_label(lane)} · :unhide shows it again"

    def _lane_label(self, lane: int) -> str:
        label, rank = self.trace.lanes[lane].label, self.trace.rank_of_lane(lane)
        return label if lane == rank.header_lane else rank.label_prefix(" ") + label

    def unhide_lanes(self) -> str:
        """Show all hidden lanes again. Returns a message with their number."""
        count = len(self.lane_view.arrangement.hidden)
        self._apply_arrangement(replace(self.lane_view.arrangement, hidden=frozenset()))
        return f"{count} hidden lane{'s' if count != 1 else ''} shown again" if count else "no lane is hidden"

    def _apply_arrangement(self, arrangement: LaneArrangement) -> None:
        if self.lane_view.apply_arrangement(arrangement):
            self.scroll_into_view()

    def scroll_into_view(self) -> None:
        """Scroll the lanes so that the selected event, else the current lane, is on screen."""
        if self.selected >= 0:
            self.lane_view.scroll_to_row(int(self.trace.lane[self.selected]), int(self.trace.row[self.selected]))
        elif self.lane >= 0:
            self.lane_view.scroll_to_row(self.lane, 0)

    def _cursor_range(self) -> tuple[int, int]:
        """Return (start, end) of the selected event; without one, 1 ns at the cursor."""
        if self.selected >= 0:
            return extent(self.trace, self.selected)
        cursor = self.cursor_time()
        return cursor, cursor + 1

    def _extend_mark(self) -> None:
        if self.mark is not None:
            self.mark = self.mark.extend_to(*self._cursor_range())


def transfer_state(part: ViewState, whole: ViewState) -> None:
    """Show in `whole` what is shown of `part`, the beginning of its trace."""
    shift = shift_of(part.trace, whole.trace)
    lanes = match_lanes(part.trace, whole.trace)
    if part.lane_view.arrangement != part.own_arrangement:
        before = part.lane_view.arrangement
        after = LaneArrangement(
            folded=frozenset(lanes[k] for k in before.folded) - {-1},
            hidden=frozenset(lanes[k] for k in before.hidden) - {-1},
            pinned=tuple(lanes[k] for k in before.pinned if lanes[k] >= 0),
        )
        whole.lane_view.apply_arrangement(after)
    if part.selected >= 0:
        whole.selected = find_same_event(part.trace, part.selected, whole.trace)
    whole.lane = lanes[part.lane] if part.lane >= 0 else -1
    if part.mark is not None:
        first, last = part.mark.anchor
        anchor = (first + shift, last + shift)
        whole.mark = replace(part.mark, start=part.mark.start + shift, end=part.mark.end + shift, anchor=anchor)
    if part.search.query:
        whole.search.set_query(part.search.query)
        whole.search.is_last_question = part.search.is_last_question
    view = part.viewport
    if not view.is_whole:
        all_of_it = Viewport.whole(whole.trace.span, view.width)
        whole.viewport = replace(all_of_it, t0=view.t0 + shift, t1=view.t1 + shift)
    whole.lane_view.height = part.lane_view.height
    body = part.lane_view.lane_lines.body
    if 0 < part.lane_view.top < len(body):  # the first visible line stays
        line = body[part.lane_view.top]
        index = whole.lane_view.lane_lines.line_index(lanes[line.lane], line.row) if lanes[line.lane] >= 0 else None
        whole.lane_view.top = 0 if index is None else max(index, 0)
        whole.lane_view.scroll(0)
