"""The lanes of one side: its step line, gutter and timeline, what is selected, and how far they are scrolled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.strip import Strip

from torchprof_tui.analysis.compare.event_matches import EventMatches, EventStatus
from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.trace.core.arrays import U8
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Step, Trace
from torchprof_tui.trace.query.navigation import extent
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.event_styles import KIND_COUNT, CellForm
from torchprof_tui.ui.common.name_display import DisplayNames, truncate
from torchprof_tui.ui.common.painted_widget import build_strip
from torchprof_tui.ui.diff.locked_view import LockedView
from torchprof_tui.ui.lanes.bar_painter import StyledCells
from torchprof_tui.ui.lanes.lane_gutter import Gutter
from torchprof_tui.ui.lanes.lane_view_state import find_recorder_lanes
from torchprof_tui.ui.lanes.screen_lines import LaneArrangement, LaneLines
from torchprof_tui.ui.lanes.time_ruler import Ruler
from torchprof_tui.ui.lanes.timeline import Timeline

CHANGED_MARK = "*"
ONE_SIDE_MARKS = ("-", "+")  # of events that are only in A, and only in B

LEGEND = "+ only in B  - only in A  * changed"

_STYLES_PER_EMPHASIS = len(CellForm) * KIND_COUNT


class MarkedTimeline(Timeline):
    """Paint the lanes of side 0 (A) or 1 (B). Each event with a difference has its mark in its first cell."""

    DEFAULT_CSS = "MarkedTimeline { height: 1fr; width: 1fr; }"

    def __init__(self, trace: Trace, side: int, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(trace, DisplayNames(trace.names), id=id)
        self._mark_by_status = np.zeros(len(EventStatus), np.uint32)
        self._mark_by_status[EventStatus.CHANGED] = ord(CHANGED_MARK)
        self._mark_by_status[EventStatus.ONE_SIDE] = ord(ONE_SIDE_MARKS[side])
        self._status: U8 | None = None

    def show_statuses(self, status: U8) -> None:
        """Set what became of each event on the other side: uint8[events] of `EventStatus`."""
        self._status = status
        self.repaint()

    def mark_cells(self, styled: StyledCells) -> None:
        """Write the mark into the first cell of each marked event; a bar's name begins one cell later."""
        if self._status is None:
            return
        event = styled.event
        marks = np.where(event >= 0, self._mark_by_status[self._status[np.maximum(event, 0)]], 0)
        is_first = np.ones(event.shape, np.bool_)
        is_first[:, 1:] = event[:, 1:] != event[:, :-1]
        rows, columns = np.nonzero(is_first & (marks > 0))
        if not len(rows):
            return
        styled.glyph[rows, columns] = marks[rows, columns]
        style = styled.style[rows, columns]  # that of a highlighted event, unless the event has an emphasis already
        styled.style[rows, columns] = np.where(style < _STYLES_PER_EMPHASIS, style + _STYLES_PER_EMPHASIS, style)
        in_bar = styled.in_named_bar[rows, columns]
        rows, columns = rows[in_bar], columns[in_bar]
        styled.in_named_bar[rows, columns] = False
        inside = columns + 1 < event.shape[1]
        rows, columns = rows[inside], columns[inside]
        same = event[rows, columns] == event[rows, columns + 1]
        styled.bar_starts[rows[same], columns[same] + 1] = True


KEYS_MARK = "↑↓"


def keep_end(label: str, cells: int) -> str:
    """Shorten a label from its beginning: its end says which trace it is."""
    if cell_len(label) <= cells:
        return label
    return truncate("…" + label[max(len(label) - cells + 1, 0) :], max(cells, 0))


