"""Test job control and signals on a real terminal: threads, terminal modes, exit statuses, child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
import time
import tty
from pathlib import Path

import pyte
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.terminal import TIMEOUT_SECONDS, Terminal
from torchprof_tui.ui.common.terminal_driver import KILLED_LINE, TerminalGuard

COMMAND = (sys.executable, "-m", "torchprof_tui", "sample:matmul_add_64_cold_eager", "--no-cache")
MAX_SETTLING_SECONDS = 20.0
"""Time limit for threads that have finished their work to end."""
STOPS = 3
"""Number of stops after which threads are counted: a driver that leaks leaves a thread at each of them."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads /proc")


def count_threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def child_processes(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in children for child in path.read_text().split()]


def continue_process(terminal: Terminal) -> None:
    """Stop and continue the program with signals that no key sends, then wait until it handles keys again."""
    os.kill(terminal.pid, signal.SIGSTOP)
    terminal.wait_until_stopped()
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.send("?")
    terminal.wait_for("zoom in at the cursor")
    terminal.send("\x1b")
    terminal.wait_for("zoom in at the cursor", gone=True)


@pytest.mark.long
def test_stopping_and_continuing_adds_no_threads_and_restores_the_terminal() -> None:
    with Terminal(COMMAND) as terminal:
        terminal.wait_for("ProfilerStep#2", "stream 7")
        assert terminal.is_raw()
        continue_process(terminal)
        before = count_threads(terminal.pid)
        for _ in range(STOPS):
            continue_process(terminal)
        os.kill(terminal.pid, signal.SIGCONT)  # without a stop before
        terminal.send("?")
        terminal.wait_for("zoom in at the cursor")
        deadline = time.monotonic() + MAX_SETTLING_SECONDS
        while count_threads(terminal.pid) >= before + STOPS and time.monotonic() < deadline:
            time.sleep(0.1)
        # Work on the screen may start another thread of the pool of workers, which stays.
        assert count_threads(terminal.pid) < before + STOPS
        assert terminal.is_raw()
        terminal.send("\x1b")
        terminal.wait_for("zoom in at the cursor", gone=True)
        terminal.send("q")
        assert terminal.wait_for_end() == 0
        assert not terminal.is_raw()


SHELL_SCRIPT = """
set -m
"$@"
status=$? count=0
while [ $status -gt 128 ]; do
    count=$((count + 1))
    echo "in the shell $count"
    read -r line
    fg
    status=$?
done
exit $status
"""
"""A shell with job control that continues the program on a line of input."""


def test_keys_typed_before_the_first_frame_act(tmp_path: Path) -> None:
    """Until the program has set raw mode, the terminal makes a line feed of the enter key."""
    command = (sys.executable, "-m", "torchprof_tui")
    with Terminal(command, folder=tmp_path, HOME=str(tmp_path), XDG_STATE_HOME=str(tmp_path)) as terminal:
        terminal.send("\r")
        terminal.wait_for("sample:matmul_add_64_cold_eager")
    with Terminal((*command, "attach")) as terminal:
        terminal.send("q")
        assert terminal.wait_for_end() == 0


@pytest.mark.long
def test_ctrl_z_under_a_shell_stops_the_program_and_restores_the_terminal() -> None:
    with Terminal(("/bin/sh", "-c", SHELL_SCRIPT, "sh", *COMMAND)) as terminal:
        terminal.wait_for("ProfilerStep#2", "stream 7")
        for count in (1, 2):
            terminal.send("\x1a")
            terminal.wait_for(f"in the shell {count}")
            assert not terminal.is_raw()
            terminal.send("\n")
            terminal.wait_for("ProfilerStep#2", "stream 7")
            terminal.send("?")
            terminal.wait_for("zoom in at the cursor")
            assert terminal.is_raw()
            terminal.send("\x1b")
            terminal.wait_for("zoom in at the cursor", gone=True)
        terminal.send("q")
        assert terminal.wait_for_end() == 0
        assert not terminal.is_raw()


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(COMMAND, id="alone"),
        pytest.param(("/bin/sh", "-c", '"$@"; exit $?', "sh", *COMMAND), id="script", marks=pytest.mark.long),
    ],
)
def test_ctrl_z_without_a_shell_says_so_and_goes_on(command: tuple[str, ...]) -> None:
    """As over `ssh -t host command`: nobody would continue the program, which had stopped itself."""
    with Terminal(command) as terminal:
        terminal.wait_for("ProfilerStep#2", "stream 7")
        terminal.send("\x1a")
        terminal.wait_for("there is no shell to return to")
        assert terminal.is_raw()
        terminal.send("?")
        terminal.wait_for("zoom in at the cursor")
        terminal.send("\x1b")
        terminal.wait_for("zoom in at the cursor", gone=True)
        terminal.send("q")
        assert terminal.wait_for_end() == 0


