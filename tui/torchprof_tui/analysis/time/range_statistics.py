"""What happened in a marked range of time: how busy each lane and GPU was, and which names took the time.

An event that is only partly inside counts with its part. All times ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.time.gpu_time import compute_busy_by_device, work_mask
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Step, Trace

TOP_NAMES = 10


@dataclass(frozen=True, slots=True)
class LaneTime:
    """One lane in the range: `busy` ns that its outermost events cover, `events` that touch it (nested ones too)."""

    lane: int
    events: int
    busy: int
    share: float


@dataclass(frozen=True, slots=True)
class NameTime:
    """All events of one name in the range. `self_time` leaves out what their children took."""

    name: str
    count: int
    total: int
    self_time: int

    @property
    def mean(self) -> float:
        return self.total / self.count


@dataclass(frozen=True, slots=True)
class RangeStatistics:
    """`gpu_busy`: device -> ns. `gpu_names` by total time, `cpu_names` by self time, longest first.

    `steps`: those that touch the range; `whole_steps` of them lie in it entirely.
    """

    t0: int
    t1: int
    events: int
    lanes: list[LaneTime]
    gpu_busy: dict[int, int]
    gpu_names: list[NameTime]
    cpu_names: list[NameTime]
    steps: list[Step]
    whole_steps: int

    @property
    def duration(self) -> int:
        return self.t1 - self.t0


def compute_range_statistics(
    trace: Trace,
    t0: int,
    t1: int,
    busy: Mapping[int, Intervals] | None = None,
    max_names: int = TOP_NAMES,
    candidate_steps: Sequence[Step] | None = None,
) -> RangeStatistics:
    """Statistics of t0 up to, not with, t1. `busy` is `busy_by_device(trace)`, where somebody has it already;
    `of_steps` are the steps to count: of several ranks, those of one.

    Events without a duration touch the range they start in. Lanes without an event in it are left out. One pass
    over the events that start before t1. Raises ValueError for an empty range.
    """
    if t1 <= t0:
        raise ValueError(f"no time between {t0} and {t1} ns")
    parts: list[I64] = []
    lanes: list[LaneTime] = []
    for number, lane in enumerate(trace.lanes):
        touching = _find_touching(trace, lane.first, lane.last, t0, t1)
        if len(touching):
            parts.append(touching)
            outermost = touching[trace.parent[touching] < 0]
            covered = union(*_clip_events(trace, outermost, t0, t1)).total
            lanes.append(LaneTime(number, len(touching), covered, covered / (t1 - t0)))
    events = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    starts, ends = _clip_events(trace, events, t0, t1)
    total = ends - starts
    own = total - _sum_children(trace, events, total)
    on_gpu = work_mask(trace.kind[events])
    on_cpu = np.array([lane.role is Role.THREAD for lane in trace.lanes], dtype=np.bool_)[trace.lane[events]]
    all_steps = trace.steps if candidate_steps is None else candidate_steps
    steps = [step for step in all_steps if step.start < t1 and step.start + max(step.duration, 1) > t0]
    return RangeStatistics(
        t0,
        t1,
        len(events),
        lanes,
        {
            device: worked.measure_between(t0, t1)
            for device, worked in (compute_busy_by_device(trace) if busy is None else busy).items()
        },
        _list_top_names(trace, events[on_gpu], total[on_gpu], own[on_gpu], total[on_gpu], max_names),
        _list_top_names(trace, events[on_cpu], total[on_cpu], own[on_cpu], own[on_cpu], max_names),
        steps,
        sum(t0 <= step.start and step.start + step.duration <= t1 for step in steps),
    )


def _find_touching(trace: Trace, first: int, last: int, t0: int, t1: int) -> I64:
    """Those of the events first..last, one lane's, that have a part in the range."""
    last = first + int(trace.start[first:last].searchsorted(t1))
    end = trace.start[first:last] + np.maximum(trace.duration[first:last], 1)
    return np.flatnonzero(end > t0) + first


def _clip_events(trace: Trace, events: I64, t0: int, t1: int) -> tuple[I64, I64]:
    """Starts and ends inside the range; an event without a duration has none inside either."""
    start = trace.start[events]
    return np.maximum(start, t0), np.minimum(start + trace.duration[events], t1)


def _sum_children(trace: Trace, events: I64, total: I64) -> I64:
    """int64[k]: what the children of each event take of the range. Who has a part in it, has its parents there too."""
    parent = trace.parent[events]
    has_parent = parent >= 0
    # float64 sums are exact up to 2**53 ns: a hundred days.
    taken = np.bincount(parent[has_parent], weights=total[has_parent], minlength=len(trace))
    return taken[events].astype(np.int64)


def _list_top_names(trace: Trace, events: I64, total: I64, own: I64, key: I64, top: int) -> list[NameTime]:
    """The names with the greatest sum of `key`."""
    name = trace.name[events]
    size = len(trace.names)
    counts = np.bincount(name, minlength=size)
    totals, owns, keys = (np.bincount(name, weights=times, minlength=size) for times in (total, own, key))
    present = np.flatnonzero(counts)
    order = present[np.argsort(-keys[present], kind="stable")][:top].tolist()
    return [NameTime(trace.names[place], int(counts[place]), int(totals[place]), int(owns[place])) for place in order]
