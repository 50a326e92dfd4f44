"""Find the call that host code follows again and again: it shows where in a long function the time goes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.dispatch.frame_names import MODULE_CALL_PREFIX, parse_frame
from torchprof_tui.analysis.patterns.engine.main_thread import MainThread
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64, find_largest
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_NAME_CELLS = 40
_MAX_PIECES = 4096
"""Longest times between two calls that are examined."""

_MIN_CALLS = 2
_MIN_SHARE = 0.5
"""Share of the time between calls that follows the named one."""


@dataclass(frozen=True, slots=True)
class RepeatedCall:
    """A call (op or function) that `time` ns of host code directly follow, `count` times."""

    name: str
    count: int
    time: int

    @property
    def text(self) -> str:
        """Return "46.2 ms after 18 calls of tolist"."""
        return f"{format_duration(self.time)} after {self.count:,} calls of {self.name}"


def find_repeated_call(trace: Trace, main: MainThread, host: Intervals, events: I64) -> RepeatedCall | None:
    """Find the call after which most of the host code of these events (rows, int64[k]) runs; None if no call repeats.

    Only the events' own time counts: what they call directly, ops included, is left out, and so are step annotations,
    which are no calls.
    """
    lane = slice(main.first, main.last)
    kind = np.asarray(trace.kind[lane])
    is_caller = np.zeros(len(trace), dtype=np.bool_)
    is_caller[events] = True
    is_caller[main.first + np.flatnonzero(kind == Kind.STEP)] = True
    parent = np.asarray(trace.parent[lane])
    is_called = (parent >= 0) & is_caller[parent] & (kind != Kind.STEP)
    called = main.first + np.flatnonzero(is_called & np.isin(kind, (Kind.OP, Kind.PYTHON, Kind.ANNOTATION)))
    called = called[~is_caller[called]]
    start, began = np.asarray(trace.start[called]), np.asarray(trace.start[events])
    own = (host & union(began, began + trace.duration[events])) - union(start, start + trace.duration[called])
    length = own.ends - own.starts
    longest = find_largest(length, _MAX_PIECES)
    before = start.searchsorted(own.starts[longest], side="right") - 1
    times: dict[str, list[int]] = defaultdict(list)
    for index, piece in zip(before.tolist(), length[longest].tolist(), strict=True):
        if index >= 0:
            times[shorten_call(trace.names[int(trace.name[called[index]])])].append(piece)
    name, pieces = max(times.items(), key=lambda item: sum(item[1]), default=("", []))
    if len(pieces) < _MIN_CALLS or sum(pieces) < _MIN_SHARE * own.total:
        return None
    return RepeatedCall(name, len(pieces), sum(pieces))


def shorten_call(name: str) -> str:
    """Shorten a name: `<built-in function sleep>` to "sleep", a frame to file without folders, line and function."""
    frame = parse_frame(name)
    if frame is not None:
        text = frame.text
    elif name.startswith("<built-in "):
        text = name.removeprefix("<built-in ").rstrip(">").partition(" of ")[0].rpartition(" ")[2]
    else:
        text = name.removeprefix(MODULE_CALL_PREFIX)
    return text if len(text) <= _NAME_CELLS else text[: _NAME_CELLS - 1] + "…"
