"""Find where steps begin and end on the GPU, for the critical path, what-if, diff and check alike."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchprof_tui.analysis.time.gpu_time import work_mask
from torchprof_tui.trace.core.arrays import I32, I64, sorted_unique
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace


def list_gpu_work(trace: Trace) -> Iterator[I32]:
    """Yield the rows of the GPU work of each stream that takes time."""
    for lane in trace.lanes:
        if lane.role is Role.STREAM:
            rows = np.arange(lane.first, lane.last, dtype=np.int32)[work_mask(trace.kind[lane.first : lane.last])]
            yield rows[trace.duration[rows] > 0]


def follow_stream(trace: Trace, rows: I32) -> tuple[I64, I64]:
    """Return when work starts and ends, by lane and start: int64[k] ns each; it follows what runs before it.

    A stream works in order. Recorded times of two works overlap by the resolution of the clock, or because the second
    one was let in while the first one drained: what it adds to its stream begins when the first one has ended. Work
    that ends within an earlier one runs beside it, as branches of a graph do that are recorded on one stream.
    """
    start, end = trace.start[rows], trace.start[rows] + trace.duration[rows]
    begins = np.append(True, trace.lane[rows[1:]] != trace.lane[rows[:-1]])[: len(rows)]
    span = int(end.max(initial=0)) + 1
    before = np.cumsum(begins) * span  # so that no work follows one of another stream
    free = np.maximum.accumulate(np.append(0, end + before)[:-1]) - before
    return np.where(end > free, np.maximum(start, free), start), end


def find_launch_starts(trace: Trace, rows: I64 | I32) -> I64:
    """Find when the calls that launched GPU work began: int64[k] ns.

    Where none was recorded and launched work follows on the stream it was launched before the recording; else nothing
    is known, and it is taken to have been launched when it started.
    """
    launch = trace.links.launch_of[rows]
    lane = trace.lane[rows]
    first = np.zeros(len(trace.lanes), np.int64)
    for number in sorted_unique(lane[launch < 0]).tolist():
        launched = trace.links.launch_of[trace.lanes[number].first : trace.lanes[number].last] >= 0
        first[number] = trace.lanes[number].first + launched.argmax() if launched.any() else 0
    unknown = np.where(rows < first[lane], trace.span[0] - 1, trace.start[rows])
    return np.where(launch >= 0, trace.start[launch], unknown)


def find_completion(launch_start: I64, ends: I64, times: I64) -> I64:
    """Find when all was complete that had been begun before each time: int64[k] ns, never before the time itself.

    `launch_start`, `ends` int64[m]: of GPU work, ns.
    """
    order = np.argsort(launch_start, kind="stable")
    complete = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, ends[order]))
    return np.maximum(times, complete[np.searchsorted(launch_start[order], times, side="left")])


def find_step_bounds(trace: Trace, starts: I64, ends: I64) -> I64:
    """Find the bounds of steps: int64[s + 1] ns, ascending; step i takes from bound i to bound i + 1.

    `starts`, `ends` int64[s]: of the steps on their CPU threads. A thread may run ahead of the GPU by several steps. A
    step is complete when its thread and all work that was launched until then have ended, and the next one begins
    there: what is left of the step before is not part of it. Between two bounds lies what one step adds to the run, and
    no time between steps is left uncounted.
    """
    rows = np.concatenate([np.zeros(0, np.int32), *list_gpu_work(trace)])
    complete = find_completion(
        find_launch_starts(trace, rows), trace.start[rows] + trace.duration[rows], np.append(starts[:1], ends)
    )
    return np.maximum.accumulate(complete)
