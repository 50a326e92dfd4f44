"""Record which lines of `torchprof_tui.trace` run one after the other, to find files that reach new code.

An arc is a step from one line of that package to the next one that runs, possibly in another function. Only its files
are monitored, and only in the thread that opens the file, so the same file yields the same arcs. Work that is divided
among threads or processes is left out with `pause_recording`: which of them takes a task first is chance.
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
"""Code of each file; 0 is the start of the recording."""

_LINE_BITS = 16

_pauses: list[None] = []
"""One entry for each `pause_recording` that is active."""


@contextmanager
def record_arcs() -> Iterator[set[int]]:
    """Fill a set while the block runs: previous (file, line) << 32 | current (file, line)."""
    arcs: set[int] = set()
    previous = 0

    def step(file: int, line: int) -> None:
        nonlocal previous
        if _pauses:
            return
        current = file << _LINE_BITS | line
        arcs.add(previous << 32 | current)
        previous = current

    with _monitored(step) if sys.version_info >= (3, 12) else _traced(step):
        yield arcs


@contextmanager
def pause_recording() -> Iterator[None]:
    """Leave the arcs of a block out of the recording that is active, if there is one."""
    _pauses.append(None)
    try:
        yield
    finally:
        _pauses.pop()


def format_arc(arc: int) -> str:
    """Format an arc as `json_document.py:12 -> entry_decoder.py:40`."""
    names = {code: Path(path).name for path, code in WATCHED.items()}
    ends = (arc >> 32, arc & (1 << 32) - 1)
    return " -> ".join(f"{names.get(end >> _LINE_BITS, 'start')}:{end & (1 << _LINE_BITS) - 1}" for end in ends)


@contextmanager
def _traced(step: Callable[[int, int], None]) -> Iterator[None]:
    def trace_call(frame: FrameType, event: str, arg: Any) -> Any:
        file = WATCHED.get(frame.f_code.co_filename)
        if file is None:
            return None

        def trace_line(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                step(file, frame.f_lineno)
            return trace_line

        return trace_line

    previous = sys.gettrace()
    sys.settrace(trace_call)
    try:
        yield
    finally:
        sys.settrace(previous)


@contextmanager
def _monitored(step: Callable[[int, int], None]) -> Iterator[None]:
    """Use sys.monitoring: lines of other files are reported only once, which makes it several times faster."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    tool, thread = monitoring.COVERAGE_ID, threading.get_ident()

    def line(code: CodeType, number: int) -> Any:
        file = WATCHED.get(code.co_filename)
        if file is None:
            return monitoring.DISABLE
        if threading.get_ident() == thread:
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
