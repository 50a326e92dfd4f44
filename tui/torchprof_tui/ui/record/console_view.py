r"""A program's output as a terminal shows it: an emulator, as far as logs and progress bars need one, and its view.

That is `\r`, colours, a cursor that moves among the last lines, erasing and wrapping. All other control sequences are
dropped, so that the result contains only printable text and rich styles.

Optimized for large outputs: a run of plain text is one slice assignment, and about `MAX_LINES` lines are kept.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from rich.cells import get_character_cell_size
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from torchprof_tui.ui.common.name_display import clean

MAX_LINES = 2_000  # lines kept. A program that needs all of its output must log it itself
_SLACK_LINES = 500  # lines beyond MAX_LINES before old ones are discarded, because discarding moves all the others
_MAX_COLUMN = 2_000  # cells: limits the padding of a line when the cursor is moved far to the right
_TAB_WIDTH = 8
_MAX_SEQUENCE_LENGTH = 4_096

_TOKEN = re.compile(
    r"[^\x00-\x1f\x7f]+"
    r"|\r*\n"
    r"|\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x1f\x7f]"
)
_UNFINISHED_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\Z")

PLAIN_STYLE = Style()
_SGR_ATTRIBUTES: dict[int, dict[str, bool]] = {
    1: {"bold": True},
    2: {"dim": True},
    3: {"italic": True},
    4: {"underline": True},
    7: {"reverse": True},
    9: {"strike": True},
    21: {"underline": True},
    22: {"bold": False, "dim": False},
    23: {"italic": False},
    24: {"underline": False},
    27: {"reverse": False},
    29: {"strike": False},
}


class TerminalLine:
    """Cells and their styles. The second cell of a wide character is "", so that the joined cells are the text."""

    __slots__ = ("cells", "is_wrapped", "styles")

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.styles: list[Style] = []
        self.is_wrapped = False  # the text continues on the next line

    @property
    def text(self) -> str:
        return "".join(self.cells).rstrip()

    def runs(self) -> list[tuple[str, Style]]:
        """Split the text into (text, style) runs of one style each."""
        start, runs = 0, []
        for style, group in groupby(self.styles):
            length = sum(1 for _ in group)
            runs.append(("".join(self.cells[start : start + length]), style))
            start += length
        return runs


class TerminalEmulator:
    """The screen of a terminal with its scrollback in `lines`. The cursor moves among the last `height` lines."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self.width, self.height = width, height
        self.lines = [TerminalLine()]
        self.discarded_lines = 0  # number of lines before the first of `lines`
        self._row = self._column = 0
        self._style = PLAIN_STYLE
        self._pending_text = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    @property
    def text(self) -> str:
        """The text of all kept lines, with wrapped lines joined."""
        ends = ("" if line.is_wrapped else "\n" for line in self.lines)
        texts = ("".join(line.cells) if line.is_wrapped else line.text for line in self.lines)
        return "".join(f"{text}{end}" for text, end in zip(texts, ends, strict=True)).rstrip("\n") + "\n"

    def skip_lines(self, lines: int) -> None:
        """Count lines that were printed but not fed; the last line here was the beginning of the first of them."""
        self.discarded_lines += lines
        self._row, self._column, self._style, self._pending_text = len(self.lines) - 1, 0, PLAIN_STYLE, ""
        self._clear_line(self.lines[-1])

    def feed(self, data: bytes) -> None:
        """Process output of the program; it may end within a character or a control sequence."""
        text = self._pending_text + self._decode(data)
        self._pending_text = ""
        unfinished = _UNFINISHED_SEQUENCE.search(text, max(0, len(text) - _MAX_SEQUENCE_LENGTH))
        if unfinished is not None:
            text, self._pending_text = text[: unfinished.start()], text[unfinished.start() :]
        for token in _TOKEN.finditer(text):
            token_text = token[0]
            first = token_text[0]
            if first >= " " and first != "\x7f":
                self._write(token_text)
            elif token_text[-1] == "\n":
                self._new_line()
                self._column = 0
            elif first == "\r":
                self._column = 0
            elif first == "\b":
                self._column = max(self._clamped_column - 1, 0)
            elif first == "\t":
                self._column = min((self._column // _TAB_WIDTH + 1) * _TAB_WIDTH, max(self.width - 1, 0))
            elif token["final"]:
                self._apply_control(token["final"], token["parameters"])
        if (excess := len(self.lines) - MAX_LINES) > _SLACK_LINES:
            del self.lines[:excess]
            self.discarded_lines += excess
            self._row = max(self._row - excess, 0)

    def _new_line(self) -> None:
        self._row += 1
        if self._row == len(self.lines):
            self.lines.append(TerminalLine())

    def _write(self, text: str) -> None:
        cells = list(text) if text.isascii() else _split_cells(clean(text))
        start = 0
        while start < len(cells):
            available = self.width - self._column
            if available < 1 or (available == 1 and start + 1 < len(cells) and not cells[start + 1]):
                self.lines[self._row].is_wrapped = True
                self._new_line()
                self._column, available = 0, max(self.width, 2)
            end = min(start + available, len(cells))
            if end < len(cells) and not cells[end]:
                end -= 1  # do not split a wide character
            self._write_cells(cells[start:end])
            start = end

    def _write_cells(self, cells: list[str]) -> None:
        line, start = self.lines[self._row], self._column
        end = start + len(cells)
        if (missing := start - len(line.cells)) > 0:
            line.cells += " " * missing
            line.styles += [PLAIN_STYLE] * missing
        _blank_split_characters(line.cells, start, end)
        line.cells[start:end] = cells
        line.styles[start:end] = [self._style] * len(cells)
        self._column = end

    def _apply_control(self, final: str, parameters: str) -> None:
        if final == "m":
            self._style = _apply_sgr(self._style, parameters)
            return
        if parameters[:1] in ("?", "<", "=", ">"):
            return  # queries and modes
        numbers = [int(digits[:5]) if digits.isdigit() else 0 for digits in parameters.split(";")]
        count = max(numbers[0], 1)
        top = max(len(self.lines) - self.height, 0)
        if final in "AF":
            self._move_cursor(self._row - count, self._column if final == "A" else 0)
        elif final in "BE":
            self._move_cursor(self._row + count, self._column if final == "B" else 0)
        elif final == "C":
            self._move_cursor(self._row, self._column + count)
        elif final == "D":
            self._move_cursor(self._row, self._clamped_column - count)
        elif final == "G":
            self._move_cursor(self._row, count - 1)
        elif final == "d":
            self._move_cursor(top + count - 1, self._column)
        elif final in "Hf":
            self._move_cursor(top + count - 1, max(numbers[1] if len(numbers) > 1 else 1, 1) - 1)
        elif final == "K":
            self._erase_line(numbers[0])
        elif final == "J":
            self._erase_screen(numbers[0], top)

    @property
    def _clamped_column(self) -> int:
        """The cursor's column: after a full line it stays in the last column until more is written."""
        return min(self._column, max(self.width - 1, 0))

    def _move_cursor(self, row: int, column: int) -> None:
        top = max(len(self.lines) - self.height, 0)
        self._row = min(max(row, top), top + self.height - 1)
        while self._row >= len(self.lines):
            self.lines.append(TerminalLine())
        self._column = min(max(column, 0), max(self.width - 1, 0), _MAX_COLUMN)

    def _erase_line(self, mode: int) -> None:
        """Erase the cursor's line: from the cursor on (0), up to the cursor (1), or all of it (2)."""
        line = self.lines[self._row]
        if mode == 0:
            _blank_split_characters(line.cells, self._column, self._column)
            del line.cells[self._column :], line.styles[self._column :]
            line.is_wrapped = False
        elif mode == 1:
            end = min(self._column + 1, len(line.cells))
            _blank_split_characters(line.cells, 0, end)
            line.cells[:end], line.styles[:end] = [" "] * end, [PLAIN_STYLE] * end
        else:
            self._clear_line(line)

    @staticmethod
    def _clear_line(line: TerminalLine) -> None:
        line.cells.clear()
        line.styles.clear()
        line.is_wrapped = False

    def _erase_screen(self, mode: int, top: int) -> None:
        """Erase the screen, whose first line is `top`, with the modes of `_erase_line`."""
        self._erase_line(mode)
        rows = range(self._row + 1, len(self.lines)) if mode == 0 else range(top, self._row)
        for row in rows if mode < 2 else range(top, len(self.lines)):
            self._clear_line(self.lines[row])


def _blank_split_characters(cells: list[str], start: int, end: int) -> None:
    """Blank wide characters that reach over an edge of start:end, before these cells are replaced or removed."""
    if start < len(cells) and not cells[start] and start > 0:
        cells[start - 1] = cells[start] = " "
    if end < len(cells) and not cells[end] and end > 0:
        cells[end - 1] = cells[end] = " "


def _split_cells(text: str) -> list[str]:
    """Split text into cells: a wide character and "", or one other character each."""
    cells = []
    for character in text:
        cells.append(character)
        if get_character_cell_size(character) == 2:
            cells.append("")
    return cells


@lru_cache(maxsize=1024)
def _apply_sgr(style: Style, parameters: str) -> Style:
    """Apply a Select Graphic Rendition to `style`: ECMA-48, and the colours of xterm."""
    numbers = [int(digits[:5]) if digits.isdigit() else 0 for digits in re.split("[;:]", parameters)]
    index = 0
    while index < len(numbers):
        number = numbers[index]
        index += 1
        if number == 0:
            style = PLAIN_STYLE
        elif number in _SGR_ATTRIBUTES:
            style += Style(**_SGR_ATTRIBUTES[number])  # type: ignore[arg-type]
        elif number in (38, 48):
            color, index = _parse_extended_color(numbers, index)
            if color is not None:
                style += Style(color=color) if number == 38 else Style(bgcolor=color)
        elif 30 <= number <= 37 or 90 <= number <= 97:
            style += Style(color=Color.from_ansi(number - 30 if number < 90 else number - 82))
        elif 40 <= number <= 47 or 100 <= number <= 107:
            style += Style(bgcolor=Color.from_ansi(number - 40 if number < 100 else number - 92))
        elif number == 39:
            style += Style(color="default")
        elif number == 49:
            style += Style(bgcolor="default")
    return style


def _parse_extended_color(numbers: list[int], index: int) -> tuple[Color | None, int]:
    """Parse the colour after 38 or 48. Returns (the colour, the index after its numbers)."""
    mode = numbers[index] if index < len(numbers) else 0
    channels = [min(number, 255) for number in numbers[index + 1 : index + 4]]
    if mode == 5 and channels:
        return Color.from_ansi(channels[0]), index + 2
    if mode == 2 and len(channels) == 3:
        return Color.from_rgb(*channels), index + 4
    return None, len(numbers)


class ConsoleView(ScrollView):
    """A scroll view over a `TerminalEmulator`. Each call of `feed` repaints it once."""

    can_focus = False

    @dataclass
    class Resized(Message):
        """The view was resized; its size in cells, for the program's terminal."""

        columns: int
        lines: int

    def __init__(self, *, id: str) -> None:  # noqa: A002  (textual's own word)
        super().__init__(id=id)
        self.terminal = TerminalEmulator()
        self._auto_scroll = True  # follow the end, until the user scrolls back

    def on_resize(self, event: events.Resize) -> None:
        columns, lines = self.columns, self.size.height
        if columns > 0 and lines > 0:
            self.terminal.width, self.terminal.height = columns, lines
            self.post_message(self.Resized(columns, lines))
            self._scroll_to_end()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._auto_scroll = new_value >= self.max_scroll_y

    def _scroll_to_end(self) -> None:
        if self._auto_scroll:
            # force: before its next layout the widget would take itself for not scrollable.
            self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)

    @property
    def columns(self) -> int:
        """Cells per line; the last column is kept for the scrollbar, so that the lines never change their width."""
        return self.container_size.width - 1

    def feed(self, data: bytes, dropped_lines: int = 0) -> None:
        """Show output of the program; `dropped_lines` lines before it were not kept."""
        auto_scroll, discarded_before = self._auto_scroll, self.terminal.discarded_lines
        if dropped_lines:
            self.terminal.skip_lines(dropped_lines)
        self.terminal.feed(data)
        self.virtual_size = Size(self.columns, len(self.terminal.lines))
        if auto_scroll:
            self._auto_scroll = True  # discarding lines changed the scroll position, but the user did not scroll
            self._scroll_to_end()
        elif discarded := self.terminal.discarded_lines - discarded_before - dropped_lines:
            self.scroll_to(y=self.scroll_y - discarded, animate=False, immediate=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        index = y + self.scroll_offset.y
        width = self.size.width
        if index >= len(self.terminal.lines):
            return Strip.blank(width, self.rich_style)
        segments = [Segment(text, style) for text, style in self.terminal.lines[index].runs()]
        return Strip(segments).adjust_cell_length(width).apply_style(self.rich_style)
