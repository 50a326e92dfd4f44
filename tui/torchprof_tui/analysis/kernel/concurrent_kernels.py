"""Measure for how much of a kernel's time other kernels run on the same GPU."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

_KERNELS = (int(Kind.KERNEL), int(Kind.COLLECTIVE))


def measure_concurrent_share(trace: Trace, event: int) -> float:
    """Measure the share of an event's duration, 0..1, during which another kernel runs on its device.

    Copies do not count: they use no SM. 0 for an event without duration.
    """
    view = trace.event(event)
    start, end, lane = view.start, view.start + view.duration, view.lane
    if end <= start:
        return 0.0
    starts, ends = [], []
    for other in trace.lanes:
        if other.role is not Role.STREAM or (other.device, other.rank, other.pid) != (lane.device, lane.rank, lane.pid):
            continue
        before_end = int(np.searchsorted(trace.start[other.first : other.last], end))
        rows = np.arange(other.first, other.first + before_end)
        overlaps = (trace.start[rows] + trace.duration[rows] > start) & np.isin(trace.kind[rows], _KERNELS)
        rows = rows[overlaps & (rows != event)]
        starts.append(np.maximum(trace.start[rows], start))
        ends.append(np.minimum(trace.start[rows] + trace.duration[rows], end))
    if not starts:
        return 0.0
    covered = _measure_union(np.concatenate(starts), np.concatenate(ends))
    return covered / (end - start)


def _measure_union(starts: I64, ends: I64) -> int:
    """Measure the time that intervals cover together, in ns."""
    if not len(starts):
        return 0
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reached = np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]])
    return int(np.maximum(ends - np.maximum(starts, reached), 0).sum())
