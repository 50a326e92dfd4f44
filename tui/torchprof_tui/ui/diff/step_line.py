"""The line of a side's steps, and above A the ruler of the time since the reference of both sides."""

from __future__ import annotations

from dataclasses import replace

from rich.cells import cell_len
from textual.strip import Strip

from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.model.trace import Step
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.name_display import truncate
from torchprof_tui.ui.common.painted_widget import build_strip
from torchprof_tui.ui.lanes.time_ruler import Ruler

KEYS_MARK = "↑↓"


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
        name = (
            truncate(f" {self._shorten_label(cells - 3 - cell_len(mark))}", max(cells - 2 - cell_len(mark), 0)) + mark
        )
        runs = [
            (f" {self._letter}", palette.active if self._has_keys else palette.heading),
            (name.ljust(max(cells - 2, 0)), palette.active if self._has_keys else palette.text),
            ("│", palette.line),
        ]
        if view is None or width <= self._gutter_width:
            return build_strip(runs, width, palette.text)
        return build_strip([*runs, *self._format_steps(view)], width, palette.text)

    def _shorten_label(self, cells: int) -> str:
        """Shorten a label from its beginning: its end says which trace it is."""
        label = self._label
        return label if len(label) <= cells else "…" + label[max(len(label) - cells + 1, 0) :]
