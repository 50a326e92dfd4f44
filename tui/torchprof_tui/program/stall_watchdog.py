"""Note where the program is when its screen no longer answers: the stacks of all threads and of all asyncio tasks.

An event loop that hangs may be blocked, or idle because a task waits for itself, so the watchdog asks for an answer
that only comes when everything works. It needs no thread of its own: one that wakes up anyway calls `look`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from torchprof_tui.program.phase_log import note_lines, note_phase

STALL_SECONDS = 5.0
"""Seconds without an answer after which the stacks are noted: longer than any frame, also on a busy machine."""

PROBE_SECONDS = 2.0  # seconds between two questions; each costs some 0.1 ms

MAX_LOOK_SECONDS = 0.5
"""Longest time that counts between two looks: the process may have been stopped, or the machine suspended."""

MAX_NOTES = 3  # stalls of one process whose stacks are noted


class StallWatchdog:
    """Watch an event loop. `probe`: called on the loop with a function to call once the program has answered."""

    def __init__(self, loop: asyncio.AbstractEventLoop, probe: Callable[[Callable[[], None]], object]) -> None:
        self._loop, self._probe = loop, probe
        self._last_look = time.monotonic()
        self._since_probe = 0.0
        self._silent: float | None = None  # seconds since the first probe without an answer; None: all are answered
        self._notes = 0

    def look(self) -> None:
        """Send the next probe where it is due, and note a stall. Call it several times a second, on another thread."""
        now = time.monotonic()
        passed = min(now - self._last_look, MAX_LOOK_SECONDS)
        self._last_look = now
        self._since_probe += passed
        if self._silent is not None:
            before, self._silent = self._silent, self._silent + passed
            if before < STALL_SECONDS <= self._silent and self._notes < MAX_NOTES:
                self._notes += 1
                note_phase("the screen does not answer", seconds=STALL_SECONDS)
                lines = format_stacks(self._loop)
                if not note_lines(lines):  # no log: a report beside those of crashes, imported only then
                    report = importlib.import_module("torchprof_tui.program.crash_report")
                    with contextlib.suppress(OSError):
                        report.write_report("the screen does not answer", lines)
        if self._since_probe >= PROBE_SECONDS:
            self._since_probe = 0.0
            if self._silent is None:
                self._silent = 0.0
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._probe, self._answer)

    def _answer(self) -> None:
        silent, self._silent = self._silent, None
        if silent is not None and silent >= STALL_SECONDS:
            note_phase("the screen answers again", seconds=silent)


def format_stacks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Format the stacks of all threads, then of all tasks of the loop, innermost call last. Call it on any thread.

    Only positions in the code: nothing of a trace, and of a task's name only the class of the widget.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = []
    for identifier, frame in sys._current_frames().items():
        lines.append(f"thread {names.get(identifier, identifier)}")
        lines += [_format_line(entry, number) for entry, number in [*traceback.walk_stack(frame)][::-1]]
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        lines.append(f"task {task.get_name().partition('(')[0]}")
        lines += _format_awaits(task.get_coro())
    return lines


def _format_awaits(awaited: Any) -> list[str]:
    """Format the chain of coroutines that a suspended task waits in; the stack of the thread has a running one."""
    lines = []
    while awaited is not None:
        for frame_name, next_name in (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await")):
            frame = getattr(awaited, frame_name, None)
            if frame is not None:
                lines.append(_format_line(frame, frame.f_lineno))
                awaited = getattr(awaited, next_name, None)
                break
        else:
            return [*lines, f"  waits for {type(awaited).__name__}"]
    return lines


def _format_line(frame: Any, line: int) -> str:
    shorten_path = importlib.import_module("torchprof_tui.program.crash_report").shorten_path
    return f"  {shorten_path(frame.f_code.co_filename)}:{line} in {frame.f_code.co_name}"
