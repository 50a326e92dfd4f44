"""The time axis above the lanes: round times, the time per cell, the steps, a marked range and the zoom cursor."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.analysis.repetition.repeat_fold import Seam
from torchprof_tui.analysis.repetition.step_list import are_repetitions
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Step
from torchprof_tui.trace.query.viewport import Viewport, compute_ticks
from torchprof_tui.ui.common.name_display import truncate
from torchprof_tui.ui.common.painted_widget import TextRun, build_strip
from torchprof_tui.ui.lanes.mouse_gestures import Drag, TimeWheel
from torchprof_tui.ui.lanes.step_labels import (
    SEAM,
    describe_skipped,
    format_step_label,
    is_numbered_by_profiler,
    list_seam_columns,
    move_label_beside,
    place_seams,
)

CURSOR = "▼"


class Ruler(TimeWheel):
    """Paint a line of times below a line of steps, where the trace has any; a drag marks a range."""

    duration_of = ""  # what the durations of steps are of

    def __init__(self, steps: list[Step], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._steps = steps
        self._has_numbers = is_numbered_by_profiler(steps)
        self._rank_note = ""
        self._seams: Sequence[Seam] = ()
        self._marked_range: tuple[int, int] | None = None
        self._cursor_column = 0

    def show_rank(self, label: str) -> None:
        """Show whose steps they are, "" where there is one rank."""
        note = f" of {label}" if label else ""
        if note != self._rank_note:
            self._rank_note = note
            self.repaint()

    def show_steps(self, steps: list[Step]) -> None:
        """Set the steps, which differ from rank to rank."""
        if steps is not self._steps:
            self._steps = steps
            self._has_numbers = is_numbered_by_profiler(steps)
            self.repaint()

    def show_seams(self, seams: Sequence[Seam]) -> None:
        """Set the seams of the viewport's fold, in its order."""
        if seams != self._seams:
            self._seams = seams
            self.repaint()

    @property
    def preferred_lines(self) -> int:
        return 2 if self._steps else 1

    def show_viewport(
        self, viewport: Viewport, gutter_width: int, cursor: int, marked_range: tuple[int, int] | None
    ) -> None:
        """Set what is shown. `gutter_width` in cells, `cursor` and `marked_range` in ns."""
        column = viewport.cell(cursor)
        if (viewport, gutter_width, marked_range) != (self._viewport, self._gutter_width, self._marked_range):
            self._viewport, self._gutter_width, self._marked_range = viewport, gutter_width, marked_range
            self._cursor_column = column
            self.repaint()
        else:
            self.move_cursor(cursor)

    def move_cursor(self, cursor: int) -> None:
        """Move the zoom cursor to a time, ns, and repaint its line only."""
        if self._viewport is not None and self._viewport.cell(cursor) != self._cursor_column:
            self._cursor_column = self._viewport.cell(cursor)
            self.repaint([self.size.height - 1])

    def prepare(self, size: Size) -> None:
        width = size.width - self._gutter_width
        if self._viewport is not None and width > 0 and self._viewport.width != width:
            self._viewport = self._viewport.resize(width)

    def paint(self, y: int, width: int) -> Strip:
        view, palette = self._viewport, self.palette
        if view is None or width <= self._gutter_width:
            return build_strip([], width, palette.text)
        if y < self.size.height - 1:
            title = f" {'repeats' if are_repetitions(self._steps) else 'steps'}{self._rank_note}"
            label: TextRun = (title.ljust(self._gutter_width - 1), palette.muted)
            bands = self._draw_seams(view, self._format_steps(view))
            return build_strip([label, ("│", palette.line), *bands], width, palette.text)
        scale = f" 1 cell = {format_duration(view.ns_per_cell)}"
        if cell_len(scale) >= self._gutter_width:
            scale = f" {format_duration(view.ns_per_cell)}/cell"
        runs: list[TextRun] = [
            (truncate(scale, self._gutter_width - 1).ljust(self._gutter_width - 1), palette.muted),
            ("├", palette.line),
        ]
        return build_strip([*runs, *self._format_ticks(view)], width, palette.line)

    def _format_steps(self, view: Viewport) -> list[TextRun]:
        """Format each step as a band with its number, what it served and its duration, in two alternating shades."""
        runs: list[TextRun] = []
        column = 0
        for index, step in enumerate(self._steps):
            if view.fold is not None and view.fold.find_seam(step.start, step.start + step.duration) >= 0:
                continue
            first = max(view.cell(step.start), column)
            last = min(view.cell(step.start + max(step.duration, 1) - 1), view.width - 1)
            if last < first or first >= view.width:
                continue
            width = last - first + 1
            text = edge = "▏" if step.start >= view.t0 else " "
            if width >= 3:
                text = f"{edge}{format_step_label(step, width - 1, self.duration_of)}"
            if first > column:
                skipped = describe_skipped(self._steps, index) if self._has_numbers else ""
                note = f"‹{skipped}›" if skipped and len(skipped) + 2 < first - column else ""
                runs.append((note.ljust(first - column), self.palette.muted))
            runs.append((text.ljust(width), self.palette.bands[index % 2]))
            column = last + 1
        return runs

    def _draw_seams(self, view: Viewport, runs: list[TextRun]) -> list[TextRun]:
        """Draw the labels of the seams over runs from the first column on."""
        if view.fold is None:
            return runs
        seams = place_seams(view, self._seams)
        cells: list[TextRun] = []
        for text, style in runs:
            shown = move_label_beside(text, len(cells), seams) if style in self.palette.bands else text
            cells += [(character, style) for character in shown]
        cells = cells[: view.width] + [(" ", self.palette.text)] * (view.width - len(cells))
        for first, text in seams:
            cells[first : first + len(text)] = [(character, self.palette.muted) for character in text]
        return list(cells)

    def _format_ticks(self, view: Viewport) -> list[TextRun]:
        cells: list[TextRun] = [("─", self.palette.line)] * view.width
        for column in list_seam_columns(view):
            cells[column] = (SEAM, self.palette.line)
        if self.size.height == 1:  # no line of steps for the labels of the seams
            cells = self._draw_seams(view, cells)
        for tick in compute_ticks(view):
            label = f"┬ {tick.label} "
            room = cells[max(tick.cell, 0) : tick.cell + len(label)]
            if len(room) == len(label) and all(character == "─" for character, _ in room):
                for column, character in enumerate(label, tick.cell):
                    cells[column] = (character, self.palette.text if character != "┬" else self.palette.line)
            elif 0 <= tick.cell < view.width:
                cells[tick.cell] = ("┬", self.palette.line)
        if self._marked_range is not None:
            self._draw_marked_range(view, cells, self._marked_range)
        if 0 <= self._cursor_column < view.width:
            character = cells[self._cursor_column][0]
            # On a label the cursor only restyles the cell, so that the label stays legible.
            cells[self._cursor_column] = (
                (CURSOR, self.palette.cursor) if character in "─┬ " else (character, self.palette.active)
            )
        return cells

    def _draw_marked_range(self, view: Viewport, cells: list[tuple[str, Style]], marked: tuple[int, int]) -> None:
        first = max(view.cell(marked[0]), 0)
        last = min(view.cell(marked[1] - 1), view.width - 1)
        if last < first:
            return
        width = last - first + 1
        duration = format_duration(marked[1] - marked[0])
        fits = width >= len(duration) + 4
        if fits:
            text = f"├{f' {duration} '.center(width - 2, '─')}┤"
        else:
            text = "├" + "─" * (width - 2) + "┤" if width >= 2 else "│"
        for column, character in enumerate(text, first):
            cells[column] = (character, self.palette.marked)
        if not fits and last + len(duration) + 2 < view.width:  # then it goes after the range
            for column, character in enumerate(f" {duration} ", last + 1):
                cells[column] = (character, self.palette.marked)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        event.stop()
        if event.x >= self._gutter_width:
            self._drag = Drag.begin(event, event.x - self._gutter_width)
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._move_drag(event.x - self._gutter_width)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        event.stop()
        self.release_mouse()
        self._move_drag(event.x - self._gutter_width, done=True)
        self._drag = None

    def wheel_column(self, x: int) -> int:
        return max(x - self._gutter_width, 0)
