"""Widget of the heat map: a row for each rank or group, a cell for each step, and a cursor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from torchprof_fleet.analysis.heat_map import LIMITS, MISSING, Measure
from torchprof_tui.trace.core.arrays import F64, I8, I64
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.event_styles import BAR_INK, PROBLEM_INK, ColorSupport, Palette, blend
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip, scroll_to_cursor

SHADES = "·░▒▓█"  # sign of each level, the usual one first
NO_STEP = " "  # a rank without the step
CELL_WIDTHS = (1, 2, 4, 10)  # cells of a column at each zoom; the widest shows the value

MAX_GUTTER = 34


@dataclass
class CellPicked(Message):
    """A click on a cell; `opened`: it was under the cursor."""

    row: int
    step: int
    opened: bool


@record(slots=False)
class MapContent:
    """What the map shows: `labels`, `notes` of g rows, `values` float64[g, s], their `levels`, numbers of `steps`.

    `chosen`: rows that are marked; `what`: of the gutter's header.
    """

    measure: Measure
    labels: tuple[str, ...]
    notes: tuple[str, ...]
    values: F64
    levels: I8
    steps: I64
    chosen: frozenset[int] = frozenset()
    what: str = "rank"


def format_measure(value: float, measure: Measure) -> str:
    """Format the value of a cell; "–" where it is unknown."""
    if not np.isfinite(value):
        return "–"
    return format_duration(value) if measure is Measure.STEP_TIME else format_share(value)


def format_legend(measure: Measure, step_time: float) -> str:
    """Describe the signs: `· below 5 %  ░ from 5 %  …`."""
    limits = LIMITS[measure]
    if measure is Measure.BUSY:
        parts = [f"{SHADES[0]} {format_share(limits[0])} on"]
        parts += [f"{SHADES[level + 1]} below {format_share(limit)}" for level, limit in enumerate(limits)]
        return "  ".join(parts)
    texts = [
        format_duration(limit * step_time) if measure is Measure.STEP_TIME else format_share(limit) for limit in limits
    ]
    return "  ".join(
        [f"{SHADES[0]} below {texts[0]}", *(f"{SHADES[i + 1]} from {text}" for i, text in enumerate(texts))]
    )


def build_level_styles(palette: Palette) -> tuple[Style, ...]:
    """Build the style of each level; the shade is the sign that counts, the colour helps."""
    if palette.color_support is not ColorSupport.MANY:
        return (palette.muted, palette.text, palette.strong, palette.warning, palette.warning)
    hot, cold = (inks[not palette.theme.dark] for inks in (PROBLEM_INK, BAR_INK))
    background = palette.theme.background
    return (palette.muted, *(Style(color=blend(hot, cold, share), bgcolor=background) for share in (0.1, 0.4, 0.7, 1)))


class FleetMap(PaintedWidget):
    """The map. `cursor_row`, `cursor_step`: indexes. Posts `CellPicked`."""

    DEFAULT_CSS = "FleetMap { height: 1fr; }"
    WHEEL_LINES = 3

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.content: MapContent | None = None
        self.empty_text = ""
        self.zoom = 0
        self.cursor_row = self.cursor_step = 0
        self._top = self._left = 0
        self._styles = build_level_styles(self.palette)

    def show(self, content: MapContent | None, row: int, step: int) -> None:
        self.content, self.cursor_row, self.cursor_step = content, row, step
        self.repaint()

    @property
    def page_steps(self) -> int:
        """Columns that fit."""
        return max((self.size.width - self._gutter_width) // CELL_WIDTHS[self.zoom], 1)

    @property
    def _gutter_width(self) -> int:
        content = self.content
        if content is None:
            return 0
        texts = map("".join, zip(content.labels, content.notes, strict=True))
        longest = max(map(cell_len, texts), default=0)
        return min(max(longest, len(content.what)) + 5, MAX_GUTTER, max(self.size.width // 2, 12))

    def choose_zoom(self) -> None:
        """Zoom in as far as all steps fit."""
        content = self.content
        if content is not None:
            available = self.size.width - self._gutter_width
            fitting = [zoom for zoom, width in enumerate(CELL_WIDTHS) if width * len(content.steps) <= available]
            self.zoom = max(fitting, default=0)

    def prepare(self, size: Size) -> None:
        self._styles = build_level_styles(self.palette)
        content = self.content
        if content is None:
            return
        self._top = scroll_to_cursor(self._top, self.cursor_row, self.page_size, len(content.labels))
        self._left = scroll_to_cursor(self._left, self.cursor_step, self.page_steps, len(content.steps))

    def paint(self, y: int, width: int) -> Strip:
        content = self.content
        if content is None or not len(content.labels):
            text = f"  {truncate(self.empty_text, max(width - 2, 0))}" if y == 1 else ""
            return build_strip([(text, self.palette.text)], width, self.palette.text)
        runs = self._paint_header(content) if y == 0 else self._paint_row(content, self._top + y - 1)
        return build_strip(runs, width, self.palette.text)

    def _paint_header(self, content: MapContent) -> list[TextRun]:
        """Paint the numbers of steps, each above its column where there is room, and ▼ above the cursor's."""
        cell = CELL_WIDTHS[self.zoom]
        shown = range(self._left, min(self._left + self.page_steps, len(content.steps)))
        line = [" "] * (len(shown) * cell)
        free = 0
        for column, step in enumerate(shown):
            number = "all" if content.steps[step] < 0 else str(int(content.steps[step]))
            if column * cell >= free and column * cell + len(number) <= len(line):
                line[column * cell : column * cell + len(number)] = number
                free = column * cell + len(number) + 2
        gutter = self._gutter_width
        title = truncate(f" {clean(content.what)}", gutter - 1)
        runs: list[TextRun] = [(f"{title.ljust(gutter - 1)}│", self.palette.muted)]
        at = (self.cursor_step - self._left) * cell
        text, muted = "".join(line), self.palette.muted
        if 0 <= at < len(line):
            return [*runs, (text[:at], muted), ("▼", self.palette.strong), (text[at + 1 :], muted)]
        return [*runs, (text, muted)]

    def _paint_row(self, content: MapContent, row: int) -> list[TextRun]:
        palette = self.palette
        if row >= len(content.labels):
            return []
        gutter, is_current = self._gutter_width, row == self.cursor_row
        marks = ("▶" if is_current else " ") + ("*" if row in content.chosen else " ")
        room = gutter - 4
        label, note = clean(content.labels[row]), clean(content.notes[row])
        text = truncate(f"{label} {note}".rstrip(), room).ljust(room)
        runs: list[TextRun] = [(marks, palette.cursor), (f"{text} ", palette.active if is_current else palette.text)]
        runs.append(("│", palette.line))
        cell = CELL_WIDTHS[self.zoom]
        for step in range(self._left, min(self._left + self.page_steps, len(content.steps))):
            level = int(content.levels[row, step])
            style = palette.muted if level == MISSING else self._styles[level]
            text = (NO_STEP if level == MISSING else SHADES[level]) * cell
            if level != MISSING and cell == CELL_WIDTHS[-1]:
                value = format_measure(float(content.values[row, step]), content.measure)
                text = f"{SHADES[level]} {value.rjust(cell - 3)} "
            is_cursor = is_current and step == self.cursor_step
            runs.append((text, style + Style(reverse=True) if is_cursor else style))
        return runs

    def on_click(self, event: events.Click) -> None:
        event.stop()
        content, gutter = self.content, self._gutter_width
        if content is None or event.y == 0:
            return
        row = self._top + event.y - 1
        step = self._left + (event.x - gutter) // CELL_WIDTHS[self.zoom] if event.x >= gutter else self.cursor_step
        if row < len(content.labels) and step < len(content.steps):
            self.post_message(CellPicked(row, step, (row, step) == (self.cursor_row, self.cursor_step)))

    def scroll_lines(self, count: int) -> None:
        if self.content is not None and self.content.labels:
            row = min(max(self.cursor_row + count, 0), len(self.content.labels) - 1)
            self.post_message(CellPicked(row, self.cursor_step, False))
