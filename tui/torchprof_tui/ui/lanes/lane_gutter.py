"""The labels left of the lanes: group headings, fold and pin marks, and the lane that keys act on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_value
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip
from torchprof_tui.ui.lanes.mouse_gestures import WHEEL_LINES, EventPicked, ScrollAsked
from torchprof_tui.ui.lanes.screen_lines import MAX_FOLDED_ROWS, LaneLines, LineContent, ScreenLine


@dataclass
class LanesFolded(Message):
    """A click on a lane's label, or on the heading above several lanes."""

    lanes: tuple[int, ...]


def split_heading(trace: Trace, lane: int, width: int) -> tuple[str, str]:
    """Split the heading above a lane into what the labels have room for, and the rest, which the lanes show."""
    text = truncate(clean(trace.lanes[lane].group), MAX_HEADING_CELLS) + " "
    first = next(iter(chop_cells(text, width))) if cell_len(text) > width > 0 else text
    return first, text[len(first) :]


MAX_HEADING_CELLS = 64

FOLDED_GLYPH, UNFOLDED_GLYPH, PINNED_GLYPH, CURRENT_GLYPH, FLAGGED_GLYPH = "▸", "▾", "▴", "▌", "●"
NOTE_SEPARATOR = " · "
COUNTER_LIMIT = " ≤ "
FOLD_MARK_COLUMNS = 2  # columns at the left edge of a label where a click folds: the edge and the mark

LABEL_PADDING = 5
"""Cells around a label: the edge of the current lane, the fold mark and a space, and the line before the lanes."""

GUTTER_DIVISOR = 5  # labels get at most a fifth of the screen, and no more than the longest of them needs

MIN_GUTTER_WIDTH, MAX_GUTTER_WIDTH = 15, 32