@pytest.mark.long
def test_a_stop_repairs_the_modes_that_a_shell_has_changed() -> None:
    with Terminal(COMMAND) as terminal:
        terminal.wait_for("ProfilerStep#2", "stream 7")
        os.kill(terminal.pid, signal.SIGSTOP)
        terminal.wait_until_stopped()
        terminal.set_echo()
        terminal.screen.reset()
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.wait_for("ProfilerStep#2", "stream 7")  # painted again
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not terminal.is_raw() and time.monotonic() < deadline:  # what was painted before it stopped comes first
            time.sleep(0.01)
        assert terminal.is_raw()


@pytest.mark.parametrize("number", keep_some([signal.SIGHUP, signal.SIGINT, signal.SIGTERM], 1))
def test_a_signal_ends_the_program_with_its_status_and_without_children(number: signal.Signals) -> None:
    with Terminal(COMMAND) as terminal:
        terminal.wait_for("stream 7")
        children = child_processes(terminal.pid)
        os.kill(terminal.pid, number)
        assert terminal.wait_for_end() == 128 + number
        assert not terminal.is_raw()
    assert "Traceback" not in terminal.text
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.long
def test_a_terminal_that_is_gone_ends_a_program_that_gets_no_signal() -> None:
    """Where it is not the terminal of its session: reading returned nothing at once, again and again."""
    master, slave = os.openpty()
    process = subprocess.Popen(COMMAND, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    shown = b""
    while b"stream 7" not in shown:
        shown += os.read(master, 1 << 16)
    os.close(master)
    try:
        assert process.wait(TIMEOUT_SECONDS) == 128 + signal.SIGHUP
    finally:
        process.kill()


@pytest.mark.long  # a hang-up ends it in tests/test_end_to_end.py on each push
def test_a_terminal_that_is_gone_ends_the_program() -> None:
    with Terminal(COMMAND) as terminal:
        terminal.wait_for("stream 7")
        terminal.hang_up()
        assert terminal.wait_for_end() == 128 + signal.SIGHUP


@pytest.mark.long
@pytest.mark.parametrize("number", keep_some([signal.SIGKILL, signal.SIGBUS, signal.SIGSEGV], 1))
def test_a_killed_program_leaves_a_usable_terminal(number: signal.Signals) -> None:
    with Terminal(COMMAND) as terminal:
        terminal.wait_for("stream 7")
        assert terminal.is_raw()
        os.kill(terminal.pid, number)
        terminal.wait_for_end()
        terminal.wait_for(KILLED_LINE[:80])
        assert not terminal.is_raw()
        assert not terminal.screen.mode & {1000 << 5, 1003 << 5, 2004 << 5}  # mouse reports, bracketed paste
        assert pyte.modes.DECTCEM in terminal.screen.mode  # the cursor is shown


def test_the_modes_of_the_user_are_restored() -> None:
    """`stty sane` would lose what the user has set."""
    master, slave = os.openpty()
    before = termios.tcgetattr(slave)
    before[6][termios.VERASE] = b"\x08"
    termios.tcsetattr(slave, termios.TCSANOW, before)
    guard = TerminalGuard()
    guard.start(slave, termios.tcgetattr(slave))
    tty.setraw(slave)
    process = guard._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()  # as the kernel does where this process is killed
    assert process.wait(TIMEOUT_SECONDS) == 0
    assert termios.tcgetattr(slave) == before
    assert KILLED_LINE.encode() in os.read(master, 65536)
    os.close(master)
    os.close(slave)


def test_an_ended_program_says_nothing_about_an_end() -> None:
    master, slave = os.openpty()
    guard = TerminalGuard()
    guard.start(slave, termios.tcgetattr(slave))
    guard.stop()
    os.set_blocking(master, False)
    with pytest.raises(BlockingIOError):
        os.read(master, 1)
    os.close(master)
    os.close(slave)


KILLED_WHILE_WRITING = """
import os, signal, sys, termios
from torchprof_tui.ui.common.terminal_driver import TerminalGuard
TerminalGuard().start(1, termios.tcgetattr(1))
os.write(1, b"\\x1b[?1000h\\x1b[?1003h\\x1b[38;5;1")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_a_program_killed_in_the_middle_of_a_control_sequence_leaves_no_mouse_reports() -> None:
    with Terminal([sys.executable, "-c", KILLED_WHILE_WRITING]) as terminal:
        terminal.wait_for_end()
        terminal.wait_for(KILLED_LINE[:80])
        assert not terminal.screen.mode & {1000 << 5, 1003 << 5}
