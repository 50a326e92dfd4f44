"""Widgets that paint their own lines, with prebuilt styles, few segments, and only the lines that changed.

Textual sends the whole of a dirty region, so this module decides the cost of a frame: `repaint` names the lines that
changed, and the strips of all others are cached. Borders, padding and text selection are not supported, because they
would send every line through textual's style cache. A text panel scrolls without scrollbars, so that new content needs
no layout.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App
from textual.color import Color, ColorParseError
from textual.filter import ANSIToTruecolor
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.common.cell_text import count_fitting
from torchprof_tui.ui.common.event_styles import ColorSupport, Palette, ThemeColors, build_palette

TextRun = tuple[str, Style]
DEFAULT_PALETTE = build_palette(ThemeColors(), ColorSupport.MANY)
"""Used until the screen has set a palette for its theme and the terminal's colours."""


class LatestMessage(Message):
    """A message that replaces earlier ones of its class that were not handled yet."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, type(self))


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

    @property
    def page_size(self) -> int:
        """Lines by which a page scrolls: of a list the rows that fit below its header."""
        return max(self.size.height - 1, 1)

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
    return build_palette(
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


def _parse_hex(value: str | None, default: str) -> str:
    """Parse a theme's colour into `#rrggbb`.

    Returns `default` for colours that the theme leaves to the terminal (`ansi_default`), which cannot be mixed.
    """
    try:
        color = Color.parse(value or "")
    except ColorParseError:
        return default
    return default if color.ansi is not None else color.hex6.lower()


Lines = list[list[TextRun]]


class TextPanel(PaintedWidget):
    """A panel of text. Subclasses implement `content` and call `refresh_content` when it has changed."""

    DEFAULT_CSS = "TextPanel { height: 1fr; }"
    WHEEL_LINES = 2

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._content: Lines = []
        self._top = 0
        self._lead = " "  # the first cell of each line

    def content(self, width: int) -> Lines:
        """Build all lines, none wider than `width` cells; called at most once per frame."""
        raise NotImplementedError

    def text(self) -> str:
        """Return the content as plain text, for copying: as on screen, at most `COPY_WIDTH` cells wide."""
        width = min(self.size.width - 2, COPY_WIDTH) if self.size.width > 2 else COPY_WIDTH
        return "\n".join("".join(text for text, _ in runs).rstrip() for runs in self.content(width))

    def refresh_content(self, top: bool = True) -> None:
        """Repaint after the content changed; `top`: scroll to its first line."""
        if top:
            self._top = 0
        self.repaint()

    def set_divided(self, divided: bool, has_keys: bool = False) -> None:
        """Draw a line on the left, which divides the panel from the one beside it: heavy where it has the keys."""
        lead = ("┃" if has_keys else "│") if divided else " "
        if lead != self._lead:
            self._lead = lead
            self.repaint()

    def scroll_lines(self, count: int) -> bool:
        """Scroll down by `count` lines (up if negative), within the content. Returns whether it moved."""
        if not self.size.height:
            return False  # it is not laid out yet
        top = min(max(self._top + count, 0), max(0, len(self._content) - self.size.height))
        if top != self._top:
            self._top = top
            self.repaint()
            return True
        return False

    def scroll_page(self, direction: int) -> str:
        """Scroll down (1) or up (-1) by a page. Returns why nothing moves, else ""."""
        is_moved = self.scroll_lines(direction * self.page_size)
        return "" if is_moved else f"the {'end' if direction > 0 else 'start'} of the panel"

    def scroll_to_top(self) -> bool:
        """Scroll to the first line. Returns whether it moved."""
        moved, self._top = self._top > 0, 0
        self.repaint()
        return moved

    @property
    def lines_below(self) -> int:
        """Number of lines below the last one on screen."""
        return max(0, len(self._content) - self._top - self.size.height)

    def prepare(self, size: Size) -> None:
        self._content = self.content(max(size.width - 2, 1))
        if len(self._content) > size.height:
            # `paint` writes the number of lines above and below: keep those cells free of text.
            self._content = self.content(max(size.width - 2 - (1 + len(str(len(self._content)))), 1))
        self._top = min(self._top, max(0, len(self._content) - size.height))

    def paint(self, y: int, width: int) -> Strip:
        index = self._top + y
        runs = self._content[index] if index < len(self._content) else []
        indicator = f" ▴{self._top}" if y == 0 and self._top else ""
        if y == self.size.height - 1 and self.lines_below:
            indicator = f" ▾{self.lines_below}"
        lead = (self._lead, self.palette.cursor if self._lead == "┃" else self.palette.line)
        strip = build_strip([lead, *runs], width - len(indicator), self.palette.text)
        if not indicator:
            return strip
        return build_strip(
            [*((text, style or self.palette.text) for text, style, _ in strip), (indicator, self.palette.muted)],
            width,
            self.palette.text,
        )


class LinesPanel(TextPanel):
    """Texts, one below the other. `lines`: set them, then call `refresh_content`."""

    lines: Sequence[str] = ()

    def content(self, width: int) -> Lines:
        return [runs for line in self.lines for runs in wrap_text(clean(line), width, self.palette.text, "  ")]


COPY_WIDTH = 120  # cells; what is copied from a wider panel is laid out again for mails and tickets


MAX_WRAPPED_CHARACTERS = 20_000  # characters of a text that are laid out. A trace may contain names of several MB


UNITS = ("%", "ns", "µs", "ms", "s", "kB", "MB", "GB", "KiB", "MiB", "GiB")  # no line of wrapped text begins with one


def wrap_text(text: str, width: int, style: Style, indent: str = "") -> Lines:
    """Wrap cleaned text to lines of at most `width` cells, at a space if there is one in the last two thirds."""
    lines: Lines = []
    rest = (
        text if len(text) <= MAX_WRAPPED_CHARACTERS else f"{text[:MAX_WRAPPED_CHARACTERS]}… ({len(text):,} characters)"
    )
    width = max(width, 1)
    while rest:
        line_indent = indent if lines else ""
        available = max(width - cell_len(line_indent), 1)
        if cell_len(rest) <= available:
            lines.append([(line_indent + rest, style)])
            break
        count = max(count_fitting(rest, available), 1)
        space = rest.rfind(" ", count // 3, count + 1)
        if rest[space + 1 : space + 5].partition(" ")[0].rstrip(";:,.)") in UNITS:  # a number keeps its unit
            space = rest.rfind(" ", count // 3, max(space, 0))
        end = space if space > 0 else count
        lines.append([(line_indent + rest[:end], style)])
        rest = rest[end:].lstrip(" ") if space > 0 else rest[end:]
    return lines or [[("", style)]]


def hang_text(label: str, cells: int, text: str, room: int, palette: Palette, style: Style | None = None) -> Lines:
    """Format a label of `cells` cells, and cleaned text beside it that is wrapped to `room` cells."""
    first, *rest = wrap_text(text, room, style or palette.text)
    lines: Lines = [[(label + " " * (cells - cell_len(label)), palette.muted), *first]]
    return lines + [[(" " * cells, palette.text), *runs] for runs in rest]


def join_columns(left: Lines, right: Lines, right_offset: int, blank: Style) -> Lines:
    """Place two blocks of lines side by side, the right one from cell `right_offset` on."""
    lines: Lines = []
    for index in range(max(len(left), len(right))):
        runs = list(left[index]) if index < len(left) else []
        right_runs = right[index] if index < len(right) else []
        if right_runs:
            used = sum(cell_len(text) for text, _ in runs)
            runs.append((" " * max(right_offset - used, 1), blank))
            runs.extend(right_runs)
        lines.append(runs)
    return lines


def scroll_to_cursor(top: int, cursor: int, page: int, count: int) -> int:
    """Return the first of `page` rows on screen, which have the cursor, moved as little as possible."""
    return max(min(max(top, cursor - page + 1), cursor, count - page), 0)


@dataclass
class RowPicked(Message):
    """A click on a row, or the wheel moved the cursor there; `opened`: a click on the row under the cursor."""

    row: int
    opened: bool


@dataclass
class HeaderPicked(Message):
    """A click on the header line, at cell `x`."""

    x: int


class RowList(PaintedWidget):
    """A scrolling list below a header line.

    `build_row(index, width, selected)` returns the runs of one row, `build_header(width)` those of the header. Call
    `set_row_count` when the rows change; move the cursor with `move_to` and `move_by`. `empty_text`: what an empty list
    says instead of rows.
    """

    DEFAULT_CSS = "RowList { height: 1fr; }"
    WHEEL_LINES = 3

    def __init__(
        self,
        build_row: Callable[[int, int, bool], list[TextRun]],
        build_header: Callable[[int], list[TextRun]],
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self._build_row = build_row
        self._build_header = build_header
        self._count = 0
        self._top = 0
        self._empty_lines: Lines = []
        self.cursor = 0
        self.empty_text = ""

    @property
    def count(self) -> int:
        return self._count

    def set_row_count(self, count: int, cursor: int = 0) -> None:
        """Set the number of rows and the cursor after the rows changed."""
        self._count = count
        self.cursor = min(max(cursor, 0), max(count - 1, 0))
        self._scroll_to_cursor()
        self.repaint()

    def move_to(self, row: int) -> None:
        """Move the cursor to a row, or to the nearest one that exists."""
        self.set_row_count(self._count, row)

    def move_by(self, rows: int) -> None:
        self.move_to(self.cursor + rows)

    def _scroll_to_cursor(self) -> None:
        self._top = scroll_to_cursor(self._top, self.cursor, self.page_size, self._count)

    def visible_text(self, width: int = 0) -> str:
        """Return the header and the rows on screen as plain text, for copying; `width` 0: at most COPY_WIDTH cells."""
        width = width or min(self.size.width, COPY_WIDTH)
        rows = range(self._top, min(self._top + self.page_size, self._count))
        lines = [self._build_header(width), *(self._build_row(index, width, False) for index in rows)]
        return "\n".join("".join(text for text, _ in runs).rstrip() for runs in lines)

    def prepare(self, size: Size) -> None:
        self._scroll_to_cursor()
        self._empty_lines = wrap_text(self.empty_text, size.width - 4, self.palette.text) if self.empty_text else []

    def paint(self, y: int, width: int) -> Strip:
        blank = self.palette.text
        if y == 0:
            return build_strip(self._build_header(width), width, self.palette.muted)
        index = self._top + y - 1
        if index >= self._count:
            line = y - 2  # a blank line below the header
            has_text = not self._count and 0 <= line < len(self._empty_lines)
            return build_strip([("  ", blank), *self._empty_lines[line]] if has_text else [], width, blank)
        return build_strip(self._build_row(index, width, index == self.cursor), width, blank)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        index = self._top + event.y - 1
        if event.y == 0:
            self.post_message(HeaderPicked(event.x))
        elif index < self._count:
            was_selected = index == self.cursor
            self.move_to(index)
            self.post_message(RowPicked(index, was_selected))

    def scroll_lines(self, count: int) -> None:
        """Scroll the rows without the cursor, which moves only where it would leave the screen."""
        self._top = min(max(self._top + count, 0), max(0, self._count - self.page_size))
        cursor = min(max(self.cursor, self._top), self._top + self.page_size - 1, max(self._count - 1, 0))
        if cursor != self.cursor:
            self.cursor = cursor
            self.post_message(RowPicked(cursor, False))
        self.repaint()
