"""A widget that paints its own lines, with prebuilt styles, few segments, and only the lines that changed.

Textual sends the whole of a dirty region, so this module decides the cost of a frame: `repaint` names the lines that
changed, and the strips of all others are cached. Borders, padding and text selection are not supported, because they
would send every line through textual's style cache.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App
from textual.color import Color, ColorParseError
from textual.filter import ANSIToTruecolor
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from torchprof_tui.ui.common.event_styles import ColorSupport, Palette, ThemeColors, build_palette

TextRun = tuple[str, Style]
DEFAULT_PALETTE = build_palette(ThemeColors(), ColorSupport.MANY)
"""Used until the screen has set a palette for its theme and the terminal's colours."""


class PaintedWidget(Widget):
    """A widget of painted lines.

    Subclasses implement `paint`, call `repaint` when their data changes, and may override `prepare`.
    """

    ALLOW_SELECT: ClassVar[bool] = False
    WHEEL_LINES: ClassVar[int] = 0
    """Lines by which a notch of the wheel scrolls; 0: the wheel is for the widget around this one."""

    DEFAULT_CSS = "PaintedWidget { height: 1; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 (Textual's own name)
        super().__init__(id=id, classes=classes)
        self._palette = DEFAULT_PALETTE
        self._strip_cache: dict[int, Strip] = {}
        self._needs_prepare = True

    @property
    def palette(self) -> Palette:
        return self._palette

    @palette.setter
    def palette(self, palette: Palette) -> None:
        self._palette = palette
        self.repaint()

    def prepare(self, size: Size) -> None:
        """Do the work that all lines share, once before the first line of a frame after a full `repaint`."""

    def paint(self, y: int, width: int) -> Strip:
        """Paint one line, exactly `width` cells wide."""
        raise NotImplementedError

    def scroll_lines(self, count: int) -> object:
        """Scroll down by `count` lines, up where negative: the wheel calls it in steps of WHEEL_LINES."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._turn_wheel(event, self.WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._turn_wheel(event, -self.WHEEL_LINES)

    def _turn_wheel(self, event: events.MouseEvent, count: int) -> None:
        if count:
            event.stop()
            self.scroll_lines(count)

    def paint_lines(self, ys: Sequence[int], size: Size) -> list[Strip]:
        """Paint the lines of a frame that are not in the cache."""
        return [self.paint(y, size.width) for y in ys]

    def repaint(self, lines: Sequence[int] | None = None) -> None:
        """Repaint everything, or only these lines (lines outside the widget are ignored)."""
        if lines is None:
            self._strip_cache.clear()
            self._needs_prepare = True
            self.refresh()
            return
        height, width = self.size.height, self.size.width
        changed = [line for line in lines if 0 <= line < height]
        for line in changed:
            self._strip_cache.pop(line, None)
        if changed:
            self.refresh(*(Region(0, line, width, 1) for line in changed))

    def render_lines(self, crop: Region) -> list[Strip]:
        self._paint_missing(range(crop.y, crop.bottom))
        strips = [self._strip_cache[y] for y in range(crop.y, crop.bottom)]
        if crop.x == 0 and crop.width == self.size.width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        self._paint_missing((y,))
        return self._strip_cache[y]

    def notify_style_update(self) -> None:
        self._strip_cache.clear()
        self._needs_prepare = True
        super().notify_style_update()

    def on_resize(self) -> None:
        self._strip_cache.clear()
        self._needs_prepare = True

    def _paint_missing(self, ys: Iterable[int]) -> None:
        """Paint the lines that are not in the cache."""
        if self._needs_prepare:
            self._strip_cache.clear()
            self._needs_prepare = False
            self.prepare(self.size)
        missing = [y for y in ys if y not in self._strip_cache]
        if not missing:
            return
        # Palettes contain true colours, or the terminal's own sixteen, which must not be converted.
        filters = [
            line_filter for line_filter in self.get_line_filters() if not isinstance(line_filter, ANSIToTruecolor)
        ]
        for y, strip in zip(missing, self.paint_lines(missing, self.size), strict=True):
            for line_filter in filters:
                strip = strip.apply_filter(line_filter, self.background_colors[1])
            self._strip_cache[y] = strip


def build_strip(runs: Sequence[TextRun], width: int, blank: Style) -> Strip:
    """Join styled text into a strip of exactly `width` cells; adjacent runs of one style become one segment."""
    segments: list[Segment] = []
    used = 0
    text, style = "", blank
    for run_text, run_style in (*runs, ("", blank)):
        size, available = cell_len(run_text), width - used
        if size > available:
            run_text, size = set_cell_size(run_text, available), available
        used += size
        if run_text and run_style is not style:
            if text:
                segments.append(Segment(text, style))
            text, style = run_text, run_style
        else:
            text += run_text
    if used < width:
        if style is blank:
            text += " " * (width - used)
        else:
            segments.append(Segment(text, style))
            text, style = " " * (width - used), blank
    if text:
        segments.append(Segment(text, style))
    return Strip(segments, width)


_COLORS = {
    "truecolor": ColorSupport.MANY,
    "256": ColorSupport.MANY,
    "standard": ColorSupport.ANSI,
    "windows": ColorSupport.ANSI,
}


def palette_for(app: App[Any]) -> Palette:
    """Return the palette for the app's theme and the terminal's colours; without colours if NO_COLOR is set."""
    support = ColorSupport.NONE if app.no_color else _COLORS.get(app.console.color_system or "", ColorSupport.NONE)
    dark = app.current_theme.dark
    default = ThemeColors() if dark else ThemeColors(False, "#ffffff", "#1f1f1f", "#005faf")
    variables = app.theme_variables
    return _cached_palette(
        ThemeColors(
            dark,
            _parse_hex(variables.get("background"), default.background),
            _parse_hex(variables.get("foreground"), default.foreground),
            _parse_hex(variables.get("accent"), default.accent),
        ),
        support,
    )


def follow_theme(screen: Screen[Any]) -> None:
    """Set the palette of all painted widgets on a mounted screen, now and whenever the theme changes."""

    # The app keeps the callback: a reference to the screen in it would keep the screen and its trace for good.
    reference = weakref.ref(screen)

    def notify(_: object) -> None:
        followed = reference()
        if followed is not None:
            followed.call_next(_repaint, followed)

    screen.app.theme_changed_signal.subscribe(screen, notify, immediate=True)
    _repaint(screen)


def _repaint(screen: Screen[Any]) -> None:
    palette = palette_for(screen.app)
    for widget in screen.query(PaintedWidget):
        widget.palette = palette


@lru_cache(maxsize=8)
def _cached_palette(theme: ThemeColors, color_support: ColorSupport) -> Palette:
    return build_palette(theme, color_support)


def _parse_hex(value: str | None, default: str) -> str:
    """Parse a theme's colour into `#rrggbb`.

    Returns `default` for colours that the theme leaves to the terminal (`ansi_default`), which cannot be mixed.
    """
    try:
        color = Color.parse(value or "")
    except ColorParseError:
        return default
    return default if color.ansi is not None else color.hex6.lower()
