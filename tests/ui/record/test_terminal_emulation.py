"""Compare the emulator with pyte, a complete one, and test it with large outputs and hostile bytes."""

from __future__ import annotations

import itertools
import unicodedata

import pyte
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.color import Color
from rich.style import Style

from torchprof_tui.ui.record.console_view import _SLACK_LINES, MAX_LINES, TerminalEmulator

WIDTH, HEIGHT = 12, 6

TOKENS = [
    *("a", "word", "a longer text", "\r", "\r\n", "\b", "\t", "宽", "é", "█▌"),
    *("\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J", "\x1b[A", "\x1b[2A", "\x1b[B", "\x1b[C", "\x1b[3D", "\x1b[5G"),
    *("\x1b[31m", "\x1b[1;42m", "\x1b[0m", "\x1b[?25l", "\x1b[?25h"),
]


class Screen(pyte.Screen):
    """pyte with xterm's behaviour: moving up or down from behind the last column starts in the last column."""

    def cursor_up(self, count: int | None = None) -> None:
        self.cursor.x = min(self.cursor.x, self.columns - 1)
        super().cursor_up(count)

    def cursor_down(self, count: int | None = None) -> None:
        self.cursor.x = min(self.cursor.x, self.columns - 1)
        super().cursor_down(count)


def plain(console: TerminalEmulator) -> list[str]:
    lines = [line.text for line in console.lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines


@given(st.lists(st.sampled_from(TOKENS), max_size=25))
@example(["word", "word", "word", "\x1b[3D", "a"])
@example(["word", "word", "word", "\b", "a"])
def test_it_shows_what_a_terminal_shows(tokens: list[str]) -> None:
    text = "".join(tokens).replace("宽", "wide")  # pyte's display fails if half of a wide character is overwritten
    console = TerminalEmulator(WIDTH, 100)
    console.feed(text.encode())
    screen = Screen(WIDTH, 100)
    pyte.Stream(screen).feed(text)
    expected = [line.rstrip() for line in screen.display]
    while expected and not expected[-1]:
        expected.pop()
    assert plain(console) == expected


@given(st.lists(st.sampled_from(TOKENS), max_size=20), st.lists(st.integers(0, 200), max_size=5))
def test_it_does_not_matter_where_a_read_ends(tokens: list[str], cuts: list[int]) -> None:
    data = "".join(tokens).encode()
    whole, pieces = TerminalEmulator(WIDTH, HEIGHT), TerminalEmulator(WIDTH, HEIGHT)
    whole.feed(data)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        pieces.feed(data[start:end])
    assert [line.runs() for line in pieces.lines] == [line.runs() for line in whole.lines]


@given(st.lists(st.one_of(st.binary(max_size=20), st.sampled_from([b"\x1b[", b"\x1b]", b"\xc2\x9b", b"\x1bP", b"9A"]))))
def test_nothing_but_printable_text_comes_out(pieces: list[bytes]) -> None:
    console = TerminalEmulator(WIDTH, HEIGHT)
    for piece in pieces:
        console.feed(piece)
    shown = "".join(text for line in console.lines for text, _ in line.runs())
    assert not [character for character in shown if unicodedata.category(character).startswith("C")]
    assert all(len(line.cells) == len(line.styles) <= WIDTH for line in console.lines)


def test_half_of_a_wide_character_is_blank() -> None:
    console = TerminalEmulator(5, HEIGHT)
    console.feed("宽宽\rab\b\b\x1b[2Cc".encode())
    assert plain(console) == ["abc"]
    console.feed("\r\nabcd宽".encode())  # does not fit into the last cell
    assert plain(console)[1:] == ["abcd", "宽"]


def test_a_progress_bar_stays_on_its_line() -> None:
    console = TerminalEmulator(40, HEIGHT)
    console.feed(b"before\r\n")
    for step in range(1, 101):
        console.feed(f"\r{step:3}%|\x1b[32m{'█' * (step // 10):<10}\x1b[0m| {step}/100".encode())
    console.feed(b"\r\nafter")
    assert plain(console) == ["before", "100%|██████████| 100/100", "after"]


def test_two_bars_below_each_other() -> None:
    console = TerminalEmulator(40, HEIGHT)
    for step in range(3):
        console.feed(f"\router {step}\r\n\rinner {step}\x1b[A".encode())
    console.feed(b"\r\n\r\ndone")
    assert plain(console) == ["outer 2", "inner 2", "done"]


@pytest.mark.parametrize(
    ("codes", "style"),
    [
        ("31", Style(color=Color.from_ansi(1))),
        ("1;94", Style(bold=True, color=Color.from_ansi(12))),
        ("38;5;208;4", Style(color=Color.from_ansi(208), underline=True)),
        ("48;2;1;2;300", Style(bgcolor=Color.from_rgb(1, 2, 255))),
        ("38:5:9", Style(color=Color.from_ansi(9))),
        ("31;0", Style()),
        ("", Style()),
        ("38;5", Style()),
    ],
)
def test_colours_are_kept(codes: str, style: Style) -> None:
    console = TerminalEmulator()
    console.feed(f"\x1b[{codes}mtext".encode())
    assert console.lines[0].runs() == [("text", style)]


@pytest.mark.long
def test_a_large_output_keeps_its_end_and_counts_the_rest() -> None:
    console = TerminalEmulator(80, 24)
    for start in range(0, 100_000, 1000):
        console.feed("".join(f"line {number}\r\n" for number in range(start, start + 1000)).encode())
        assert len(console.lines) <= MAX_LINES + _SLACK_LINES + 1001
    assert console.discarded_lines + len(console.lines) == 100_001
    assert plain(console)[-1] == "line 99999"
    console.skip_lines(5)
    console.feed(b"later")
    assert console.discarded_lines + len(console.lines) == 100_006


def test_one_endless_line_and_endless_sequences_are_bounded() -> None:
    console = TerminalEmulator(80, 24)
    console.feed(b"x" * 1_000_000)
    assert len(console.lines) <= MAX_LINES + _SLACK_LINES
    for opening in (b"\x1b]0;", b"\x1b[", b"\x1bP"):
        for _ in range(50):
            console.feed(opening + b"1" * 1000)
        assert len(console._pending_text) < 10_000


def test_wrapped_lines_are_joined_in_the_text() -> None:
    console = TerminalEmulator(10, 5)
    console.feed(b"0123456789abc  xyz\r\nnext\r\n\r\n")
    assert [line.text for line in console.lines[:2]] == ["0123456789", "abc  xyz"]
    assert console.text == "0123456789abc  xyz\nnext\n"
