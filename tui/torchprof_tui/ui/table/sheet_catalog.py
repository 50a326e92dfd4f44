"""Which tables there are, how each is made from a trace, and what is behind one of its rows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.collectives.late_arrivals import Arrivals, arrivals
from torchprof_tui.analysis.kernel.duration_distribution import spread
from torchprof_tui.analysis.table import gpu_sheets
from torchprof_tui.analysis.table.arrivals_sheet import arrivals_sheet, row_lines
from torchprof_tui.analysis.table.flops import row_flops
from torchprof_tui.analysis.table.memory_sheet import memory_by_op, peaks
from torchprof_tui.analysis.table.profiler_table import Profile
from torchprof_tui.analysis.table.row_detail import RowDetail, row_detail
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.analysis.table.table_rows import By, Table
from torchprof_tui.analysis.table.table_sheet import table_sheet
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.number_format import format_value

PICTURES = "pictures"
ARRIVALS = "arrivals"
"""Of several ranks: who came late to each collective."""

TABS = ("profiler table", "kernels", "copies", "collectives", "memory", PICTURES)
SORT = {
    "profiler table": "self_gpu",
    "kernels": "total",
    "copies": "total",
    "collectives": "total",
    "memory": "allocated",
    ARRIVALS: "waited",
}


@dataclass(frozen=True)
class Made:
    """A sheet, and what it came from where rows can be opened."""

    sheet: Sheet
    table: Table | None
    arrivals: Arrivals | None = None


def make(profile: Profile, tab: str, by: By, only: Bool | None) -> Made:
    """Raises NotRecordedError, OSError, LookupError where the trace cannot tell."""
    trace = profile.trace
    if tab == "profiler table":
        table = profile.table(by, only)
        flops = None
        if by in (By.NAME, By.SHAPE) and _is_short(profile):
            # Without the file there are no shapes: the table stands without what was computed.
            with suppress(OSError, LookupError):
                flops = row_flops(table, profile.calls, profile.flops())
        return Made(table_sheet(table, profile.calls, flops), table)
    if tab == "kernels":
        return Made(gpu_sheets.kernels(trace, only), None)
    if tab == "copies":
        return Made(gpu_sheets.copies(trace, only), None)
    if tab == "collectives":
        return Made(gpu_sheets.collectives(trace, only), None)
    return Made(memory_by_op(trace, profile.calls, only), None)


def arrivals_of(trace: Trace) -> Made:
    """Over all ranks of a trace; events are numbered as in the whole."""
    assert trace.ranks is not None
    found = arrivals(trace.ranks)
    return Made(arrivals_sheet(found), None, found)


def behind(profile: Profile, whole: Trace, made: Made, row: int) -> RowDetail | None:
    """What is behind one row, None where it has no events. `whole`: all ranks, whose events arrivals are of."""
    if made.table is not None:
        return row_detail(profile.trace, profile.calls, made.table, row)
    events = made.sheet.members_of(row)
    if not len(events):
        return None
    trace = profile.trace if made.arrivals is None else whole
    events = events[np.argsort(trace.start[events], kind="stable")]
    told = () if made.arrivals is None else row_lines(made.arrivals, row)
    start, duration = np.asarray(trace.start[events]), np.asarray(trace.duration[events])
    return RowDetail(events, start, duration, spread(duration), [], [], [], told)


def foot(profile: Profile, made: Made, tab: str) -> str:
    """The line below a table: torch's totals, or each device's peak."""
    if tab == "memory":
        return " · ".join(
            f"{peak.device} peak {format_value(peak.allocated, 'bytes')} at {format_time(peak.allocated_at)}"
            for peak in peaks(profile.trace)
            if peak.allocated >= 0
        )
    return " · ".join(made.sheet.totals)


def _is_short(profile: Profile) -> bool:
    """What was computed is worth a pass over the file where that is short; of large ones the command line tells."""
    return profile.trace.size < 64_000_000
