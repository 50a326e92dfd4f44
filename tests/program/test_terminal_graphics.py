"""Test what the terminal is asked about pictures, whose answers count, and that no answer becomes a key."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Iterator
from typing import cast

import pytest
from textual import events

from torchprof_tui.program import terminal_graphics
from torchprof_tui.program.terminal_graphics import ASK_NAME, ASK_PICTURES, MARKS, PLACEHOLDER, TerminalGraphics
from torchprof_tui.ui.common.terminal_driver import TerminalDriver, _AnswerParser

KITTY = ("\x1bP>|kitty(0.35.2)\x1b\\", "\x1b[6;20;10t", "\x1b[?62;52;c")
DRAWS = ("\x1b_Gi=15;OK\x1b\\", "\x1b[?62;52;c")
ENVIRONMENT = {"TERM": "xterm-256color"}


@pytest.fixture
def fileno() -> Iterator[int]:
    """A terminal whose size in pixels is unknown."""
    pair = pty.openpty()
    yield pair[1]
    for end in pair:
        os.close(end)


class Asked:
    """A terminal that is asked, and the keys that are typed on it meanwhile."""

    def __init__(self, fileno: int, **environment: str) -> None:
        self.out = io.StringIO()
        self.is_settled = False
        self.graphics = TerminalGraphics(self.out, fileno, lambda call: call(), {**ENVIRONMENT, **environment})
        self.graphics.widgets.add(self)
        self.parser = _AnswerParser(cast(TerminalDriver, self))

    def repaint(self) -> None:
        self.is_settled = True

    def type(self, *parts: str) -> list[str]:
        """Return the keys of what arrives."""
        messages = [message for part in parts for message in (*self.parser.feed(part), *self.parser.tick())]
        return [message.key for message in messages if isinstance(message, events.Key)]

    @property
    def asked(self) -> str:
        return self.out.getvalue()


def test_a_terminal_with_placeholders_is_asked_twice(fileno: int) -> None:
    asked = Asked(fileno)
    assert asked.type(*KITTY) == []
    assert asked.graphics.cell is None
    assert not asked.is_settled
    assert asked.type(*DRAWS) == []
    assert asked.is_settled
    assert asked.graphics.cell == (10, 20)
    assert asked.asked == ASK_NAME + ASK_PICTURES


def test_answers_are_no_keys_however_they_are_cut(fileno: int) -> None:
    """The keys around them are still typed."""
    text = "a" + "".join(KITTY) + "b\x1b[A" + "".join(DRAWS) + "c"
    for cut in range(1, len(text)):
        asked = Asked(fileno)
        assert asked.type(text[:cut], text[cut:]) == ["a", "b", "up", "c"], (text[:cut], text[cut:])
        assert asked.graphics.cell == (10, 20)
    assert Asked(fileno).type(*text) == ["a", "b", "up", "c"]


@pytest.mark.parametrize(
    "name", ["", "kitty(0.27.1)", "WezTerm 20260331", "Konsole 260400", "tmux 3.5", "foot(1.20)", "xterm.js(6)"]
)
def test_other_terminals_are_asked_only_for_their_name(fileno: int, name: str) -> None:
    """Konsole would say that it draws pictures, and print the placeholders."""
    asked = Asked(fileno)
    said = f"\x1bP>|{name}\x1b\\" if name else ""
    assert asked.type(f"{said}\x1b[?62;4c", "x") == ["x"]
    assert (asked.asked, asked.is_settled, asked.graphics.cell) == (ASK_NAME, True, None)


@pytest.mark.parametrize("name", ["kitty(0.28.0)", "kitty(0.47.1)", "kitty(1.0.0)", "ghostty 1.2.3"])
def test_kitty_and_ghostty_draw_pictures(fileno: int, name: str) -> None:
    asked = Asked(fileno)
    asked.type(f"\x1bP>|{name}\x1b\\", *KITTY[1:], *DRAWS)
    assert asked.graphics.cell == (10, 20)


def test_a_terminal_that_refuses_pictures_gets_none(fileno: int) -> None:
    asked = Asked(fileno)
    asked.type(*KITTY, "\x1b_Gi=15;ENOTSUPPORTED:off\x1b\\", DRAWS[1])
    assert (asked.is_settled, asked.graphics.cell) == (True, None)


def test_the_setting_wins_over_the_name(fileno: int) -> None:
    asked = Asked(fileno, TORCHPROF_TUI_PICTURES="kitty")
    asked.type("\x1bP>|new 1.0\x1b\\", *KITTY[1:], *DRAWS)
    assert asked.graphics.cell == (10, 20)
    assert Asked(fileno, TORCHPROF_TUI_PICTURES="blocks").asked == ""


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TMUX", "/tmp/tmux-0/default,1,0"),
        ("STY", "1.pts"),
        ("ZELLIJ", "0"),
        ("TERM", "tmux-256color"),
        ("TERM", "screen"),
        ("TERM", "dumb"),
        ("TERM", ""),
        ("TERM_PROGRAM", "Apple_Terminal"),
    ],
)
def test_multiplexers_and_old_terminals_are_not_asked(fileno: int, variable: str, value: str) -> None:
    assert Asked(fileno, **{variable: value}).asked == ""


def test_nothing_is_asked_without_the_extra_or_a_terminal(fileno: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as file:
        assert Asked(file.fileno()).asked == ""
    monkeypatch.setattr(terminal_graphics.importlib.util, "find_spec", lambda _: None)
    assert Asked(fileno).asked == ""


def test_the_escape_key_is_not_swallowed(fileno: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may begin an answer, and none comes."""
    now = 100.0
    monkeypatch.setattr(terminal_graphics.time, "monotonic", lambda: now)
    asked = Asked(fileno)
    assert asked.type("\x1b") == []
    now += terminal_graphics.HOLD_SECONDS + 0.1
    assert asked.graphics.release() == "\x1b"
    now += terminal_graphics.ANSWER_SECONDS
    assert asked.graphics.read("\x1b") == "\x1b"
    assert asked.graphics.read("a\x1b[?62;4c") == "a"  # a late answer


def test_pictures_are_sent_in_parts_and_deleted_once(fileno: int) -> None:
    asked = Asked(fileno)
    asked.type(*KITTY, *DRAWS)
    asked.out.truncate(0)
    asked.out.seek(0)
    number = asked.graphics.send(bytes(5000), 7, 2)
    first, second, *others = asked.asked.split("\x1b\\")
    assert first.startswith(f"\x1b_Ga=T,U=1,i={number},f=100,c=7,r=2,q=2,m=1;")
    assert len(first.partition(";")[2]) == 4096
    assert second.startswith("\x1b_Gm=0;")
    assert others == [""]
    assert asked.graphics.send(b"", 1, 1) != number
    asked.graphics.delete(number)
    asked.graphics.clear()
    asked.graphics.delete(number)
    assert asked.asked.count("a=d,d=I,") == 2


def test_the_marks_are_those_of_the_protocol() -> None:
    assert len(set(MARKS)) == 297
    assert (MARKS[0], MARKS[1], MARKS[42], MARKS[296]) == ("\u0305", "\u030d", "\u059c", "\U0001d244")
    assert PLACEHOLDER == "\U0010eeee"
