"""Find the frame of the user's code that events call, and that takes most of their time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from torchprof_tui.analysis.dispatch.frame_names import Frame, FrameOrigin
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I64, sorted_unique
from torchprof_tui.trace.core.time_format import format_part
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

MIN_SHARE = 0.1
"""Share of the events' time from which a frame that they call is named."""


@dataclass(frozen=True, slots=True)
class CalledFrame:
    """A frame with its part of the time of the events that call it: `time` of `total`, ns."""

    frame: Frame
    time: int
    total: int

    @property
    def text(self) -> str:
        """Return "train.py(18): __getitem__, 371.2 of 383.9 ms"."""
        return f"{self.frame.text}, {format_part(self.time, self.total)}"


def find_called_frame(trace: Trace, events: I64, frame_of: Callable[[int], Frame | None]) -> CalledFrame | None:
    """Find the frame of the user's that these events (int64[k]) call and that takes most of their time, or None.

    Of the frames in which more than half of the time passes the innermost is chosen; without one the longest, from
    `MIN_SHARE` on. Lambdas and comprehensions belong to the function they are written in. `frame_of`: parses the name
    of a row.
    """
    rows, total = _list_python_below(trace, events)
    if not len(rows):
        return None
    name = np.asarray(trace.name[rows])
    by_name = np.argsort(name, kind="stable")
    rows, name = rows[by_name], name[by_name]
    edges = np.append(np.flatnonzero(np.append(-1, name[:-1]) != name), len(name)).tolist()
    found: tuple[tuple[bool, int, int], CalledFrame] | None = None
    for first, last in pairwise(edges):
        frame = frame_of(int(rows[first]))
        if frame is None or frame.origin is not FrameOrigin.USER or frame.line is None or frame.function[:1] == "<":
            continue
        of_name = rows[first:last]
        start = np.asarray(trace.start[of_name])
        time = union(start, start + trace.duration[of_name]).total
        # What is called takes no longer than its caller: of those above half the shortest is the innermost.
        is_most = 2 * time > total
        rank = (is_most, -time if is_most else time, int(of_name[0]))
        if time >= MIN_SHARE * total and (found is None or rank > found[0]):
            found = rank, CalledFrame(frame, time, total)
    return None if found is None else found[1]


def _list_python_below(trace: Trace, events: I64) -> tuple[I64, int]:
    """List the Python events within these events on their threads: (int64[m] ascending, ns that the events cover)."""
    below = [np.empty(0, dtype=np.int64)]
    start = np.asarray(trace.start[events])
    end = start + trace.duration[events]
    for event, stop in zip(events.tolist(), end.tolist(), strict=True):
        lane = trace.lanes[int(trace.lane[event])]
        last = lane.first + int(trace.start[lane.first : lane.last].searchsorted(stop))
        below.append(event + 1 + np.flatnonzero(trace.kind[event + 1 : last] == Kind.PYTHON))
    return sorted_unique(np.concatenate(below)).astype(np.int64), union(start, end).total
