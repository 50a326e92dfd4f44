"""Measure the time of the main thread outside all ops, which no row of the profiler's table has."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from torchprof_tui.analysis.table.counted_calls import find_main_lane
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.analysis.table.table_sheet import DATA_LOADING_PREFIX
from torchprof_tui.analysis.table.totals import CallTotals
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

MIN_SHARE = 0.2
"""Share of the window from which the line is shown: less than a fifth is no surprise next to a table of ops."""

_ROW_KINDS = (Kind.OP, Kind.RUNTIME, Kind.OVERHEAD)


@dataclass(frozen=True, slots=True)
class OutsideOps:
    """`time` ns of the `window` ns (the steps, or from the first op to the last) in which no op ran."""

    time: int
    window: int
    has_frames: bool


def measure_outside_ops(trace: Trace) -> OutsideOps | None:
    """Measure a trace without GPU work. None where there is such work, no op, or less than MIN_SHARE.

    Loading data counts as work, because the table has a row for it, as do runtime calls and the profiler's overhead.
    """
    if trace.links.gpu_events or trace.format != "kineto":
        return None
    on_main = np.flatnonzero(trace.lane == find_main_lane(trace))
    is_row = np.isin(trace.kind[on_main], [int(kind) for kind in _ROW_KINDS])
    loading = [index for index, name in enumerate(trace.names) if name.startswith(DATA_LOADING_PREFIX)]
    rows = on_main[is_row | np.isin(trace.name[on_main], loading)]
    if not len(rows):
        return None
    start, end = np.asarray(trace.start[rows]), np.asarray(trace.start[rows] + trace.duration[rows])
    if trace.steps:
        t0, t1 = trace.steps[0].start, max(step.start + step.duration for step in trace.steps)
    else:
        t0, t1 = int(start.min()), int(end.max())
    time = (t1 - t0) - union(start, end).clip(t0, t1).total
    if time < MIN_SHARE * (t1 - t0) or t1 <= t0:
        return None
    return OutsideOps(time, t1 - t0, bool((trace.kind == Kind.PYTHON).any()))


def add_outside_ops(sheet: Sheet, trace: Trace, frames_hint: str, record_hint: str) -> Sheet:
    """Add a line before the totals: ``outside ops: 573 ms of 857 ms (T shows the frames)``.

    `frames_hint` says where recorded Python frames are shown, `record_hint` how to record them.
    """
    outside = measure_outside_ops(trace)
    if outside is None:
        return sheet
    hint = frames_hint if outside.has_frames else record_hint
    line = f"outside ops: {format_duration(outside.time)} of {format_duration(outside.window)} ({hint})"
    sums = sheet.sums
    if isinstance(sums, CallTotals):
        sums = replace(sums, outside_ops=outside.time, outside_window=outside.window)
    return replace(sheet, totals=(line, *sheet.totals), sums=sums)
