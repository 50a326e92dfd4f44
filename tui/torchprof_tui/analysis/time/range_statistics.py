"""Statistics of a selected time range: busy time of each lane and GPU, and the names with the most time.

An event that is partly inside the range counts with that part. All times ns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from torchprof_tui.analysis.time.gpu_time import compute_busy_by_device, work_mask
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64, is_in, sum_by_index
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Step, Trace

TOP_NAMES = 10


@record
class LaneTime:
    """One lane in the range. `events`: all that touch it, nested ones too; `busy`: ns covered by outermost events."""

    lane: int
    events: int
    busy: int
    share: float


@record
class NameTime:
    """All events of one name in the range. `self_time` excludes the time of their children."""

    name: str
    count: int
    total: int
    self_time: int

    @property
    def mean(self) -> float:
        return self.total / self.count


@record
class RangeStatistics:
    """`gpu_busy`: device -> ns. `gpu_names` by total time, `cpu_names` by self time, longest first.

    Steps and annotations are no `cpu_names`: what runs in them has names of its own, and would come after them.
    `steps`: those that touch the range; `whole_steps`: how many of them lie entirely in it.
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
    """Compute statistics of the range from t0 to t1 (exclusive).

    `busy`: the result of `compute_busy_by_device(trace)`, if it is available. `candidate_steps`: the steps to count,
    for several ranks those of one. Events without a duration touch the range in which they start. Lanes without an
    event in the range are left out. Costs one pass over the events that start before t1. Raises ValueError for an
    empty range.
    """
    if t1 <= t0:
        raise ValueError(f"no time between {t0} and {t1} ns")
    parts: list[I64] = []
    lanes: list[LaneTime] = []
    for number, lane in enumerate(trace.lanes):
        rows = slice(lane.first, lane.first + int(trace.start[lane.first : lane.last].searchsorted(t1)))
        touching = np.flatnonzero(trace.start[rows] + np.maximum(trace.duration[rows], 1) > t0) + lane.first
        if len(touching):
            parts.append(touching)
            covered = union(*_clip_events(trace, touching[trace.parent[touching] < 0], t0, t1)).total
            lanes.append(LaneTime(number, len(touching), covered, covered / (t1 - t0)))
    events = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    starts, ends = _clip_events(trace, events, t0, t1)
    total = ends - starts
    parent = trace.parent[events]
    has_parent = parent >= 0  # the parents of an event that touches the range touch it too
    self_time = total - sum_by_index(parent[has_parent], total[has_parent], len(trace))[events]
    on_gpu = work_mask(trace.kind[events])
    on_cpu = np.array([lane.role is Role.THREAD for lane in trace.lanes], dtype=np.bool_)[trace.lane[events]]
    on_cpu &= ~is_in(trace.kind[events], (Kind.STEP, Kind.ANNOTATION))
    all_steps = trace.steps if candidate_steps is None else candidate_steps
    steps = [step for step in all_steps if step.start < t1 and step.start + max(step.duration, 1) > t0]
    busy = compute_busy_by_device(trace) if busy is None else busy
    gpu_total, gpu_self, cpu_total, cpu_self = total[on_gpu], self_time[on_gpu], total[on_cpu], self_time[on_cpu]
    return RangeStatistics(
        t0=t0,
        t1=t1,
        events=len(events),
        lanes=lanes,
        gpu_busy={device: intervals.measure_between(t0, t1) for device, intervals in busy.items()},
        gpu_names=_list_top_names(trace, events[on_gpu], gpu_total, gpu_self, gpu_total, max_names),
        cpu_names=_list_top_names(trace, events[on_cpu], cpu_total, cpu_self, cpu_self, max_names),
        steps=steps,
        whole_steps=sum(t0 <= step.start and step.start + step.duration <= t1 for step in steps),
    )


def _clip_events(trace: Trace, events: I64, t0: int, t1: int) -> tuple[I64, I64]:
    """Clip starts and ends of events to the range; an event without a duration stays without one."""
    start = trace.start[events]
    return np.maximum(start, t0), np.minimum(start + trace.duration[events], t1)


def _list_top_names(trace: Trace, events: I64, total: I64, self_time: I64, sort_key: I64, top: int) -> list[NameTime]:
    name = trace.name[events]
    size = len(trace.names)
    counts = np.bincount(name, minlength=size)
    totals, self_times, keys = (sum_by_index(name, times, size) for times in (total, self_time, sort_key))
    present = np.flatnonzero(counts)
    order = present[np.argsort(-keys[present], kind="stable")][:top].tolist()
    return [NameTime(trace.names[code], int(counts[code]), int(totals[code]), int(self_times[code])) for code in order]