class StepLine(Ruler):
    """One line: the side's letter and name, and its steps as bands; `has_ruler`: with a line of times below.

    Times are distances from the side's reference, so the ruler of A is that of B as well.
    """

    def __init__(self, letter: str, label: str, has_ruler: bool, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__([], id=id)
        self._letter, self._label, self._has_ruler = letter, clean(label), has_ruler
        self._side_steps: list[Step] = []
        self._reference: int | None = None
        self._has_keys = False

    @property
    def line_count(self) -> int:
        return 2 if self._has_ruler else 1

    def show_side(self, view: Viewport, reference: int, steps: list[Step], gutter_width: int) -> None:
        """Show the steps in a view of distances from `reference`, ns."""
        if reference != self._reference or steps is not self._side_steps:
            self._reference, self._side_steps = reference, steps
            self.show_steps([replace(step, start=step.start - reference) for step in steps])
        self.show_viewport(view, gutter_width, 0, None)

    def mark_keys(self, has_keys: bool) -> None:
        """Mark whether the keys act on this side's lanes."""
        if has_keys != self._has_keys:
            self._has_keys = has_keys
            self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        if y == 1:
            return super().paint(self.size.height - 1, width)
        palette, view, cells = self.palette, self._viewport, self._gutter_width - 1
        mark = f" {KEYS_MARK}" if self._has_keys else ""
        room = cells - cell_len(mark)
        name = truncate(f" {keep_end(self._label, room - 3)}", max(room - 2, 0)) + mark
        runs = [
            (f" {self._letter}", palette.active if self._has_keys else palette.strong),
            (name.ljust(max(cells - 2, 0)), palette.active if self._has_keys else palette.text),
            ("│", palette.line),
        ]
        if view is None or width <= self._gutter_width:
            return build_strip(runs, width, palette.text)
        return build_strip([*runs, *self._format_steps(view)], width, palette.text)


MAX_STREAM_SHARE = 0.5  # share of the lines of a side that streams take: the busiest thread needs the rest


LETTERS = "AB"


class SideLanes(Vertical):
    """Show the lanes of side `number` (0: A, 1: B). `selected`: an event of its trace, -1 for none."""

    DEFAULT_CSS = """
    SideLanes { height: 1fr; width: 100%; }
    SideLanes StepLine { width: 100%; }
    SideLanes Horizontal { height: 1fr; width: 100%; }
    """

    def __init__(self, trace: Trace, label: str, number: int) -> None:
        super().__init__(id=f"side-{LETTERS[number].lower()}")
        self.trace, self.number, self.label = trace, number, label
        self.letter = LETTERS[number]
        self.selected = -1
        self.matches: EventMatches | None = None
        self.step_line = StepLine(self.letter, label, has_ruler=number == 0)
        if any(lane.role is Role.STREAM for lane in trace.lanes):
            self.step_line.duration_of = " on CPU"  # the account counts until the GPU is done
        self.timeline = MarkedTimeline(trace, number)
        self.lane_labels = Gutter(trace)
        self._side: Side | None = None
        self._order = order_lanes(trace)
        self._folded: frozenset[int] = frozenset()
        self._lines = LaneLines()
        self._height = -1
        self._top = 0
        self._was_scrolled = False  # by the user

    def compose(self) -> ComposeResult:
        yield self.step_line
        with Horizontal():
            yield from (self.lane_labels, self.timeline)

    def on_mount(self) -> None:
        self.step_line.styles.height = self.step_line.line_count

    def set_side(self, side: Side) -> None:
        """Set what is compared of the trace: its ops are on the first lines."""
        self._side = side
        self._arrange()

    def set_matches(self, matches: EventMatches) -> None:
        self.matches = matches
        self.timeline.show_statuses(matches.status)

    def toggle_lanes(self, lanes: tuple[int, ...]) -> None:
        """Fold the lanes, or unfold them."""
        self._folded = self._folded ^ frozenset(lanes)
        self._arrange()

    @property
    def line_room(self) -> int:
        return max(self.timeline.size.height, 1)

    def count_lines(self) -> int:
        """Count the lines of all lanes, unfolded, with the rule below those that stay on screen."""
        lanes = [self.trace.lanes[number] for number in self._order]
        return 1 + sum(1 if lane.role is Role.COUNTER else lane.rows for lane in lanes)

    def resize(self) -> None:
        """Arrange the lanes for the size that they got."""
        if self.line_room != self._height:
            self._height = self.line_room
            self._arrange()

    def _arrange(self) -> None:
        self._lines = arrange_lanes(self.trace, self._order, max(self._height, 1), self._folded)
        if not self._was_scrolled and self._side is not None:
            # the outermost ops of the busiest thread, below Python frames around them
            trace, (first, last) = self.trace, self._side.window
            threads = [number for number in self._lines.lanes() if trace.lanes[number].role is Role.THREAD]
            inside = (trace.start >= first) & (trace.start < last) & (trace.kind == Kind.OP)
            rows = trace.row[inside & (trace.lane == threads[0])] if threads else trace.row[:0]
            self._top = max(self._lines.line_index(threads[0], int(rows.min())) or 0, 0) if len(rows) else 0
        self._top = min(self._top, self._lines.max_top(max(self._height, 1)))

    def scroll_lines(self, count: int) -> str:
        """Scroll by lines, down where positive. Returns why nothing moves, else ""."""
        top = min(max(self._top + count, 0), self._lines.max_top(self._height))
        if top == self._top:
            return f"the {'last' if count > 0 else 'first'} lanes of {self.letter}"
        self._top, self._was_scrolled = top, True
        return ""

    def toggle_fold(self) -> str:
        """Fold all lanes of several rows, or unfold them. Returns why nothing changes, else ""."""
        deep = frozenset(number for number in self._order if self.trace.lanes[number].rows > 1)
        if not deep:
            return f"no lane of {self.letter} has more than one row"
        self._folded = frozenset() if self._folded else deep
        self._arrange()
        return ""

    def select(self, event: int) -> None:
        """Select an event, -1 for none, and scroll to its row."""
        self.selected = event
        if event >= 0:
            index = self._lines.line_index(int(self.trace.lane[event]), int(self.trace.row[event]))
            if index is not None:
                self._top = self._lines.top_to_reveal(index, self._top, max(self._height, 1))

    def list_range(self) -> list[tuple[int, int, int]]:
        """Return the time of the selected event as (side, start, end), nothing without a selection."""
        return [(self.number, *extent(self.trace, self.selected))] if self.selected >= 0 else []

    def update_widgets(self, view: LockedView, gutter_width: int, has_keys: bool) -> None:
        """Pass the state to the widgets; each repaints what differs."""
        self.step_line.show_side(view.view, view.references[self.number], self.trace.steps, gutter_width)
        self.step_line.mark_keys(has_keys)
        self.timeline.show_lines(view.viewport(self.number), self._lines, self._top)
        self.timeline.select_event(self.selected)
        self.lane_labels.show_lines(self._lines, self._top)
        lane = int(self.trace.lane[self.selected]) if self.selected >= 0 else -1
        self.lane_labels.set_current_lane(lane)


def order_lanes(trace: Trace) -> list[int]:
    """Order the lanes: streams by busy time, threads by busy time, counters; not empty ones and the profiler's own."""
    busy = np.zeros(len(trace.lanes) + 1, np.int64)
    outermost = np.flatnonzero(trace.parent < 0)
    np.add.at(busy, trace.lane[outermost], np.maximum(trace.duration[outermost], 1))
    rank = {Role.STREAM: 0, Role.THREAD: 1, Role.COUNTER: 3}
    recorder_lanes = find_recorder_lanes(trace)
    lanes = [
        number
        for number, lane in enumerate(trace.lanes)
        if number not in recorder_lanes and lane.role is not Role.RANK and (len(lane) or lane.role is Role.COUNTER)
    ]
    return sorted(lanes, key=lambda number: (rank.get(trace.lanes[number].role, 2), -int(busy[number]), number))


def arrange_lanes(trace: Trace, order: list[int], height: int, folded: frozenset[int]) -> LaneLines:
    """Arrange the lanes for `height` lines: the busiest streams stay, by number, the other lanes scroll below them."""
    room = max(int(height * MAX_STREAM_SHARE) - 1, 1)
    pinned: list[int] = []
    for number in order:
        lane = trace.lanes[number]
        rows = 1 if number in folded else lane.rows
        if lane.role is Role.STREAM and (rows <= room or not pinned) and room > 0:
            pinned.append(number)
            room -= rows
    threads = [number for number in order if trace.lanes[number].role is Role.THREAD]
    others = [number for number in order if number not in pinned]
    body = sorted(others, key=lambda number: number not in threads[:1])  # the busiest thread first; stable
    if not threads:
        body, pinned = order, []
    return LaneLines.build_plain(trace, body, LaneArrangement(folded=folded, pinned=tuple(sorted(pinned))))
