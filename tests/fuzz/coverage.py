"""Which lines of the reader run, one after the other: what a file reaches that no other file did.

An arc is a step from a line of `tui/trace` to the next one of these files that runs, be it in another function. Only
these files are watched, and only in the thread that opens the file, so the same file gives the same arcs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torchprof_tui.trace

WATCHED = {str(path): k + 1 for k, path in enumerate(sorted(Path(torchprof_tui.trace.__file__).parent.rglob("*.py")))}
"""Number of each file; 0 is where an opening begins."""

_LINE_BITS = 16


@contextmanager
def arcs() -> Iterator[set[int]]:
    """Fills a set while the block runs: (file, line) before << 32 | (file, line) now."""
    found: set[int] = set()
    before = 0

    def step(file: int, line: int) -> None:
        nonlocal before
        now = file << _LINE_BITS | line
        found.add(before << 32 | now)
        before = now

    with _monitored(step) if sys.version_info >= (3, 12) else _traced(step):
        yield found


def described(arc: int) -> str:
    """`kineto.py:12 -> chunks.py:40`."""
    names = {number: Path(path).name for path, number in WATCHED.items()}
    ends = (arc >> 32, arc & (1 << 32) - 1)
    return " -> ".join(f"{names.get(end >> _LINE_BITS, 'start')}:{end & (1 << _LINE_BITS) - 1}" for end in ends)


@contextmanager
def _traced(step: Callable[[int, int], None]) -> Iterator[None]:
    def entered(frame: FrameType, event: str, arg: Any) -> Any:
        file = WATCHED.get(frame.f_code.co_filename)
        if file is None:
            return None

        def inside(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                step(file, frame.f_lineno)
            return inside

        return inside

    previous = sys.gettrace()
    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(previous)


@contextmanager
def _monitored(step: Callable[[int, int], None]) -> Iterator[None]:
    """Lines of other files are reported once and then no more, which is what makes this several times faster."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    tool, mine = monitoring.COVERAGE_ID, threading.get_ident()

    def line(code: CodeType, number: int) -> Any:
        file = WATCHED.get(code.co_filename)
        if file is None:
            return monitoring.DISABLE
        if threading.get_ident() == mine:
            step(file, number)
        return None

    monitoring.use_tool_id(tool, "fuzz")
    try:
        monitoring.register_callback(tool, monitoring.events.LINE, line)
        monitoring.set_events(tool, monitoring.events.LINE)
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, monitoring.events.LINE, None)
        monitoring.free_tool_id(tool)
