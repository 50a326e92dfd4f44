"""A widget some of whose cells are a picture where the terminal draws pictures; elsewhere they are characters."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from functools import lru_cache, partial

from rich.color import Color
from rich.style import Style
from textual import work
from textual.timer import Timer

from torchprof_tui.answers.pictures.svg import LINE, Canvas
from torchprof_tui.program.terminal_graphics import MARKS, format_cells, render_png
from torchprof_tui.ui.common.event_styles import ColorSupport, Palette, blend
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun
from torchprof_tui.ui.common.terminal_driver import find_graphics

SETTLE_SECONDS = 0.15
"""A picture is drawn when its subject has not changed for so long: characters are there at once."""

GRID_SHARE = 0.25  # of the foreground in lines behind a picture


class PictureWidget(PaintedWidget):
    """Call `request_picture` in `prepare`, and paint `picture_cells` in place of characters where it is not None."""

    _wanted: tuple[object, ...] = ()  # what the picture shows, and where
    _number = -1  # of the picture that is there
    _picture_timer: Timer | None = None

    def request_picture(self, subject: object, columns: int, rows: int, draw: Callable[[Canvas], str]) -> None:
        """Ask for a picture of so many cells. `draw`: draws its SVG, on a thread; again where `subject` has changed."""
        graphics = find_graphics(self.app)
        if graphics is None or graphics.is_paused:
            return
        graphics.widgets.add(self)
        if graphics.can_ask:
            self.call_after_refresh(graphics.ask)
        is_possible = 0 < columns <= len(MARKS) and 0 < rows <= len(MARKS)
        cell = graphics.cell if is_possible and self.palette.color_support is ColorSupport.MANY else None
        wanted = () if cell is None else (subject, columns, rows, cell, self.palette, graphics.restarts)
        if wanted == self._wanted:
            return
        self._wanted = wanted
        self._drop_picture()
        if cell is not None:
            canvas = build_canvas(columns, rows, cell, self.palette)
            make = partial(self._make_picture, wanted, columns, rows, lambda: render_png(draw(canvas)))
            self._picture_timer = self.set_timer(SETTLE_SECONDS, make)

    @work(group="picture")
    async def _make_picture(
        self, wanted: tuple[object, ...], columns: int, rows: int, render: Callable[[], bytes]
    ) -> None:
        try:
            png = await asyncio.to_thread(render)
        except (OSError, subprocess.SubprocessError):
            return  # the characters stay
        graphics = find_graphics(self.app)
        if graphics is not None and wanted == self._wanted and self.is_attached:
            self._number = graphics.send(png, columns, rows)
            self.repaint()

    def _drop_picture(self) -> None:
        """Delete the picture once its cells are characters again."""
        if self._picture_timer is not None:
            self._picture_timer.stop()
        graphics, number, self._number = find_graphics(self.app), self._number, -1
        if graphics is not None and number >= 0:
            self.app.call_after_refresh(graphics.delete, number)

    def on_unmount(self) -> None:
        self._wanted = ()
        self._drop_picture()

    def picture_cells(self, row: int, first: int, last: int, style: Style) -> TextRun | None:
        """Return the cells [first, last) of a row on the background of `style`; None where there is no picture."""
        graphics = find_graphics(self.app) if self._number >= 0 else None
        if graphics is None or graphics.is_paused or self.screen is not self.app.screen:
            return None
        return format_cells(row, first, last), _color_cells(self._number, style)


@lru_cache(maxsize=64)
def _color_cells(number: int, style: Style) -> Style:
    return Style.from_color(Color.from_ansi(number), style.bgcolor)


def build_canvas(columns: int, rows: int, cell: tuple[int, int], palette: Palette) -> Canvas:
    """Build a canvas whose lines of text are as high as the terminal's."""
    theme, size = palette.theme, (columns * cell[0], rows * cell[1])
    grid = blend(theme.foreground, theme.background, GRID_SHARE)
    return Canvas(*size, cell[1] / LINE, theme.foreground, color_of(palette.muted), grid, theme.background)


def color_of(style: Style) -> str:
    """Return the colour of characters as `#rrggbb`."""
    return "#808080" if style.color is None else style.color.get_truecolor().hex
