"""The terminal's own progress and notifications: only on a terminal that reads them, and off if the user wants."""

from __future__ import annotations

import contextlib
import io
import sys
import time

import pytest

from tests.helpers.terminal import Terminal
from torchprof_tui.commands.common.load import ProgressLine
from torchprof_tui.program.terminal_progress import TerminalProgress, notify, show_work
from torchprof_tui.trace.loading.progress import Phase, Progress


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.delenv("NO_PROGRESS", raising=False)


def test_the_bar_has_shares_and_goes_away() -> None:
    out = Tty()
    bar = TerminalProgress(out)
    for share in (0.0, 0.004, 0.5, 2.0, None):
        bar.set(share)
    bar.clear()
    bar.clear()
    codes = ["1;0", "1;50", "1;100", "3", "0"]  # the same percentage is not written again
    assert out.getvalue() == "".join(f"\x1b]9;4;{code}\x1b\\" for code in codes)


def test_tmux_passes_sequences_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMUX", "/tmp/tmux-1/default,1,0")
    out = Tty()
    notify("done", out)
    assert out.getvalue() == "\x1bPtmux;\x1b\x1b]9;done\x1b\x1b\\\x1b\\"


@pytest.mark.parametrize(("term", "start"), [("foot", "777;notify;torchprof-tui;"), ("xterm-kitty", "9;")])
def test_a_notification_is_one_line_without_control_characters(
    monkeypatch: pytest.MonkeyPatch, term: str, start: str
) -> None:
    monkeypatch.setenv("TERM", term)
    out = Tty()
    notify("a;b\x1b]0;title\x07\nc" + "x" * 500, out)
    said = out.getvalue()
    assert said.startswith(f"\x1b]{start}a,b")
    assert said.count("\x1b") == 2
    assert "\n" not in said
    assert len(said) < 250


@pytest.mark.parametrize(("name", "value"), [("NO_PROGRESS", "1"), ("TERM", "dumb"), ("TERM", "linux"), ("TERM", "")])
def test_nothing_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    out = Tty()
    TerminalProgress(out).set(0.5)
    notify("done", out)
    assert out.getvalue() == ""


def test_nothing_in_a_pipe() -> None:
    out = io.StringIO()
    TerminalProgress(out).set(0.5)
    notify("done", out)
    with show_work("waiting", out):
        time.sleep(0.4)
    assert out.getvalue() == ""


def test_work_is_shown_once_it_is_long() -> None:
    out = Tty()
    with show_work("short", out):
        pass
    assert out.getvalue() == ""
    with show_work("checking", out):
        time.sleep(0.8)
    said = out.getvalue()
    assert said.startswith("\x1b]9;4;3\x1b\\\rchecking: 0.")
    assert "s, ctrl+c stops" in said
    assert said.endswith("\r\x1b[K\x1b]9;4;0\x1b\\")


def test_work_that_fails_leaves_no_line() -> None:
    out = Tty()
    with contextlib.suppress(KeyboardInterrupt), show_work("checking", out):
        time.sleep(0.5)
        raise KeyboardInterrupt
    assert out.getvalue().endswith("\x1b]9;4;0\x1b\\")


def test_a_load_shows_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Tty()
    line = ProgressLine(out)
    progress = Progress(phase=Phase.READING, bytes=30, total=100, events=7)
    line(progress)
    assert out.getvalue() == ""  # short loads show nothing
    time.sleep(0.35)
    line(progress)
    assert "\x1b]9;4;1;30\x1b\\" in out.getvalue()
    assert "7 events, ctrl+c stops" in out.getvalue()
    line.clear()
    assert out.getvalue().endswith("\x1b]9;4;0\x1b\\")


def test_a_command_on_a_terminal_prints_its_answer_alone() -> None:
    with Terminal([sys.executable, "-m", "torchprof_tui", "check", "sample:train_gpt_eager"]) as opened:
        screen = opened.wait_for("overhead-bound")
    assert "ctrl+c stops" not in screen
    assert "9;4" not in screen
