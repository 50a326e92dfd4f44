"""A widget some of whose cells are a picture where the terminal draws pictures; elsewhere they are characters."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from rich.color import Color
from rich.style import Style
from textual import work
from textual.timer import Timer

from torchprof_tui.ui.common.event_styles import ColorSupport, Palette, blend
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun
from torchprof_tui.ui.common.terminal_driver import TerminalDriver, find_graphics

if TYPE_CHECKING:
    from torchprof_tui.answers.pictures.svg import Canvas
    from torchprof_tui.program.terminal_graphics import TerminalGraphics

    Draw = Callable[[Canvas], str]

SETTLE_SECONDS = 0.15
"""A picture is drawn when its subject has not changed for so long: characters are there at once."""

GRID_SHARE = 0.25  # of the foreground in lines behind a picture


class PictureWidget(PaintedWidget):
    """Call `request_picture` in `prepare`, and paint `picture_cells` in place of characters where it is not None."""

    _wanted: tuple[object, ...] = ()  # what the picture shows, and where
    _number = -1  # of the picture that is there
    _picture_timer: Timer | None = None

    def request_picture(self, subject: object, columns: int, rows: int, draw: Draw) -> None:
        """Ask for a picture of so many cells. `draw`: draws its SVG, on a thread; again where `subject` has changed."""
        driver = self.app._driver
        if not isinstance(driver, TerminalDriver):
            return
        graphics = driver.graphics
        if graphics is None or self not in graphics.widgets:
            self.call_after_refresh(driver.ask_for_pictures, self)
        if graphics is None or graphics.is_paused:
            return
        is_possible = graphics.can_hold(columns, rows) and self.palette.color_support is ColorSupport.MANY
        cell = graphics.cell if is_possible else None
        wanted = () if cell is None else (subject, columns, rows, cell, self.palette, graphics.restarts)
        if wanted == self._wanted:
            return
        self._wanted = wanted
        self._drop_picture()
        if cell is not None:
            drawn = partial(_draw, draw, columns, rows, cell, self.palette)
            make = partial(self._make_picture, graphics, wanted, drawn, columns, rows)
            self._picture_timer = self.set_timer(SETTLE_SECONDS, make)

    @work(group="picture")
    async def _make_picture(
        self, graphics: TerminalGraphics, wanted: object, draw: Callable[[], str], columns: int, rows: int
    ) -> None:
        try:
            png = await asyncio.to_thread(lambda: graphics.render(draw()))
        except (OSError, subprocess.SubprocessError):
            return  # the characters stay
        if wanted == self._wanted and self.is_attached:
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
        """Return the cells [first, last) of a row on the background of `style`; None where there is no picture.

        There is none below another screen, which textual tints: the colour of a cell is the number of its picture.
        """
        graphics = find_graphics(self.app) if self._number >= 0 else None
        if graphics is None or graphics.is_paused or self.screen is not self.app.screen:
            return None
        return graphics.format_cells(row, first, last), _color_cells(self._number, style)


@lru_cache(maxsize=64)
def _color_cells(number: int, style: Style) -> Style:
    return Style.from_color(Color.from_ansi(number), style.bgcolor)


def _draw(draw: Draw, columns: int, rows: int, cell: tuple[int, int], palette: Palette) -> str:
    """Draw on a canvas whose lines of text are as high as the terminal's. Its module is imported for the first one."""
    svg = importlib.import_module("torchprof_tui.answers.pictures.svg")
    theme, size = palette.theme, (columns * cell[0], rows * cell[1])
    grid = blend(theme.foreground, theme.background, GRID_SHARE)
    colors = theme.foreground, color_of(palette.muted), grid, theme.background
    return draw(svg.Canvas(*size, cell[1] / svg.LINE, *colors))


def color_of(style: Style) -> str:
    """Return the colour of characters as `#rrggbb`."""
    return "#808080" if style.color is None else style.color.get_truecolor().hex
