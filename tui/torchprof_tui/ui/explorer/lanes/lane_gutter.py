"""The labels left of the lanes: headings, what is folded or pinned, and which lane the keys act on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.cells import cell_len
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.messages import LanesFolded, ScrollAsked
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_value
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip
from torchprof_tui.ui.explorer.lanes.screen_lines import MAX_FOLDED_ROWS, LaneLines, LineContent, ScreenLine

FOLDED_GLYPH, UNFOLDED_GLYPH, PINNED_GLYPH, CURRENT_GLYPH, FLAGGED_GLYPH = "▸", "▾", "▴", "▌", "●"
NOTE_SEPARATOR = " · "
WHEEL_LINES = 3
LABEL_PADDING = 5
"""Around a label: the current lane's edge, the fold mark and a space, and the line to the lanes."""


GUTTER_DIVISOR = 5
"""Labels get a fifth of the screen at most, and no more than the longest of them needs."""

MIN_GUTTER_WIDTH, MAX_GUTTER_WIDTH = 15, 32


class Gutter(PaintedWidget):
    """Set `arrange` and `point_at`. Says which lanes were clicked, and by how much the wheel would scroll."""

    DEFAULT_CSS = "Gutter { height: 1fr; width: 20; }"

    def __init__(self, trace: Trace, notes: Mapping[int, str] | None = None, *, id: str | None = None) -> None:  # noqa: A002
        """`notes`: what stands behind a lane's label, where there is room."""
        super().__init__(id=id)
        self._notes = notes or {}
        self._trace = trace
        self._lane_lines = LaneLines()
        self._top = 0
        self._painted_lines: tuple[ScreenLine, ...] = ()  # what the last frame showed
        self._pinned: frozenset[int] = frozenset()
        self._lane_labels = [clean(lane.label) for lane in trace.lanes]
        for counter in trace.counters:
            if len(counter.values):
                self._lane_labels[counter.lane] += f" ≤ {format_value(float(counter.values.max()), counter.unit)}"
        self._current_lane = -1
        self._flagged: frozenset[int] = frozenset()

    def preferred_width(self, screen_width: int) -> int:
        """Cells for the labels at this width of the screen."""
        noted = (len(self._lane_labels[lane]) + 2 + len(note) for lane, note in self._notes.items())
        longest = max((*(cell_len(text) for text in self._lane_labels), *noted), default=0) + LABEL_PADDING
        return min(longest, max(screen_width // GUTTER_DIVISOR, MIN_GUTTER_WIDTH), MAX_GUTTER_WIDTH)

    def show_lines(self, lane_lines: LaneLines, top: int) -> None:
        """The lines that the timeline shows beside this."""
        if lane_lines is not self._lane_lines or top != self._top:
            self._lane_lines, self._top = lane_lines, top
            self._pinned = frozenset(lane_lines.pinned_lanes())
            self.repaint()

    def set_current_lane(self, lane: int) -> None:
        """The lane that keys act on, -1 for none."""
        before, self._current_lane = self._current_lane, lane
        if before != lane:
            self.repaint([y for y, each in enumerate(self._painted_lines) if each.lane in (before, lane)])

    def flag_lanes(self, lanes: Iterable[int]) -> None:
        """Lanes on which a pattern's evidence lies."""
        flagged = frozenset(lanes)
        if flagged != self._flagged:
            self._flagged = flagged
            self.repaint()

    def prepare(self, size: Size) -> None:
        self._painted_lines = tuple(self._lane_lines.visible_lines(self._top, size.height))

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        if y >= len(self._painted_lines):
            return build_strip([(" " * (width - 1), palette.text), ("│", palette.line)], width, palette.text)
        shown = self._painted_lines[y]
        if shown.content is LineContent.RULE:
            return build_strip([("━" * width, palette.line)], width, palette.line)
        if shown.content is LineContent.HEADING:
            text = truncate(clean(self._trace.lanes[shown.lane].group), width - 1) + " "
            return build_strip([(text, palette.heading), ("─" * width, palette.line)], width, palette.line)
        room = width - 2
        current = shown.lane == self._current_lane
        flagged = shown.lane in self._flagged and shown.is_first
        edge: TextRun = (
            (FLAGGED_GLYPH, palette.warning) if flagged else (CURRENT_GLYPH if current else " ", palette.accent)
        )
        label = truncate(self._format_label(y, shown), room)
        note = self._notes.get(shown.lane, "") if shown.content is LineContent.RANK else ""
        while cell_len(label) + cell_len(note) + 1 > room and NOTE_SEPARATOR in note:
            note = note.rpartition(NOTE_SEPARATOR)[0]  # what matters most comes first
        if note and cell_len(label) + cell_len(note) + 1 <= room:
            label = label + " " * (room - cell_len(label) - cell_len(note)) + note
        plain = palette.heading if shown.content is LineContent.RANK else palette.text
        style = palette.active if current and shown.is_first else plain if label else palette.muted
        inner = build_strip([(label, style)], room, style if current and shown.is_first else palette.text)
        return build_strip(
            [edge, *((text, piece or palette.text) for text, piece, _ in inner), ("│", palette.line)],
            width,
            palette.text,
        )

    def _format_label(self, y: int, shown: ScreenLine) -> str:
        lane = self._trace.lanes[shown.lane]
        if shown.content is LineContent.COUNTER:
            return f"  {self._lane_labels[shown.lane]}"
        if shown.content is LineContent.RANK:
            pin = PINNED_GLYPH if shown.lane in self._pinned else ""
            return f"{FOLDED_GLYPH if shown.rank_folded else UNFOLDED_GLYPH}{pin} {self._lane_labels[shown.lane]}"
        # A lane that begins above the screen keeps its label, on its first line that can be seen.
        above = self._painted_lines[y - 1] if y else None
        if not shown.is_first and above is not None and above.lane == shown.lane and above.content is shown.content:
            return ""
        folded = shown.content is LineContent.FOLDED
        mark = FOLDED_GLYPH if folded else UNFOLDED_GLYPH if lane.rows > 1 else " "
        pin = PINNED_GLYPH if shown.lane in self._pinned else ""
        rows = f" +{lane.rows - 1}" if folded and lane.rows > 1 else ""
        if folded and lane.rows > MAX_FOLDED_ROWS:
            rows = f" +{MAX_FOLDED_ROWS - 1} of {lane.rows - 1:,}"
        return f"{mark}{pin} {self._lane_labels[shown.lane]}{rows}"

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if not 0 <= event.y < len(self._painted_lines):
            return
        shown = self._painted_lines[event.y]
        if shown.content is LineContent.HEADING:
            group = self._trace.lanes[shown.lane].group
            self.post_message(LanesFolded(tuple(n for n, each in enumerate(self._trace.lanes) if each.group == group)))
        elif shown.content in (LineContent.ROW, LineContent.FOLDED, LineContent.RANK):
            self.post_message(LanesFolded((shown.lane,)))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.post_message(ScrollAsked(WHEEL_LINES))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.post_message(ScrollAsked(-WHEEL_LINES))
