"""Find the Python frames that were on the stack already when the recording began.

The profiler names a frame it sees being called by the line where its function begins. Of a frame that was on the stack
before, it takes the line that ran at that moment, often the call that started the recording: this line says nothing
about where the time goes. Kineto numbers these frames first, one after the other, from the outermost inwards.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from torchprof_tui.analysis.dispatch.frame_names import MODULE_CODE, parse_frame
from torchprof_tui.trace.core.arrays import I64, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_MAX_DEPTH = 2000
"""Frames that are examined on each thread, as deep as Python recurses."""

_NONE = np.iinfo(np.int64).min


def find_open_frames(trace: Trace) -> I64:
    """Find the rows of the frames that were open when the recording began: int64[k], by thread, then outermost first.

    On each thread these are the first Python event, if no call is recorded for it ("Python parent id" missing), and
    the events after it as long as each is numbered next and was called by the one before it. Left out are threads whose
    first event begins after another frame of the process was called: they were started during the recording.
    """
    by_process: dict[tuple[int | None, str], list[tuple[I64, int]]] = defaultdict(list)
    ids, parents = trace.args.get("python_id"), trace.args.get("python_parent")
    if ids is None:
        return np.empty(0, dtype=np.int64)
    for lane in trace.lanes:
        if lane.last <= lane.first:
            continue
        rows = lane.first + np.flatnonzero(trace.kind[lane.first : lane.last] == Kind.PYTHON)[: _MAX_DEPTH + 1]
        if not len(rows):
            continue
        number = ids.values_at(rows, _NONE)
        parent = parents.values_at(rows, _NONE) if parents is not None else np.full(len(rows), _NONE)
        is_root = parent[0] == _NONE and number[0] != _NONE
        is_next = (number[1:] == number[:-1] + 1) & (parent[1:] == number[:-1])
        depth = 1 + int(np.append(is_next, False).argmin()) if is_root else 0
        called = int(trace.start[rows[depth]]) if depth < len(rows) else np.iinfo(np.int64).max
        by_process[(lane.rank, lane.pid)].append((rows[:depth].astype(np.int64), called))
    found: list[I64] = []
    for threads in by_process.values():
        first_call = min(called for _, called in threads)
        found += [rows for rows, _ in threads if len(rows) and int(trace.start[rows[0]]) <= first_call]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def find_open_names(trace: Trace) -> frozenset[int]:
    """Find the names (indexes into `names`) of frames whose line is the one that ran when the recording began.

    They are those of `find_open_frames`, and of all code outside functions: where it is called, by an import, its line
    is 1. A call of the same function has another name, because it has another line.
    """
    names = set(sorted_unique(np.asarray(trace.name[find_open_frames(trace)])).tolist())
    for number, name in enumerate(trace.names):
        if name.endswith(f": {MODULE_CODE}") and (frame := parse_frame(name)) is not None and frame.line != 1:
            names.add(number)
    return frozenset(names)
