"""Terminal for tests that draws pictures by kitty's protocol, or says so, or says nothing."""

from __future__ import annotations

import base64
import fcntl
import re
import struct
import termios
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyte.graphics import FG_BG_256

from tests.helpers.terminal import TIMEOUT_SECONDS, Terminal
from torchprof_tui.program.terminal_graphics import MARKS, PLACEHOLDER

CELL = (9, 19)  # pixels

NAME_QUERY, CELL_QUERY, END_QUERY = b"\x1b[>q", b"\x1b[16t", b"\x1b[c"

_SEQUENCE = re.compile(rb"\x1b_(?P<picture>[^\x1b]*)\x1b\\|\x1b\[>q|\x1b\[16t|\x1b\[c")
_CELL_STYLE = re.compile(rb"\x1b\[([\d;]*)m" + PLACEHOLDER.encode())
_CUT = re.compile(rb"\x1b(_[^\x1b]*\x1b?|\[(>|1|16)?)?\Z")


@dataclass(frozen=True)
class SentPicture:
    """A picture as the terminal keeps it: cells, and the PNG."""

    columns: int
    rows: int
    png: bytes


class PictureTerminal(Terminal):
    """`pictures`: those that were sent and not deleted, by number. `name`: what XTVERSION says; "": no answers at all.

    `draws`: whether it says that it draws pictures. `queries`: what was asked. `reports_pixels`: whether the size of
    the window in pixels is known without asking.
    """

    def __init__(
        self, *command: Any, name: str, draws: bool = True, reports_pixels: bool = True, **options: Any
    ) -> None:
        self.pictures: dict[int, SentPicture] = {}
        self.queries: list[bytes] = []
        self.was_sent = self.was_deleted = 0
        self._name, self._draws = name, draws
        self._reports_pixels = reports_pixels
        self._rest = b""
        self._keys: dict[str, str] = {}
        self._data = b""
        super().__init__(*command, **options)
        self.resize(self.screen.columns, self.screen.lines)

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the window, in cells, and send SIGWINCH to the program."""
        self.screen.resize(lines, columns)
        pixels = (columns * CELL[0], lines * CELL[1]) if self._reports_pixels else (0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, *pixels))

    def filter(self, data: bytes) -> bytes:
        data = self._rest + data
        cut = _CUT.search(data)
        data, self._rest = (data, b"") if cut is None else (data[: cut.start()], data[cut.start() :])
        # The number of a picture is an entry of the palette; of another colour it would be another number.
        assert b"38;2;" not in b"".join(_CELL_STYLE.findall(data))
        return _SEQUENCE.sub(self._answer, data)

    def _answer(self, found: re.Match[bytes]) -> bytes:
        picture = found["picture"]
        if picture is None:
            self.queries.append(found[0])
            width, height = CELL
            answers = {
                NAME_QUERY: f"\x1bP>|{self._name}\x1b\\",
                CELL_QUERY: f"\x1b[6;{height};{width}t",
                END_QUERY: "\x1b[?62;c",
            }
            if self._name:
                self.send(answers[found[0]])
            return b""
        keys, _, data = picture.removeprefix(b"G").decode().partition(";")
        self._handle(dict(pair.split("=") for pair in keys.split(",")), data)
        return b""

    def _handle(self, keys: dict[str, str], data: str) -> None:
        if keys.get("a") == "q":
            self.queries.append(b"a=q")
            if self._name:
                self.send(f"\x1b_Gi={keys['i']};{'OK' if self._draws else 'ENOTSUPPORTED'}\x1b\\")
        elif keys.get("a") == "d":
            assert keys["d"] == "I", "the data is kept"
            self.was_deleted += self.pictures.pop(int(keys["i"]), None) is not None
        else:
            assert len(data) <= 4096
            self._keys, self._data = (keys, b"") if "a" in keys else (self._keys, self._data)
            self._data += base64.b64decode(data)
            if keys["m"] == "0":
                assert (self._keys["a"], self._keys["U"], self._keys["f"], self._keys["q"]) == ("T", "1", "100", "2")
                size = int(self._keys["c"]), int(self._keys["r"])
                self.pictures[int(self._keys["i"])] = SentPicture(*size, self._data)
                self.was_sent += 1

    def find_cells(self) -> dict[int, dict[tuple[int, int], tuple[int, int]]]:
        """Return, by number of a picture (-1: it was not sent), where on the screen each (row, column) of it is."""
        cells: dict[int, dict[tuple[int, int], tuple[int, int]]] = {}
        for line in range(self.screen.lines):
            for column in range(self.screen.columns):
                character = self.screen.buffer[line][column]
                if character.data.startswith(PLACEHOLDER) and len(character.data) == 3:  # else the rest is on its way
                    row, part = (MARKS.index(mark) for mark in character.data[1:])
                    number = next((sent for sent in self.pictures if FG_BG_256[sent] == character.fg), -1)
                    places = cells.setdefault(number, {})
                    assert (row, part) not in places, "a part of the picture is shown twice"
                    places[row, part] = (line, column)
        return cells

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Read output until the condition holds."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            self._read(0.1)
            if condition():
                return
        shown = {number: len(cells) for number, cells in self.find_cells().items()}
        raise AssertionError(f"it never happened; cells by picture: {shown}\n{self.text}")

    def wait_for_pictures(self, *numbers_of_cells: int) -> None:
        """Wait until the pictures on the screen have these numbers of cells, in any order."""
        self.wait_until(lambda: sorted(map(len, self.find_cells().values())) == sorted(numbers_of_cells))


def read_png(data: bytes) -> npt.NDArray[np.uint8]:
    """Decode a PNG of 8 bits with alpha and without interlace: uint8[height, width, 4]."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, color, *rest = struct.unpack(">IIBBBBB", data[16:29])
    assert (depth, color, rest) == (8, 6, [0, 0, 0])
    at, parts = 8, []
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind == b"IDAT":
            parts.append(data[at + 8 : at + 8 + size])
        at += size + 12
    lines = np.frombuffer(zlib.decompress(b"".join(parts)), np.uint8).reshape(height, 1 + width * 4)
    pixels = np.zeros((height + 1, width + 1, 4), np.uint8)  # with a border above and on the left
    for y, line in enumerate(lines, 1):
        for x, value in enumerate(line[1:].reshape(width, 4), 1):
            left, up, corner = (pixels[place].astype(int) for place in ((y, x - 1), (y - 1, x), (y - 1, x - 1)))
            guess = left + up - corner
            distances = abs(guess - left), abs(guess - up), abs(guess - corner)
            nearest = np.where(
                (distances[0] <= distances[1]) & (distances[0] <= distances[2]),
                left,
                np.where(distances[1] <= distances[2], up, corner),
            )
            pixels[y, x] = (value + (0 * left, left, up, (left + up) // 2, nearest)[line[0]]) & 255
    return pixels[1:, 1:]
