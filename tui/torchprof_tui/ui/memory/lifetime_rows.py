"""The rows of the memory screen: a line of text and a bar of time for each allocation, and the groups below them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from torchprof_tui.analysis.memory.categories import Category
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.event_styles import ColorSupport, Palette
from torchprof_tui.ui.common.name_display import DisplayNames, truncate
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.memory.memory_chart import LETTERS, band_kind
from torchprof_tui.ui.memory.memory_text import format_bytes, format_moment
from torchprof_tui.ui.memory.memory_worker import ShownDevice

SIZE_CELLS, CATEGORY_CELLS, TIME_CELLS = 9, 10, 9
WIDE_GUTTER = 58  # from this width the rows have columns for the begin and the end of the lifetime


def choose_gutter_width(width: int) -> int:
    """Return the cells left of the time axis, for the text of each row; the last one is a line."""
    return min(max(width * 9 // 20, 32), 84)


class LifetimeRows:
    """Build the rows of one device's allocations."""

    def __init__(self, trace: Trace, shown: ShownDevice) -> None:
        self._trace, self._shown = trace, shown
        self._names = DisplayNames(trace.names)

    def format_text(self, lifetime: int, width: int) -> str:
        """Format the text of a row: size, category, op, and where there is room, since and until."""
        device = self._shown.history
        size = format_bytes(int(device.lifetimes.bytes[lifetime])).rjust(SIZE_CELLS)
        category = truncate(Category(int(device.category[lifetime])).label, CATEGORY_CELLS).ljust(CATEGORY_CELLS)
        times = ""
        if width >= WIDE_GUTTER:
            since, until = device.since(lifetime), device.until(lifetime)
            times = (
                f" {format_moment(since, 'before').rjust(TIME_CELLS)} {format_moment(until, 'end').rjust(TIME_CELLS)}"
            )
        available = width - SIZE_CELLS - CATEGORY_CELLS - 2 - len(times)
        op, cells = int(device.op[lifetime]), max(available, 1)
        name = self._names.fit_name(int(self._trace.name[op]), cells) if op >= 0 else truncate("(no op)", cells)
        return f"{size} {category} {name}{' ' * (available - cell_len(name))}{times}"

    def build(
        self, lifetime: int, width: int, selected: bool, view: Viewport, gutter_width: int, palette: Palette
    ) -> list[TextRun]:
        """Build a row: its text, and its lifetime as a bar on the time axis."""
        text = self.format_text(lifetime, gutter_width - 3)
        runs: list[TextRun] = [
            ("▶" if selected else " ", palette.cursor),
            (f"{text} ", palette.active if selected else palette.text),
            ("│", palette.line),
        ]
        first = max(view.cell(int(self._shown.begin[lifetime])), 0)
        last = min(view.cell(int(self._shown.end[lifetime]) - 1), view.width - 1)
        if last < first:
            return runs
        band = int(self._shown.history.category[lifetime])
        is_plain = palette.color_support is ColorSupport.NONE
        bar = (LETTERS[band] if is_plain else "▬") * (last - first + 1)
        if self._shown.begin[lifetime] < view.t0:
            bar = "◀" + bar[1:]
        if self._shown.end[lifetime] > view.t1:
            bar = bar[:-1] + "▶"
        style = palette.strong if selected else palette.text if is_plain else palette.ink(band_kind(band))
        return [*runs, (" " * first, palette.text), (bar, style)]


def build_lifetime_header(gutter_width: int, note: str) -> str:
    """Build the header above the rows of allocations; `note` stands above their bars."""
    width = gutter_width - 3
    times = f" {'since'.rjust(TIME_CELLS)} {'until'.rjust(TIME_CELLS)}" if width >= WIDE_GUTTER else ""
    what = "op".ljust(width - SIZE_CELLS - CATEGORY_CELLS - 2 - len(times))
    return f" {'bytes'.rjust(SIZE_CELLS)} {'category'.ljust(CATEGORY_CELLS)} {what}{times} │{note}"


GROUP_HEADER = ("bytes", "share", "number", "since", "until")
_GROUP_WIDTHS = (9, 6, 8, 9, 9)


def format_cells(cells: Sequence[str], width: int, sizes: Sequence[int] = _GROUP_WIDTHS) -> str:
    """Join the cells of a row or of a header into one line: numbers of some sizes, then a text in what is left."""
    columns = " ".join(cell.rjust(size) for cell, size in zip(cells[:-1], sizes, strict=False))
    return f"{columns}  {truncate(cells[-1], max(width - cell_len(columns) - 2, 1))}"
