"""The labels left of the lanes: headings, what is folded or pinned, and which lane the keys act on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.cells import cell_len
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.messages import LanesFolded, ScrollAsked
from torchprof_tui.ui.common.name_display import clean, cut
from torchprof_tui.ui.common.number_format import format_value
from torchprof_tui.ui.common.painted_widget import Painted, Run, line
from torchprof_tui.ui.explorer.lanes.screen_lines import FOLDED_ROWS, Content, LaneLines, Line

FOLDED, UNFOLDED, PINNED, CURRENT, FLAGGED = "▸", "▾", "▴", "▌", "●"
BETWEEN_NOTES = " · "
WHEEL_LINES = 3
LABEL_EXTRA = 5
"""Around a label: the current lane's edge, the fold mark and a space, and the line to the lanes."""


GUTTER_SHARE = 5
"""Labels get a fifth of the screen at most, and no more than the longest of them needs."""

GUTTER_LEAST, GUTTER_MOST = 15, 32


class Gutter(Painted):
    """Set `arrange` and `point_at`. Says which lanes were clicked, and by how much the wheel would scroll."""

    DEFAULT_CSS = "Gutter { height: 1fr; width: 20; }"

    def __init__(self, trace: Trace, notes: Mapping[int, str] | None = None, *, id: str | None = None) -> None:  # noqa: A002
        """`notes`: what stands behind a lane's label, where there is room."""
        super().__init__(id=id)
        self._notes = notes or {}
        self._trace = trace
        self._layout = LaneLines()
        self._top = 0
        self._lines: tuple[Line, ...] = ()  # what the last frame showed
        self._pinned: frozenset[int] = frozenset()
        self._texts = [clean(lane.label) for lane in trace.lanes]
        for counter in trace.counters:
            if len(counter.values):
                self._texts[counter.lane] += f" ≤ {format_value(float(counter.values.max()), counter.unit)}"
        self._lane = -1
        self._flagged: frozenset[int] = frozenset()

    def width_wanted(self, screen_width: int) -> int:
        """Cells for the labels at this width of the screen."""
        noted = (len(self._texts[lane]) + 2 + len(note) for lane, note in self._notes.items())
        longest = max((*(cell_len(text) for text in self._texts), *noted), default=0) + LABEL_EXTRA
        return min(longest, max(screen_width // GUTTER_SHARE, GUTTER_LEAST), GUTTER_MOST)

    def show(self, layout: LaneLines, top: int) -> None:
        """The lines that the timeline shows beside this."""
        if layout is not self._layout or top != self._top:
            self._layout, self._top = layout, top
            self._pinned = frozenset(layout.pinned_lanes())
            self.repaint()

    def point_at(self, lane: int) -> None:
        """The lane that keys act on, -1 for none."""
        before, self._lane = self._lane, lane
        if before != lane:
            self.repaint([y for y, each in enumerate(self._lines) if each.lane in (before, lane)])

    def flag(self, lanes: Iterable[int]) -> None:
        """Lanes on which a pattern's evidence lies."""
        flagged = frozenset(lanes)
        if flagged != self._flagged:
            self._flagged = flagged
            self.repaint()

    def prepare(self, size: Size) -> None:
        self._lines = tuple(self._layout.window(self._top, size.height))

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        if y >= len(self._lines):
            return line([(" " * (width - 1), palette.text), ("│", palette.line)], width, palette.text)
        shown = self._lines[y]
        if shown.content is Content.RULE:
            return line([("━" * width, palette.line)], width, palette.line)
        if shown.content is Content.HEADING:
            text = cut(clean(self._trace.lanes[shown.lane].group), width - 1) + " "
            return line([(text, palette.heading), ("─" * width, palette.line)], width, palette.line)
        room = width - 2
        current = shown.lane == self._lane
        flagged = shown.lane in self._flagged and shown.first
        edge: Run = (FLAGGED, palette.warning) if flagged else (CURRENT if current else " ", palette.accent)
        label = cut(self._label(y, shown), room)
        note = self._notes.get(shown.lane, "") if shown.content is Content.RANK else ""
        while cell_len(label) + cell_len(note) + 1 > room and BETWEEN_NOTES in note:
            note = note.rpartition(BETWEEN_NOTES)[0]  # what matters most comes first
        if note and cell_len(label) + cell_len(note) + 1 <= room:
            label = label + " " * (room - cell_len(label) - cell_len(note)) + note
        plain = palette.heading if shown.content is Content.RANK else palette.text
        style = palette.active if current and shown.first else plain if label else palette.muted
        inner = line([(label, style)], room, style if current and shown.first else palette.text)
        return line(
            [edge, *((text, piece or palette.text) for text, piece, _ in inner), ("│", palette.line)],
            width,
            palette.text,
        )

    def _label(self, y: int, shown: Line) -> str:
        lane = self._trace.lanes[shown.lane]
        if shown.content is Content.COUNTER:
            return f"  {self._texts[shown.lane]}"
        if shown.content is Content.RANK:
            pin = PINNED if shown.lane in self._pinned else ""
            return f"{FOLDED if shown.closed else UNFOLDED}{pin} {self._texts[shown.lane]}"
        # A lane that begins above the screen keeps its label, on its first line that can be seen.
        above = self._lines[y - 1] if y else None
        if not shown.first and above is not None and above.lane == shown.lane and above.content is shown.content:
            return ""
        folded = shown.content is Content.FOLDED
        mark = FOLDED if folded else UNFOLDED if lane.rows > 1 else " "
        pin = PINNED if shown.lane in self._pinned else ""
        rows = f" +{lane.rows - 1}" if folded and lane.rows > 1 else ""
        if folded and lane.rows > FOLDED_ROWS:
            rows = f" +{FOLDED_ROWS - 1} of {lane.rows - 1:,}"
        return f"{mark}{pin} {self._texts[shown.lane]}{rows}"

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if not 0 <= event.y < len(self._lines):
            return
        shown = self._lines[event.y]
        if shown.content is Content.HEADING:
            group = self._trace.lanes[shown.lane].group
            self.post_message(LanesFolded(tuple(n for n, each in enumerate(self._trace.lanes) if each.group == group)))
        elif shown.content in (Content.ROW, Content.FOLDED, Content.RANK):
            self.post_message(LanesFolded((shown.lane,)))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.post_message(ScrollAsked(WHEEL_LINES))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.post_message(ScrollAsked(-WHEEL_LINES))
