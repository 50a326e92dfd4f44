"""Find annotations that begin with nothing: long before their first op, when others of their name begin at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.host_activity import DATA_LOADER_REGEX
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.arrays import F64, I64


@dataclass(frozen=True, slots=True)
class DeadWindows:
    """k annotations of the trace that begin with nothing. `windows`: from each one's start to its first op.

    `medians` float64[k]: ns that the other annotations of the name take to their first op; `excess` int64[k]: how much
    longer this one takes.
    """

    windows: EventTable
    medians: F64
    excess: I64


def find_dead_windows(tables: TraceTables) -> DeadWindows | None:
    """Find the annotations of the trace that begin with nothing; None where none occurs often enough to compare."""
    annotations, delays = _measure_first_gaps(tables)
    counts = np.bincount(annotations.name) if len(annotations) else np.zeros(1, np.int64)
    if counts.max() < 1 + thresholds.MIN_OTHERS.value:
        return None
    dead: list[int] = []
    excess, medians = [], []
    for name_id in np.flatnonzero(counts >= 1 + thresholds.MIN_OTHERS.value).tolist():
        instances = np.flatnonzero(annotations.name == name_id)
        instance_delays = delays[instances]
        # Without one of n delays the median is at least delay n // 2 of all, ascending; few are that much longer.
        middle = len(instances) // 2 - 1
        lowest_median = int(np.partition(instance_delays, middle)[middle])
        least = max(thresholds.DEAD_WINDOW_MIN.value, thresholds.DEAD_WINDOW_RATIO.value * lowest_median)
        for k in np.flatnonzero(instance_delays >= least).tolist():
            median = float(np.median(np.delete(instance_delays, k)))
            if instance_delays[k] >= thresholds.DEAD_WINDOW_RATIO.value * median:
                dead.append(int(instances[k]))
                excess.append(int(instance_delays[k] - median))
                medians.append(median)
    found = annotations.select(np.array(dead, dtype=np.int64))
    windows = EventTable(found.row, found.start, found.start + delays[dead], found.name) if dead else found
    return DeadWindows(windows, np.array(medians, dtype=np.float64), np.array(excess, dtype=np.int64))


def _measure_first_gaps(tables: TraceTables) -> tuple[EventTable, I64]:
    """Measure the delay from each annotation's start to the first op or call inside.

    Returns (annotations that have one, ns int64[k]). The profiler's own work is left out.
    """
    trace, ranges = tables.trace, tables.annotations
    next_rows = [
        np.append(table.row, len(trace))[table.row.searchsorted(ranges.row)] for table in (tables.ops, tables.calls)
    ]
    first_inner = np.minimum(*next_rows)
    has_inner = first_inner < len(trace)
    first_inner[~has_inner] = 0
    first_start = np.asarray(trace.start[first_inner])
    has_inner &= (trace.lane[first_inner] == trace.lane[ranges.row]) & (first_start < ranges.end)
    has_inner &= ~np.isin(ranges.row, tables.match_names(DATA_LOADER_REGEX).row)  # it waits for its workers
    annotations, first_start = ranges.select(has_inner), first_start[has_inner]
    profiler = tables.overhead_intervals
    return annotations, first_start - annotations.start - (
        profiler.measure_before(first_start) - profiler.measure_before(annotations.start)
    )
