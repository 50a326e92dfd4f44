r"""What a terminal would show of a program's output, as far as logs and progress bars need one: `\r`, colours, a cursor
that moves among the last lines, lines erased and wrapped. Everything else that could act on a terminal is dropped, so
that nothing but text and styles of ours comes out.

Written for floods: a run of plain text is one slice assignment, and no more than `LIMIT` lines are kept.
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from itertools import groupby

from rich.cells import get_character_cell_size
from rich.color import Color
from rich.style import Style

from torchprof_tui.ui.common.name_display import clean

MAX_LINES = 2_000
"""Lines kept. The whole output is the program's own business to log."""

_SLACK_LINES = 500  # lines more than LIMIT before they are cut, as cutting moves all the others
_MAX_COLUMN = 2_000  # cells: a cursor that is sent further must not make us fill a line up to it
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
    """Cells and their styles. The second cell of a wide character is empty, so joined they are the text."""

    __slots__ = ("cells", "is_wrapped", "styles")

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.styles: list[Style] = []
        self.is_wrapped = False  # on the next one, as it was too long for one

    @property
    def text(self) -> str:
        return "".join(self.cells).rstrip()

    def runs(self) -> list[tuple[str, Style]]:
        """The text in pieces of one style each."""
        place, found = 0, []
        for style, group in groupby(self.styles):
            length = sum(1 for _ in group)
            found.append(("".join(self.cells[place : place + length]), style))
            place += length
        return found


class TerminalEmulator:
    """Feed it bytes; `lines` are the last of what they show. The cursor walks among the last `height` of them."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self.width, self.height = width, height
        self.lines = [TerminalLine()]
        self.discarded_lines = 0  # lines that were shown before the first of `lines`
        self._row = self._column = 0
        self._style = PLAIN_STYLE
        self._pending_text = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    @property
    def text(self) -> str:
        """All that is kept, with long lines whole again."""
        ends = ("" if line.is_wrapped else "\n" for line in self.lines)
        whole = ("".join(line.cells) if line.is_wrapped else line.text for line in self.lines)
        return "".join(f"{text}{end}" for text, end in zip(whole, ends, strict=True)).rstrip("\n") + "\n"

    def skip_lines(self, lines: int) -> None:
        """So many lines were printed that nobody saw, the last one that is here to its end among them."""
        self.discarded_lines += lines
        self._row, self._column, self._style, self._pending_text = len(self.lines) - 1, 0, PLAIN_STYLE, ""
        self._clear_line(self.lines[-1])

    def feed(self, data: bytes) -> None:
        text = self._pending_text + self._decode(data)
        self._pending_text = ""
        unfinished = _UNFINISHED_SEQUENCE.search(text, max(0, len(text) - _MAX_SEQUENCE_LENGTH))
        if unfinished is not None:
            text, self._pending_text = text[: unfinished.start()], text[unfinished.start() :]
        for token in _TOKEN.finditer(text):
            piece = token[0]
            first = piece[0]
            if first >= " " and first != "\x7f":
                self._write(piece)
            elif piece[-1] == "\n":
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
        if len(self.lines) > MAX_LINES + _SLACK_LINES:
            self._discard_old_lines()

    def _discard_old_lines(self) -> None:
        excess = len(self.lines) - MAX_LINES
        del self.lines[:excess]
        self.discarded_lines += excess
        self._row = max(self._row - excess, 0)

    def _new_line(self) -> None:
        self._row += 1
        if self._row == len(self.lines):
            self.lines.append(TerminalLine())

    def _write(self, text: str) -> None:
        cells = list(text) if text.isascii() else _split_cells(clean(text))
        place = 0
        while place < len(cells):
            room = self.width - self._column
            if room < 1 or (room == 1 and place + 1 < len(cells) and not cells[place + 1]):
                self.lines[self._row].is_wrapped = True
                self._new_line()
                self._column, room = 0, max(self.width, 2)
            end = min(place + room, len(cells))
            if end < len(cells) and not cells[end]:
                end -= 1  # a wide character is not torn
            self._write_cells(cells[place:end])
            place = end

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

    # -- control sequences ---------------------------------------------------------------------------------

    def _apply_control(self, final: str, parameters: str) -> None:
        if final == "m":
            self._style = _apply_sgr(self._style, parameters)
            return
        if parameters[:1] in ("?", "<", "=", ">"):
            return  # questions and modes
        numbers = [int(each[:5]) if each.isdigit() else 0 for each in parameters.split(";")]
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
        """The cursor's column: where a line is full, it stands on the last one until something more is written."""
        return min(self._column, max(self.width - 1, 0))

    def _move_cursor(self, row: int, column: int) -> None:
        top = max(len(self.lines) - self.height, 0)
        self._row = min(max(row, top), top + self.height - 1)
        while self._row >= len(self.lines):
            self.lines.append(TerminalLine())
        self._column = min(max(column, 0), max(self.width - 1, 0), _MAX_COLUMN)

    def _erase_line(self, which: int) -> None:
        line = self.lines[self._row]
        if which == 0:
            _blank_split_characters(line.cells, self._column, self._column)
            del line.cells[self._column :], line.styles[self._column :]
            line.is_wrapped = False
        elif which == 1:
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

    def _erase_screen(self, which: int, top: int) -> None:
        self._erase_line(which)
        rows = range(self._row + 1, len(self.lines)) if which == 0 else range(top, self._row)
        for row in rows if which < 2 else range(top, len(self.lines)):
            self._clear_line(self.lines[row])


def _blank_split_characters(cells: list[str], start: int, end: int) -> None:
    """Cells from start to end are about to go: wide characters that reach over either edge become blanks."""
    if start < len(cells) and not cells[start] and start > 0:
        cells[start - 1] = cells[start] = " "
    if end < len(cells) and not cells[end] and end > 0:
        cells[end - 1] = cells[end] = " "


def _split_cells(text: str) -> list[str]:
    cells = []
    for character in text:
        cells.append(character)
        if get_character_cell_size(character) == 2:
            cells.append("")
    return cells


@lru_cache(maxsize=1024)
def _apply_sgr(style: Style, parameters: str) -> Style:
    """`style` after a Select Graphic Rendition: ECMA-48, and the colours of xterm."""
    numbers = [int(each[:5]) if each.isdigit() else 0 for each in re.split("[;:]", parameters)]
    place = 0
    while place < len(numbers):
        number = numbers[place]
        place += 1
        if number == 0:
            style = PLAIN_STYLE
        elif number in _SGR_ATTRIBUTES:
            style += Style(**_SGR_ATTRIBUTES[number])  # type: ignore[arg-type]
        elif number in (38, 48):
            color, place = _parse_extended_color(numbers, place)
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


def _parse_extended_color(numbers: list[int], place: int) -> tuple[Color | None, int]:
    """The colour after 38 or 48, and where its numbers end."""
    mode = numbers[place] if place < len(numbers) else 0
    rest = [min(number, 255) for number in numbers[place + 1 : place + 4]]
    if mode == 5 and rest:
        return Color.from_ansi(rest[0]), place + 2
    if mode == 2 and len(rest) == 3:
        return Color.from_rgb(*rest), place + 4
    return None, len(numbers)
