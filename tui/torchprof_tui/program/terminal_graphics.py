"""Draw pictures in a terminal with kitty's graphics protocol and its Unicode placeholders: kitty and ghostty.

A picture is sent once. After that, cells of text stand for its parts: U+10EEEE with marks for row and column, in the
colour whose number is that of the picture. So scrolling, screens above it and partial repaints need no code. Konsole
says that it draws pictures, but prints placeholders as text, and WezTerm puts the picture at the cursor: the terminal
is asked for its name first, and whether it draws pictures only where that name is known to draw placeholders.
"""

from __future__ import annotations

import binascii
import contextlib
import fcntl
import importlib.util
import itertools
import os
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO
from weakref import WeakSet

from torchprof_tui.program.config_file import PICTURES_VARIABLE

ASK_NAME, ASK_PICTURES = "\x1b[>q\x1b[16t\x1b[c", "\x1b_Gi=15,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[c"
"""Name (XTVERSION) and size of a cell; whether pictures are drawn. Each ends with DA1, which all terminals answer."""

_REPLY = re.compile(r"\x1bP>\|([^\x1b]*)\x1b\\|\x1b_G([^\x1b]*)\x1b\\|\x1b\[6;(\d{1,4});(\d{1,4})t|(\x1b\[\?[\d;]*c)")
_REPLY_PART = re.compile(r"\x1b(P(>(\|[^\x1b]*\x1b?)?)?|_(G[^\x1b]*\x1b?)?|\[(\?[\d;]*|6(;[\d;]*)?)?)?\Z")
_KNOWN_NAME = re.compile(r"kitty\((?:0\.(?:2[89]|[3-9]\d|\d{3,})|[1-9]\d*\.)|ghostty\b", re.IGNORECASE)

ANSWER_SECONDS = 2.0  # after the question, part of an answer is held back for the rest of it
HOLD_SECONDS = 0.3  # for so long: the first character of an answer may be an escape key

_MULTIPLEXERS = ("TMUX", "STY", "ZELLIJ")
_UNABLE_TERMINALS = ("dumb", "linux", "screen", "tmux", "unknown", "vt")
MAX_PICTURES = 200  # at the same time: more than there are panels

PLACEHOLDER, CHUNK = "\U0010eeee", 4096
_MARKS = """\
305 30d-30e 310 312 33d-33f 346 34a-34c 350-352 357 35b 363-36f 483-487 592-595 597-599 59c-5a1 5a8-5a9 5ab-5ac 5af
5c4 610-617 657-65b 65d-65e 6d6-6dc 6df-6e2 6e4 6e7-6e8 6eb-6ec 730 732-733 735-736 73a 73d 73f-741 743 745 747 749-74a
7eb-7f1 7f3 816-819 81b-823 825-827 829-82d 951 953-954 f82-f83 f86-f87 135d-135f 17dd 193a 1a17 1a75-1a7c 1b6b
1b6d-1b73 1cd0-1cd2 1cda-1cdb 1ce0 1dc0-1dc1 1dc3-1dc9 1dcb-1dcc 1dd1-1de6 1dfe 20d0-20d1 20d4-20d7 20db-20dc 20e1 20e7
20e9 20f0 2cef-2cf1 2de0-2dff a66f a67c-a67d a6f0-a6f1 a8e0-a8f1 aab0 aab2-aab3 aab7-aab8 aabe-aabf aac1 fe20-fe26 10a0f
10a38 1d185-1d189 1d1aa-1d1ad 1d242-1d244"""
MARKS = tuple(
    chr(code)
    for ends in (mark.split("-") for mark in _MARKS.split())
    for code in range(int(ends[0], 16), int(ends[-1], 16) + 1)
)
"""The marks for 0, 1, 2 …, by kitty's list (rowcolumn-diacritics.txt)."""

_RENDER = """\
import sys
sys.path[:] = sys.argv[1].split("\\n")
import resvg_py
sys.stdout.buffer.write(resvg_py.svg_to_bytes(svg_string=sys.stdin.buffer.read().decode()))
"""
RENDER_SECONDS = 20.0


