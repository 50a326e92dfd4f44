"""The title line of the diff screen: both traces, and the legend of the marks on their lanes."""

from __future__ import annotations

from rich.cells import cell_len
from textual.strip import Strip

from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.common.name_display import truncate
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip
from torchprof_tui.ui.diff.marked_timeline import LEGEND


class DiffTitle(PaintedWidget):
    """Show "A name → B name" on the left and the legend on the right, which is never cut."""

    DEFAULT_CSS = "DiffTitle { height: 1; width: 100%; }"

    def __init__(self, label_a: str, label_b: str) -> None:
        super().__init__(id="diff-title")
        self._labels = clean(label_a), clean(label_b)

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        room = width - cell_len(LEGEND) - 4
        names = room - cell_len("A  → B ")
        shorter = min(names // 2, min(map(cell_len, self._labels)))
        cells = [max(min(cell_len(label), names - shorter), shorter) for label in self._labels]
        runs: list[TextRun] = [(" ", palette.text)]
        for letter, label, size, arrow in zip("AB", self._labels, cells, (" → ", ""), strict=True):
            runs += [(f"{letter} ", palette.heading), (_keep_end(label, size), palette.strong), (arrow, palette.muted)]
        used = sum(cell_len(text) for text, _ in runs)
        gap = " " * max(width - used - cell_len(LEGEND) - 1, 1)
        return build_strip([*runs, (gap, palette.text), (LEGEND, palette.muted)], width, palette.text)


def _keep_end(label: str, cells: int) -> str:
    """Shorten a label from its beginning: its end says which trace it is."""
    if cell_len(label) <= cells:
        return label
    return truncate("…" + label[max(len(label) - cells + 1, 0) :], max(cells, 0))
