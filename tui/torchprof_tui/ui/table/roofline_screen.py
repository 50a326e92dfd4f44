"""Screen of the roofline of a trace: a picture, or the plot in characters, and the kernels with a known rate."""

from __future__ import annotations

from functools import partial

from textual.app import ComposeResult
from textual.geometry import Size

from torchprof_tui.answers.pictures.roofline import draw_roofline
from torchprof_tui.answers.roofline import Roofline, build_roofline
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.child_screen import ChildScreen
from torchprof_tui.ui.common.guarded_screen import ScrollActions
from torchprof_tui.ui.common.painted_widget import Lines, TextPanel, wrap_text
from torchprof_tui.ui.common.picture_widget import PictureWidget
from torchprof_tui.ui.table.roofline_text import format_heading, format_plot, format_roofline, format_table

MIN_ROWS, TABLE_ROWS = 10, 8  # lines of the picture at least, and lines that it leaves to the table


class RooflinePanel(TextPanel, PictureWidget):
    """Show `roofline`; before it is there, or where no rate is known, `said`."""

    WHEEL_LINES = 3
    roofline: Roofline | None = None
    _picture_rows = MIN_ROWS
    said = "building the roofline …"

    def prepare(self, size: Size) -> None:
        if self.roofline is not None:
            self._picture_rows = max(size.height - TABLE_ROWS, MIN_ROWS)
            draw = partial(draw_roofline, self.roofline)
            self.request_picture(id(self.roofline), size.width - 2, self._picture_rows, draw)
        super().prepare(size)

    def content(self, width: int) -> Lines:
        style = self.palette.text
        if self.roofline is None:
            return wrap_text(self.said, width, style)
        cells = [self.picture_cells(row, 0, self.size.width - 2, style) for row in range(self._picture_rows)]
        pictured: Lines = [[run] for run in cells if run is not None]
        plot = pictured or [[(line, style)] for line in format_plot(self.roofline)]
        table = [[(line, style)] for line in format_table(self.roofline, width)]
        return [*wrap_text(format_heading(self.roofline), width, self.palette.muted), *plot, [], *table]

    def text(self) -> str:
        return self.said if self.roofline is None else "\n".join(format_roofline(self.roofline))


class RooflineScreen(ScrollActions, ChildScreen):
    """Nothing is chosen here: dismissed with None."""

    CSS_PATH = "table_screen.tcss"
    BINDINGS = keys.ROOFLINE
    help_topic = "roofline"

    def __init__(self, rank: Rank) -> None:
        super().__init__()
        self.trace = rank.trace
        self._text = RooflinePanel(id="roofline")

    def compose(self) -> ComposeResult:
        yield from (self._text, self._status, self._prompt)

    def on_mount(self) -> None:
        self.follow_theme(keys.ROOFLINE_HINTS)
        self._worker.answer("roofline", partial(build_roofline, self.trace), self._show_roofline)

    def draw_pictures(self) -> dict[str, str]:
        """Draw the roofline for a file."""
        return {} if self._text.roofline is None else {"roofline": draw_roofline(self._text.roofline)}

    def _show_roofline(self, roofline: Roofline) -> None:
        if roofline.cannot_tell:
            self._text.said = f"no roofline: {roofline.cannot_tell}. q: back to the lanes"
        else:
            self._text.roofline = roofline
        self._text.refresh_content()

    def action_copy(self, everything: bool) -> None:
        self.copy_text(self._text.text(), "the roofline, in characters")