class Gutter(PaintedWidget):
    """Paint the labels of the lines set by `show_lines`.

    Posts `EventPicked` and `LanesFolded` for clicks and `ScrollAsked` for the wheel.
    """

    DEFAULT_CSS = "Gutter { height: 1fr; width: 20; }"
    WHEEL_LINES = WHEEL_LINES

    def __init__(self, trace: Trace, notes: Mapping[int, str] | None = None, *, id: str | None = None) -> None:  # noqa: A002
        """Label the lanes. `notes`: text after a rank's label where it fits, by lane."""
        super().__init__(id=id)
        self._notes = notes or {}
        self._trace = trace
        self._lane_lines = LaneLines()
        self._top = 0
        self._painted_lines: tuple[ScreenLine, ...] = ()  # those of the last frame
        self._pinned: frozenset[int] = frozenset()
        self._lane_labels = [clean(lane.label) for lane in trace.lanes]
        for counter in trace.counters:
            if len(counter.values):
                self._lane_labels[counter.lane] += (
                    f"{COUNTER_LIMIT}{format_value(float(counter.values.max()), counter.unit)}"
                )
        self._counters = {counter.lane: counter for counter in trace.counters if len(counter.values)}
        self._cursor: int | None = None
        self._current_lane = -1
        self._flagged: frozenset[int] = frozenset()
        self._flags_problem = False

    def preferred_width(self, screen_width: int) -> int:
        """Return the cells for the labels at a given screen width."""
        with_notes = (len(self._lane_labels[lane]) + 2 + len(note) for lane, note in self._notes.items())
        longest = max((*(cell_len(text) for text in self._lane_labels), *with_notes), default=0) + LABEL_PADDING
        return min(longest, max(screen_width // GUTTER_DIVISOR, MIN_GUTTER_WIDTH), MAX_GUTTER_WIDTH)

    def show_lines(self, lane_lines: LaneLines, top: int) -> None:
        """Set the lines, scrolled to `top`: the same as the timeline's."""
        if lane_lines is not self._lane_lines or top != self._top:
            self._lane_lines, self._top = lane_lines, top
            self._pinned = frozenset(lane_lines.pinned_lanes())
            self.repaint()

    def set_current_lane(self, lane: int) -> None:
        """Set the lane that keys act on, -1 for none."""
        before, self._current_lane = self._current_lane, lane
        if before != lane:
            self.repaint([y for y, line in enumerate(self._painted_lines) if line.lane in (before, lane)])

    def set_cursor(self, time: int) -> None:
        """Set the time, in ns, at which the labels of counters show the value."""
        before, self._cursor = self._cursor, time
        if before != time:
            is_counter = [line.content is LineContent.COUNTER for line in self._painted_lines]
            self.repaint([y for y, shows_value in enumerate(is_counter) if shows_value])

    def flag_lanes(self, lanes: Iterable[int], is_problem: bool = False) -> None:
        """Set the lanes that hold the evidence of a pattern; the mark is red for a problem that costs enough time."""
        flagged = frozenset(lanes)
        if (flagged, is_problem) != (self._flagged, self._flags_problem):
            self._flagged, self._flags_problem = flagged, is_problem
            self.repaint()

    def prepare(self, size: Size) -> None:
        self._painted_lines = tuple(self._lane_lines.visible_lines(self._top, size.height))

    def _format_edge(self, line: ScreenLine) -> TextRun:
        """Format the first cell of a line: the mark of evidence, or of the current lane."""
        palette = self.palette
        if line.lane in self._flagged and line.is_first:
            return FLAGGED_GLYPH, palette.warning if self._flags_problem else palette.strong
        return CURRENT_GLYPH if line.lane == self._current_lane else " ", palette.cursor

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        if y >= len(self._painted_lines):
            return build_strip([(" " * (width - 1), palette.text), ("│", palette.line)], width, palette.text)
        line = self._painted_lines[y]
        if line.content is LineContent.RULE:
            return build_strip([("━" * width, palette.line)], width, palette.line)
        if line.content is LineContent.HEADING:
            text = split_heading(self._trace, line.lane, width)[0]
            return build_strip([(text, palette.strong), ("─" * width, palette.line)], width, palette.line)
        label_width = width - 2
        current = line.lane == self._current_lane
        edge = self._format_edge(line)
        label = truncate(self._format_label(y, line, label_width), label_width)
        note = self._notes.get(line.lane, "") if line.content is LineContent.RANK else ""
        while cell_len(label) + cell_len(note) + 1 > label_width and NOTE_SEPARATOR in note:
            note = note.rpartition(NOTE_SEPARATOR)[0]  # the most important part comes first
        if note and cell_len(label) + cell_len(note) + 1 <= label_width:
            label = label + " " * (label_width - cell_len(label) - cell_len(note)) + note
        plain = palette.strong if line.content is LineContent.RANK else palette.text
        style = palette.active if current and line.is_first else plain if label else palette.muted
        inner = build_strip([(label, style)], label_width, style if current and line.is_first else palette.text)
        return build_strip(
            [edge, *((text, piece or palette.text) for text, piece, _ in inner), ("│", palette.line)],
            width,
            palette.text,
        )

    def _format_counter(self, lane: int, width: int) -> str:
        """Format the name of a counter with its value at the cursor and, where there is room, its largest value."""
        label, counter = self._lane_labels[lane], self._counters.get(lane)
        if counter is None or self._cursor is None or self._cursor < counter.times[0]:
            return f"  {label}"
        value = counter.values[counter.times.searchsorted(self._cursor, side="right") - 1]
        name, _, largest = label.rpartition(COUNTER_LIMIT)
        text = format_value(float(value), counter.unit)
        full = f"  {name} {text}{COUNTER_LIMIT}{largest}"
        if cell_len(full) <= width:
            return full
        return f"  {truncate(name, max(width - cell_len(text) - 3, 4))} {text}"

    def _format_label(self, y: int, line: ScreenLine, width: int = MAX_GUTTER_WIDTH) -> str:
        lane = self._trace.lanes[line.lane]
        if line.content is LineContent.COUNTER:
            return self._format_counter(line.lane, width)
        if line.content is LineContent.RANK:
            pin = PINNED_GLYPH if line.lane in self._pinned else ""
            return f"{FOLDED_GLYPH if line.rank_folded else UNFOLDED_GLYPH}{pin} {self._lane_labels[line.lane]}"
        # A lane whose first line is scrolled off the screen has its label on its first visible line.
        above = self._painted_lines[y - 1] if y else None
        if not line.is_first and above is not None and above.lane == line.lane and above.content is line.content:
            return ""
        folded = line.content is LineContent.FOLDED
        mark = FOLDED_GLYPH if folded else UNFOLDED_GLYPH if lane.rows > 1 else " "
        pin = PINNED_GLYPH if line.lane in self._pinned else ""
        rows = f" +{lane.rows - 1}" if folded and lane.rows > 1 else ""
        if folded and lane.rows > MAX_FOLDED_ROWS:
            rows = f" +{MAX_FOLDED_ROWS - 1} of {lane.rows - 1:,}"
        return f"{mark}{pin} {self._lane_labels[line.lane]}{rows}"

    def on_click(self, event: events.Click) -> None:
        """Fold by a click on a fold mark, a heading, or twice on a label; a click on a label selects its lane."""
        event.stop()
        if not 0 <= event.y < len(self._painted_lines):
            return
        line = self._painted_lines[event.y]
        if line.content is LineContent.RULE:
            return
        if line.content is LineContent.HEADING:
            group = self._trace.lanes[line.lane].group
            self.post_message(LanesFolded(tuple(n for n, lane in enumerate(self._trace.lanes) if lane.group == group)))
            return
        label = self._format_label(event.y, line)
        can_fold = label.startswith((FOLDED_GLYPH, UNFOLDED_GLYPH))
        if can_fold and (event.x < FOLD_MARK_COLUMNS or event.chain > 1):
            self.post_message(LanesFolded((line.lane,)))
        else:
            self.post_message(EventPicked(-1, line.lane))

    def scroll_lines(self, count: int) -> None:
        self.post_message(ScrollAsked(count))
