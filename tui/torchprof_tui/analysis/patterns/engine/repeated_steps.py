"""Find steps that launched the same work, so that the same position of each can be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.arrays import F64, I64


@dataclass(frozen=True, slots=True)
class RepeatedSteps:
    """s steps of k pieces of work each, on the device with most work.

    Pieces are ordered by stream, then start: the order between streams varies from step to step, the order within one
    stream does not. `steps` int64[s]: indices into `TraceTables.steps`; `events` int64[s, k]; `gap_start` and `gap_end`
    int64[s, k] ns: the gap before each piece in which the device was idle, empty before a step's first piece;
    `previous_event` int64[s, k]: the event that ended last before it, -1 for none.
    """

    steps: I64
    events: I64
    gap_start: I64
    gap_end: I64
    previous_event: I64


def find_repeated_steps(tables: TraceTables) -> RepeatedSteps:
    """Find the largest set of steps whose streams run the same names in the same order."""
    work, step = tables.work, tables.launch_step
    if not (step >= 0).any():
        return _no_steps()
    device = np.bincount(np.searchsorted(tables.devices, work.device)).argmax()
    on_device = np.flatnonzero(work.device == tables.devices[int(device)])
    step = step[on_device]
    start, end = work.events.start[on_device], work.events.end[on_device]
    # Earlier work of any stream and step counts: a gap is time that none of it covers.
    latest_end = np.maximum.accumulate(end)
    latest_index = np.maximum.accumulate(np.where(end == latest_end, np.arange(len(end)), 0))
    gap_start = np.minimum(np.append(start[:1], latest_end[:-1]), start)
    previous_event = np.append(-1, work.events.row[on_device[latest_index[:-1]]])
    # Work is sorted by start, so the first index of each step is its first piece in time.
    first_in_step = np.unique(step, return_index=True)[1]
    gap_start[first_in_step] = start[first_in_step]

    in_step = np.flatnonzero(step >= 0)
    if not len(in_step):
        return _no_steps()  # the steps launched work on other devices only
    order = in_step[np.lexsort((start[in_step], work.lane[on_device][in_step], step[in_step]))]
    work_by_step = np.split(order, np.flatnonzero(np.diff(step[order])) + 1)
    steps_by_work: dict[bytes, list[int]] = {}
    for step_index, work_indices in enumerate(work_by_step):
        key = np.stack([work.events.name[on_device[work_indices]], work.lane[on_device[work_indices]]]).tobytes()
        steps_by_work.setdefault(key, []).append(step_index)
    positions = np.stack([work_by_step[step_index] for step_index in max(steps_by_work.values(), key=len)])
    return RepeatedSteps(
        step[positions[:, 0]],
        work.events.row[on_device[positions]],
        gap_start[positions],
        start[positions],
        previous_event[positions],
    )


def _no_steps() -> RepeatedSteps:
    empty = np.empty((0, 0), dtype=np.int64)
    return RepeatedSteps(np.empty(0, dtype=np.int64), empty, empty, empty, empty)


def find_one_off_gaps(repeats: RepeatedSteps) -> tuple[I64, I64, F64]:
    """Find gaps between two pieces of work of one step that no other step has at that position. Needs three steps.

    Each is before the work at `position` of the repeated step `step`: (step, position, float64[m] ns: the median of the
    other steps at that position), indices int64[m].
    """
    gap = repeats.gap_end - repeats.gap_start
    if not gap.size:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, np.empty(0)
    ordered = np.sort(gap, axis=0)
    step_count = len(gap)
    # The median of the other steps: the longest gap is left out.
    other_gaps = ordered[:-1]
    median_of_others = (other_gaps[(step_count - 2) // 2] + other_gaps[(step_count - 1) // 2]) / 2
    longest = gap.argmax(axis=0)
    limit = np.maximum(thresholds.ONE_OFF_RATIO.value * median_of_others, thresholds.ONE_OFF_MIN.value)
    position = np.flatnonzero((ordered[-1] >= limit) & (ordered[-2] < limit))
    return longest[position], position, median_of_others[position]
