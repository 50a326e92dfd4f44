"""Format where all threads and all asyncio tasks of this process are, for the log of a program that hangs."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from types import CodeType, FrameType
from typing import Any

from torchprof_tui.program.crash_report import shorten_path


def format_stacks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Format the stacks of all threads, then of all tasks of the loop, innermost call last. Call it on any thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = []
    for identifier, frame in sys._current_frames().items():
        lines.append(f"thread {names.get(identifier, identifier)}")
        lines += [_format_line(entry.f_code, number) for entry, number in _walk_frames(frame)]
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        lines.append(f"task {task.get_name()}")
        lines += _format_awaits(task.get_coro())
    return lines


def _walk_frames(frame: FrameType) -> list[tuple[FrameType, int]]:
    return list(traceback.walk_stack(frame))[::-1]


def _format_awaits(awaited: Any) -> list[str]:
    """Format the chain of coroutines that a suspended task waits in, and what the last one waits for."""
    lines = []
    while awaited is not None:
        for prefix in ("cr", "gi", "ag"):
            frame = getattr(awaited, f"{prefix}_frame", None)
            if frame is not None:
                lines.append(_format_line(frame.f_code, frame.f_lineno))
                awaited = getattr(awaited, f"{prefix}_await" if prefix != "gi" else "gi_yieldfrom", None)
                break
        else:
            lines.append(f"  waits for {_describe_awaitable(awaited)}")
            break
    return lines


def _describe_awaitable(awaited: Any) -> str:
    return awaited.get_name() if isinstance(awaited, asyncio.Task) else type(awaited).__name__


def _format_line(code: CodeType, line: int) -> str:
    return f"  {shorten_path(code.co_filename)}:{line} in {code.co_name}"