class TerminalGraphics:
    """The pictures of a terminal, which is asked at once: create it after the first frame. Nothing waits for answers.

    `fileno`: of the terminal; `call`: calls on the UI thread. `widgets`: those with pictures, repainted when that
    changes. `sent`: numbers of the pictures that are there. `restarts`: how often all pictures were deleted.
    """

    def __init__(
        self,
        out: TextIO,
        fileno: int,
        call: Callable[[Callable[[], None]], None],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._out, self._fileno, self._call = out, fileno, call
        self._mode = environment.get(PICTURES_VARIABLE, "auto")
        term = environment.get("TERM", "")
        may_ask = (
            self._mode != "blocks"
            and not any(map(environment.get, _MULTIPLEXERS))
            and term
            and not term.startswith(_UNABLE_TERMINALS)
            and environment.get("TERM_PROGRAM") != "Apple_Terminal"  # prints what it does not know
            and os.isatty(fileno)
            and importlib.util.find_spec("resvg_py") is not None
        )
        self._question = self._name = self._answer = self._held = ""
        self._cell_answer = (0, 0)
        self._asked_at = self._held_at = 0.0
        self._numbers = itertools.cycle(range(16, 256))  # colours of the palette that are the same everywhere
        self.sent: set[int] = set()
        self.widgets: WeakSet[Any] = WeakSet()
        self.is_paused, self.restarts = False, 0
        if may_ask:
            self._ask(ASK_NAME)

    @property
    def cell(self) -> tuple[int, int] | None:
        """Measure a cell, whose size changes with the font: pixels; None where pictures are not drawn."""
        if self._question or self.is_paused or not self._answer.endswith(";OK"):
            return None
        try:
            rows, columns, width, height = struct.unpack("4H", fcntl.ioctl(self._fileno, termios.TIOCGWINSZ, bytes(8)))
        except OSError:
            return None
        size = (width // columns, height // rows) if width and height and columns and rows else self._cell_answer
        return size if all(size) else None

    def _ask(self, question: str) -> None:
        self._question, self._asked_at = question, time.monotonic()
        self._write(question)

    def read(self, data: str) -> str:
        """Take the terminal's answers out of what was typed; called by the thread that reads input."""
        if not self._question:
            held, self._held = self._held, ""
            return held + data
        data = _REPLY.sub(self._take, self._held + data)
        part = _REPLY_PART.search(data) if time.monotonic() - self._asked_at < ANSWER_SECONDS else None
        self._held, self._held_at = "" if part is None else part[0], time.monotonic()
        return data if part is None else data[: part.start()]

    def release(self) -> str:
        """Return what was held back, once it is certain that it is no answer."""
        held = self._held if time.monotonic() - self._held_at > HOLD_SECONDS else ""
        self._held = self._held[len(held) :]
        return held

    def _take(self, reply: re.Match[str]) -> str:
        name, answer, height, width, end = reply.groups()
        if name is not None:
            self._name = name
        elif answer is not None:
            self._answer = answer
        elif end is None:
            self._cell_answer = int(width), int(height)
        elif self._question == ASK_NAME and (self._mode == "kitty" or _KNOWN_NAME.match(self._name)):
            self._call(lambda: self._ask(ASK_PICTURES))
        else:
            self._question = ""
            self._call(self.repaint)
        return ""

    def render(self, svg: str) -> bytes:
        """Render a PNG in another process: resvg holds the GIL for tens of ms, in which no frame would be painted.

        Raises OSError, subprocess.SubprocessError.
        """
        command = [sys.executable, "-I", "-c", _RENDER, "\n".join(sys.path)]
        done = subprocess.run(command, input=svg.encode(), capture_output=True, check=True, timeout=RENDER_SECONDS)
        return done.stdout

    def can_hold(self, columns: int, rows: int) -> bool:
        """Return whether a picture of this size can be placed: row and column each need a mark."""
        return 0 < columns <= len(MARKS) and 0 < rows <= len(MARKS)

    def format_cells(self, row: int, first: int, last: int) -> str:
        """Format the cells [first, last) of a row of a picture."""
        return "".join(f"{PLACEHOLDER}{MARKS[row]}{mark}" for mark in MARKS[first:last])

    def send(self, png: bytes, columns: int, rows: int) -> int:
        """Send a picture that covers these columns and rows. Returns its number, which is the colour of its cells."""
        number = next(number for number in self._numbers if number not in self.sent or len(self.sent) > MAX_PICTURES)
        data = binascii.b2a_base64(png, newline=False).decode()
        keys = f"a=T,U=1,i={number},f=100,c={columns},r={rows},q=2,"  # of the first part
        for start in range(0, len(data), CHUNK):
            has_more = int(start + CHUNK < len(data))
            self._write(f"\x1b_G{'' if start else keys}m={has_more};{data[start : start + CHUNK]}\x1b\\")
        self.sent.add(number)
        return number

    def delete(self, number: int) -> None:
        """Delete a picture, if it is still there."""
        if number in self.sent:
            self.sent.discard(number)
            self._write(f"\x1b_Ga=d,d=I,i={number},q=2\x1b\\")

    def clear(self) -> None:
        """Delete all pictures, because the terminal is left."""
        self.restarts += 1
        for number in sorted(self.sent):
            self.delete(number)

    def repaint(self) -> None:
        """Repaint what has pictures, or may have."""
        for widget in list(self.widgets):
            widget.repaint()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Paint characters in place of pictures, for a copy of the screen."""
        self.is_paused = True
        self.repaint()
        try:
            yield
        finally:
            self.is_paused = False
            self.repaint()

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
