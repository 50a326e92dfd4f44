"""Where somebody is in a trace: what is on screen, what is selected, marked and found, and what every move does.

No screen in here: moves change this state and cost microseconds; drawing happens once per frame, later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tui.analysis.search import BadPattern, Found, search
from tui.trace import navigate
from tui.trace.ranks import Rank
from tui.trace.ruler import parse_time
from tui.trace.trace import Role, Step, Trace
from tui.trace.viewport import Viewport
from tui.widgets.lane_lines import Arrangement, LaneLines, rank_rows

ZOOM = 0.75
"""One key press shows this share of the time; five of them a quarter."""

PAN_SHARE = 10
"""One key press pans by a tenth of the screen, a capital by half of it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A range, ns. While it is `live` it reaches from where it was begun to wherever the selection or cursor is."""

    start: int
    end: int
    anchor: tuple[int, int]
    live: bool = False


class Walk:
    """The state of the explorer. Methods that cannot do what they are asked return a line that says why, else ""."""

    def __init__(self, trace: Trace, width: int = 80, height: int = 20) -> None:
        self.trace = trace
        self.viewport = Viewport.whole(trace.span, max(width, 1))
        self.height = height
        ranks = trace.ranks.all if trace.ranks is not None else ()
        further = (number for number, lane in enumerate(trace.lanes) if lane.further)
        self.arrangement = Arrangement(folded=frozenset([*(rank.own_lane for rank in ranks), *further]))
        self.lines = LaneLines.build(trace, self.arrangement)
        self.top = 0
        self.selected = -1
        self.lane = -1
        self.pointer: int | None = None
        self.mark: Mark | None = None
        self.query = ""
        self.found: Found | None = None
        self._came_from: dict[int, int] = {}  # parent -> the child from which `parent` was reached
        self._fitted: tuple[int, Viewport] | None = None

    # -- the screen ----------------------------------------------------------------------------------------

    def resize(self, width: int, height: int) -> None:
        """The lanes have another size; what is selected stays in sight."""
        if width < 1 or height < 1:
            return
        if width != self.viewport.width:
            self.viewport = self.viewport.resize(width)
        if height != self.height:
            self.height = height
            self._scroll_to_lane_of_selected()
        self.top = min(self.top, self.lines.last_top(height))

    def settle(self) -> None:
        """The first look at a trace whose lanes do not all fit: the busiest stream is pinned on top.

        Python stacks are dozens of rows deep, and seeing a launch and its kernel at once is the whole point.
        """
        if self.trace.ranks is not None:
            return  # a line each shows what their GPUs did
        shown = {each.lane for each in self.lines.window(0, self.height)}
        streams = [number for number, lane in enumerate(self.trace.lanes) if lane.role is Role.STREAM]
        if streams and not shown.intersection(streams):
            self.pin(max(streams, key=lambda number: len(self.trace.lanes[number])))

    def cursor(self) -> int:
        """The time that zooming with a key holds in its place.

        The middle of what can be seen of the selected event, because it is what one looks at. Where nothing is
        selected, or it is out of sight, the mouse pointer, as long as it is over the lanes; without one, the
        middle of the screen. The ruler shows it as `▼`.
        """
        view = self.viewport
        if self.selected >= 0:
            start, end = self.extent(self.selected)
            if start < view.t1 and end > view.t0:
                return (max(start, view.t0) + min(end, view.t1)) // 2
        if self.pointer is not None and view.t0 <= self.pointer < view.t1:
            return self.pointer
        return (view.t0 + view.t1) // 2

    def zoom(self, steps: int, at: int | None = None) -> None:
        """In (out where negative) by so many key presses, around `at` or the cursor."""
        self.viewport = self.viewport.zoom(self.cursor() if at is None else at, ZOOM**steps)
        self._extend_mark()

    def pan(self, tenths: int) -> None:
        self.pan_cells(tenths * max(1, self.viewport.width // PAN_SHARE))

    def pan_cells(self, cells: int) -> None:
        self.viewport = self.viewport.pan_cells(cells)
        self._extend_mark()

    def pan_to(self, time: int) -> None:
        """This time in the middle."""
        self.viewport = self.viewport.centre(time)
        self._extend_mark()

    def scroll(self, lines: int) -> None:
        self.top = min(max(self.top + lines, 0), self.lines.last_top(self.height))

    def fit(self) -> str:
        """The selected event, and its parent when that is what fills the screen already; or the marked range."""
        event = self.selected
        if event < 0:
            if self.mark is None:
                return "nothing is selected: ← → select an event, 0 shows the whole trace"
            self.viewport = self.viewport.fit(self.mark.start, self.mark.end)
            return ""
        if self._fitted is not None and self._fitted[1] == self.viewport:
            event = int(self.trace.parent[self._fitted[0]])
            if event < 0:
                self.fit_all()
                return ""
        self.viewport = self.viewport.fit(*self.extent(event))
        self._fitted = (event, self.viewport)
        return ""

    def fit_all(self) -> None:
        self.viewport = Viewport.whole(self.trace.span, self.viewport.width)

    # -- the selection -------------------------------------------------------------------------------------

    def extent(self, event: int) -> tuple[int, int]:
        """Start and end of an event, at least 1 ns apart."""
        start = int(self.trace.start[event])
        return start, start + max(int(self.trace.duration[event]), 1)

    def select(self, event: int) -> None:
        """Select (-1: nothing) and bring it into sight, moving the screen no more than that takes."""
        self.selected = event
        if event < 0:
            return
        self.lane = int(self.trace.lane[event])
        if self.lane in self.arrangement.hidden:
            self._rearrange(self.arrangement.show(self.lane))
        rank = self.rank()
        if rank is not None and rank.own_lane in self.arrangement.hidden:
            hidden = self.arrangement.hidden - {rank.own_lane}
            self._rearrange(replace(self.arrangement, hidden=hidden))
        start, end = self.extent(event)
        view = self.viewport
        overlaps = start < view.t1 and end > view.t0
        if not overlaps or (end - start < view.span and not (view.t0 <= start and end <= view.t1)):
            self.viewport = view.reveal(start, end)
        self._scroll_to_lane_of_selected()
        self._extend_mark()

    def beside(self, distance: int) -> str:
        """To the next or previous event of the row."""
        if self.selected < 0:
            return self.select_first()
        event = navigate.in_row(self.trace, self.trace.row_index, self.selected, distance)
        if event < 0:
            return f"the {'last' if distance > 0 else 'first'} event of this row"
        self.select(event)
        return ""

    def up(self) -> str:
        """To the parent; from the outermost event to the lane above."""
        if self.selected < 0:
            return self._to_lane(-1) if self.lane >= 0 else self.select_first()
        parent = int(self.trace.parent[self.selected])
        if parent < 0:
            return self._to_lane(-1)
        self._came_from[parent] = self.selected
        self.select(parent)
        return ""

    def down(self) -> str:
        """To the child that one came from, or the first one on screen; from the innermost to the lane below."""
        if self.selected < 0:
            return self._to_lane(1) if self.lane >= 0 else self.select_first()
        child = self._came_from.get(self.selected, -1)
        if child < 0:
            time = max(int(self.trace.start[self.selected]), self.viewport.t0)
            child = navigate.nearest_child(self.trace, self.selected, time)
        if child < 0:
            return self._to_lane(1)
        self.select(child)
        return ""

    def select_first(self) -> str:
        """The event at the cursor on the first lane that has any."""
        cursor = self.cursor()
        order = self._lane_order()
        here = self.current_lane()
        if here in order and self.trace.lanes[here].role is Role.RANK:
            order = order[order.index(here) :]  # one looks at this rank
        for lane in order:
            event = self._nearest(lane, cursor)
            if event >= 0:
                self.select(event)
                return ""
        return "this trace has no events to select"

    def follow(self, forward: bool) -> str:
        """Along a link: launch ⇢ GPU work, forward ⇢ backward, and back.

        Forward from a call that launched several pieces of GPU work goes to the first, and from there to the
        next; from an op without a backward, to the first GPU work that was launched beneath it.
        """
        if self.selected < 0:
            return "select an event first: ] follows it to the GPU work that it launched, [ goes back"
        event = self._link_forward(self.selected) if forward else self._link_back(self.selected)
        if event < 0:
            return "no link leads on from here" if forward else "no link leads back from here"
        self.select(event)
        return ""

    def step(self, later: bool) -> str:
        """To the next or previous step."""
        steps = self.steps()
        if not steps:
            return "no steps in this trace: the profiled program did not call prof.step()"
        time = int(self.trace.start[self.selected]) if self.selected >= 0 else self.cursor()
        number = navigate.step_beside(self.own_trace(), time, later)
        if number < 0:
            return f"the {'last' if later else 'first'} step"
        self.select(steps[number].event)
        return ""

    def go_to(self, text: str) -> str:
        """`12ms` to a time, `#3` or `step 3` to a step."""
        wanted = text.strip().lower()
        if not wanted:
            return ""
        number = wanted.removeprefix("profiler").removeprefix("step").strip().removeprefix("#")
        if number != wanted and number.isdecimal():
            for step in self.steps():
                if step.number == int(number):
                    self.select(step.event)
                    return ""
            known = ", ".join(f"#{step.number}" for step in self.steps()[:8])
            return f"no step #{int(number)}" + (f"; there are {known}" if known else ": this trace has none")
        try:
            time = parse_time(wanted)
        except ValueError as error:
            return str(error)
        low, high = self.viewport.limits
        self.viewport = self.viewport.centre(time)
        self.pointer = min(max(time, low), high)
        return "" if low <= time <= high else "the trace does not reach that far"

    # -- search --------------------------------------------------------------------------------------------

    def search(self, text: str) -> str:
        """Find names that hold the text, `/…/` as a regular expression; nothing moves. Empty: no search any more."""
        self.query = text
        self.found = None
        if not text:
            return ""
        found = search(self.trace, text)
        if isinstance(found, BadPattern):
            return found.message
        self.found = found
        return ""

    def to_found(self, later: bool) -> str:
        """To the next or previous event found, around the ends."""
        if self.found is None:
            return "nothing was searched for: / searches"
        time = int(self.trace.start[self.selected]) if self.selected >= 0 else self.viewport.t0
        look = self.found.next_place if later else self.found.previous_place
        place = look(time, self.selected)
        if place < 0:
            return f"{self.query!r} is in no name"
        self.select(int(self.found.events[place]))
        return ""

    def found_place(self) -> int:
        """Which of the events found is selected, from 1; 0 for none of them."""
        if self.found is None or self.selected < 0:
            return 0
        return self.found.place_of(int(self.trace.start[self.selected]), self.selected) + 1

    # -- the mark ------------------------------------------------------------------------------------------

    def toggle_mark(self) -> None:
        """Begin a range at the selected event (it is the range, until one moves on) or the cursor; or fix it."""
        if self.mark is not None and self.mark.live:
            self.mark = Mark(self.mark.start, self.mark.end, self.mark.anchor)
            return
        anchor = self._point()
        self.mark = Mark(*anchor, anchor, live=True)

    def mark_range(self, start: int, end: int) -> None:
        """Mark from here to there, as the mouse does."""
        low, high = self.viewport.limits
        start, end = max(start, low), min(max(end, start + 1), high)
        if start < end:
            self.mark = Mark(start, end, (start, end))

    def clear(self) -> str:
        """One thing less: the mark, then the search, then the selection. Says what went."""
        if self.mark is not None:
            self.mark = None
            return "mark cleared"
        if self.found is not None:
            self.search("")
            return "search cleared"
        if self.selected >= 0:
            self.selected = -1
            return "selection cleared"
        return ""

    def subject(self) -> tuple[int, int, str]:
        """The time that a question is about, and what to call it: the marked range, else the selected event, else what
        is on screen."""
        if self.mark is not None:
            return self.mark.start, self.mark.end, "the marked range"
        if self.selected >= 0:
            return *self.extent(self.selected), self.trace.event(self.selected).name
        return self.viewport.t0, self.viewport.t1, "what is on screen"

    # -- the lanes -----------------------------------------------------------------------------------------

    def rank(self) -> Rank | None:
        """Of several ranks the one that one looks at: that of the selected event or the current lane, else the first.

        What is told of a process as a whole is told of this one.
        """
        if self.trace.ranks is None:
            return None
        return self.trace.ranks.of_lane(self.lane) if self.lane >= 0 else self.trace.ranks.all[0]

    def own_trace(self) -> Trace:
        """The trace of the process that one looks at."""
        rank = self.rank()
        return self.trace if rank is None else rank.trace

    def steps(self) -> list[Step]:
        """Its steps, with events numbered as in the whole."""
        rank = self.rank()
        return self.trace.steps if rank is None else rank.steps

    def current_lane(self) -> int:
        """The lane that keys act on: the selected event's, or the first one; -1 in an empty trace.

        In a folded rank that is the rank's own line.
        """
        rank = self.rank()
        if self.lane >= 0 and rank is not None and rank.own_lane in self.arrangement.folded:
            return self.lane if self.lane in self.arrangement.pinned else rank.own_lane
        if self.lane >= 0:
            return self.lane
        return next(iter(self._lane_order()), -1)

    def fold(self, lanes: tuple[int, ...]) -> None:
        self._rearrange(self.arrangement.fold(lanes))

    def fold_all(self, fold: bool) -> None:
        lanes = frozenset(range(len(self.trace.lanes))) if fold else frozenset()
        self._rearrange(replace(self.arrangement, folded=lanes))

    def pin(self, lane: int) -> None:
        self._rearrange(self.arrangement.pin(lane))

    def hide(self, lane: int) -> str:
        order = self._lane_order()
        if lane not in order or len(order) == 1:
            return "the last lane stays"
        place = order.index(lane)
        if self.selected >= 0 and int(self.trace.lane[self.selected]) == lane:
            self.selected = -1
        self.lane = order[place + 1] if place + 1 < len(order) else order[place - 1]
        self._rearrange(self.arrangement.hide(lane))
        return ""

    def show_all(self) -> str:
        """Bring hidden lanes back. Says how many."""
        count = len(self.arrangement.hidden)
        self._rearrange(self.arrangement.show_all())
        return f"{count} hidden lane{'s' if count != 1 else ''} shown again" if count else "no lane is hidden"

    # -- inside --------------------------------------------------------------------------------------------

    def _rearrange(self, arrangement: Arrangement) -> None:
        if arrangement != self.arrangement:
            self.arrangement = arrangement
            self.lines = LaneLines.build(self.trace, arrangement)
            self.top = min(self.top, self.lines.last_top(self.height))
            self._scroll_to_lane_of_selected()

    def _scroll_to_lane_of_selected(self) -> None:
        if self.selected >= 0:
            place = self.lines.place(int(self.trace.lane[self.selected]), int(self.trace.row[self.selected]))
        else:
            place = self.lines.place(self.lane, 0) if self.lane >= 0 else None
        if place is not None:
            self.top = self.lines.reveal(place, self.top, self.height)

    def _lane_order(self) -> list[int]:
        """Lanes as they stand on the screen, top to bottom."""
        return self.lines.lanes()

    def _to_lane(self, direction: int) -> str:
        order = self._lane_order()
        here = self.current_lane() if self.lane >= 0 else -1
        place = order.index(here) + direction if here in order else 0
        if not 0 <= place < len(order):
            return f"the {'first' if direction < 0 else 'last'} lane"
        lane = order[place]
        event = self._nearest(lane, self.cursor())
        if direction < 0 and event >= 0 and lane not in self.arrangement.folded:
            event = self._innermost(event, self.cursor())
        self.lane = lane
        self.select(event)
        self._scroll_to_lane_of_selected()
        return ""

    def _nearest(self, lane: int, time: int) -> int:
        """The outermost event of a lane at a time, or nearest to it; of a folded rank that of the fullest lane that its
        line shows. -1 without any; a rank that is open is passed through."""
        ranks = self.trace.ranks
        if ranks is None or self.trace.lanes[lane].role is not Role.RANK:
            return navigate.nearest_on_lane(self.trace, lane, time)
        if lane not in self.arrangement.folded:
            return -1
        shown = set(rank_rows(self.trace, lane))
        rank = ranks.of_lane(lane)
        lanes = [k for k in range(rank.first_lane, rank.last_lane) if self.trace.lanes[k].row_base in shown]
        if not lanes:
            return -1
        return navigate.nearest_on_lane(self.trace, max(lanes, key=lambda k: len(self.trace.lanes[k])), time)

    def _innermost(self, event: int, time: int) -> int:
        """Down from an event to the innermost one at a time."""
        return navigate.innermost(self.trace, event, time)

    def _link_forward(self, event: int) -> int:
        links = self.trace.links
        work = links.work_of(event)
        if len(work):
            return int(work[0])
        launch = int(links.launch_of[event])
        if launch >= 0:
            work = links.work_of(launch)
            place = int((work == event).argmax()) + 1
            return int(work[place]) if place < len(work) else -1
        backward = links.backward[links.forward == event]
        if len(backward):
            return int(backward[0])
        # Descendants follow their ancestor in the columns, so the first launch beneath is one binary search.
        last = self.trace.lanes[int(self.trace.lane[event])].last
        beyond = event + 1 + int(self.trace.start[event + 1 : last].searchsorted(self.extent(event)[1]))
        launch = int(links.work_first.searchsorted(links.work_first[event], side="right")) - 1
        while event < launch < beyond:
            if self._is_beneath(launch, event):
                return int(links.work_of(launch)[0])
            launch = int(links.work_first.searchsorted(links.work_first[launch + 1], side="right")) - 1
        return -1

    def _is_beneath(self, event: int, ancestor: int) -> bool:
        while event > ancestor:
            event = int(self.trace.parent[event])
        return event == ancestor

    def _link_back(self, event: int) -> int:
        links = self.trace.links
        launch = int(links.launch_of[event])
        if launch >= 0:
            return launch
        forward = links.forward[links.backward == event]
        return int(forward[0]) if len(forward) else -1

    def _point(self) -> tuple[int, int]:
        if self.selected >= 0:
            return self.extent(self.selected)
        cursor = self.cursor()
        return cursor, cursor + 1

    def _extend_mark(self) -> None:
        if self.mark is not None and self.mark.live:
            start, end = self._point()
            first, last = self.mark.anchor
            self.mark = Mark(min(first, start), max(last, end), self.mark.anchor, live=True)
