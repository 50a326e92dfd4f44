"""The tables of the screen, built in workers: each from a trace, with the detail of a row, and as a message."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from torchprof_tui.analysis.collectives.communication_waiting import Arrivals, compute_arrivals
from torchprof_tui.analysis.kernel.kernel_summary import compute_duration_statistics
from torchprof_tui.analysis.repetition.repetitions import find_repetitions
from torchprof_tui.analysis.table import gpu_sheets
from torchprof_tui.analysis.table.event_scope import NotRecordedError
from torchprof_tui.analysis.table.flops import sum_row_flops
from torchprof_tui.analysis.table.gpu_sheets import build_arrivals_sheet, format_rank_arrivals
from torchprof_tui.analysis.table.groups import Profile, add_serving_columns
from torchprof_tui.analysis.table.memory_sheet import build_memory_sheet, find_memory_peaks
from torchprof_tui.analysis.table.profiler_table import GroupBy, ProfilerTable
from torchprof_tui.analysis.table.repetitions_sheet import (
    build_repetitions_sheet,
    find_row_repetitions,
    format_difference,
    format_pattern,
)
from torchprof_tui.analysis.table.row_detail import RowDetail, build_row_detail
from torchprof_tui.analysis.table.sheets import RepetitionTotals, Sheet, explain_empty_sheet, list_tables_with_rows
from torchprof_tui.analysis.table.table_sheet import (
    add_outside_ops,
    build_table_sheet,
    drop_empty_gpu_columns,
)
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.number_format import format_value
from torchprof_tui.ui.table.scope_choices import TableScope

CHARTS_TAB = "charts"
ARRIVALS_TAB = "arrivals"  # table for several ranks: which rank arrived late at each collective

REPETITIONS_TAB = "repeats"  # table of tokens, iterations and layers that were found in the order of the kernels
TABS = ("profiler table", "kernels", "copies", "collectives", "memory", REPETITIONS_TAB, CHARTS_TAB)
DEFAULT_SORT_KEYS = {
    "profiler table": "self_gpu",
    "kernels": "total",
    "copies": "total",
    "collectives": "total",
    "memory": "allocated",
    REPETITIONS_TAB: "p50",
    ARRIVALS_TAB: "waited",
}


@record(slots=False)
class BuiltSheet:
    """A sheet, and the data that it was built from, to load the detail of a row.

    `empty_reason`: why it has no rows and which table has some; "" for a sheet with rows.
    """

    sheet: Sheet
    table: ProfilerTable | None
    arrivals: Arrivals | None = None
    empty_reason: str = ""


def build_sheet(profile: Profile, tab: str, group_by: GroupBy, event_mask: Bool | None) -> BuiltSheet:
    """Build the sheet of a tab. Raises NotRecordedError, OSError, LookupError if the trace lacks the data."""
    trace = profile.trace
    table = None
    build_gpu_sheet = {
        "kernels": gpu_sheets.build_kernels_sheet,
        "copies": gpu_sheets.build_copies_sheet,
        "collectives": gpu_sheets.build_collectives_sheet,
    }.get(tab)
    if build_gpu_sheet is not None:
        sheet = build_gpu_sheet(trace, event_mask)
    elif tab == REPETITIONS_TAB:
        sheet = build_repetitions_sheet(trace, find_repetitions(trace))
    elif tab == TABS[0]:
        table = profile.build_table(group_by, event_mask)
        sheet = _build_profiler_sheet(profile, table, group_by, event_mask)
    else:
        sheet = build_memory_sheet(trace, profile.own_calls, event_mask)
    if len(sheet):
        return BuiltSheet(sheet, table)
    name = tab if table is None else "kernels" if group_by is GroupBy.CLASS else "calls"
    return BuiltSheet(sheet, table, None, format_empty_reason(trace, name, event_mask is not None))


def format_empty_reason(trace: Trace, table_name: str, is_restricted: bool) -> str:
    """Format why a table has no rows, and which tables have some."""
    reason = f"{explain_empty_sheet(trace, table_name, is_restricted)}."
    with_rows = [TABS[0], *list_tables_with_rows(trace)] if len(trace) else []
    others = ", ".join(table for table in with_rows if table not in (table_name, "calls"))
    scope = " v: another scope." if is_restricted else ""
    return f"{reason}{scope} Tables with rows (tab): {others}." if others else f"{reason}{scope}"


MAX_FLOPS_SIZE = 64_000_000
"""Bytes of a trace up to which FLOPs are worth a pass over the file; of larger ones the command line computes them."""


def _build_profiler_sheet(profile: Profile, table: ProfilerTable, group_by: GroupBy, event_mask: Bool | None) -> Sheet:
    trace = profile.trace
    flops = None
    if group_by in (GroupBy.NAME, GroupBy.SHAPE) and trace.size < MAX_FLOPS_SIZE:
        # If the file cannot be read there are no shapes, and the table has no FLOPs.
        with suppress(OSError, LookupError):
            flops = sum_row_flops(table, profile.calls, profile.flops())
    if flops is not None and np.isnan(flops.flops).all():
        flops = None
    sheet = build_table_sheet(table, profile.calls, flops)
    # By the trace, not the scope: a range without GPU work keeps its columns.
    sheet = sheet if profile.calls.on_gpu.any() else drop_empty_gpu_columns(sheet)
    sheet = add_serving_columns(sheet, group_by, trace, event_mask)
    if event_mask is None:
        sheet = add_outside_ops(sheet, trace, "T shows the frames", "r: record again with stacks, --with-stack")
    return sheet


def build_late_arrivals(trace: Trace) -> BuiltSheet:
    """Build the sheet of late arrivals over all ranks; events are indices into the merged trace."""
    assert trace.merged_ranks is not None
    arrivals = compute_arrivals(trace.merged_ranks)
    sheet = build_arrivals_sheet(arrivals)
    return BuiltSheet(sheet, None, arrivals, "" if len(sheet) else format_empty_reason(trace, ARRIVALS_TAB, False))


def load_row_detail(profile: Profile, whole_trace: Trace, built_sheet: BuiltSheet, row: int) -> RowDetail | None:
    """Load the detail of one row, None if it has no events. `whole_trace`: all ranks, for the sheet of arrivals."""
    if built_sheet.table is not None:
        return build_row_detail(profile.trace, profile.calls, built_sheet.table, row)
    if isinstance(built_sheet.sheet.sums, RepetitionTotals):
        return _build_repetition_detail(profile.trace, built_sheet.sheet.sums, row)
    events = built_sheet.sheet.members_of(row)
    if not len(events):
        return None
    trace = profile.trace if built_sheet.arrivals is None else whole_trace
    events = events[np.argsort(trace.start[events], kind="stable")]
    message_lines = () if built_sheet.arrivals is None else format_rank_arrivals(built_sheet.arrivals, row)
    start, duration = np.asarray(trace.start[events]), np.asarray(trace.duration[events])
    return RowDetail(events, start, duration, compute_duration_statistics(duration), [], [], [], message_lines)


def _build_repetition_detail(trace: Trace, sums: RepetitionTotals, row: int) -> RowDetail:
    """Build the detail of a row of repetitions: its instances last from their first kernel to their last.

    It begins with what the row's pattern is, which the line below the table says of all patterns, or cuts.
    """
    repetitions = find_repetitions(trace)
    pattern, index = find_row_repetitions(repetitions, row)
    index = index[np.argsort(pattern.start[index], kind="stable")]
    duration = pattern.duration[index]
    totals = next(each for each in sums.patterns if each.label == pattern.label)
    lines = [
        f"pattern {format_pattern(totals, sums.unit)}",
        f"its repetitions count from #0; the most typical one is at {format_time(int(pattern.start[pattern.shown]))}",
    ]
    if pattern.differing:
        lines.append(f"{pattern.differing} of {len(pattern)} differ{'s' * (pattern.differing == 1)} from it:")
    lines += [format_difference(found, len(pattern)) for found in pattern.differences]
    events = repetitions.sequence.events[pattern.first[index]]
    return RowDetail(
        events, pattern.start[index], duration, compute_duration_statistics(duration), [], [], [], tuple(lines)
    )


def format_totals(profile: Profile, built_sheet: BuiltSheet, tab: str) -> str:
    """Format the line below a table: torch's totals, or the memory peak of each device."""
    if tab == "memory":
        peaks = [
            f"{peak.device} peak {format_value(peak.allocated, 'bytes')} at {format_time(peak.allocated_at)}"
            for peak in find_memory_peaks(profile.trace)
            if peak.allocated >= 0
        ]
        return " · ".join((*peaks, *built_sheet.sheet.totals))
    return " · ".join(built_sheet.sheet.totals)


class SheetQuery(NamedTuple):
    """The table to show; results for an earlier query are dropped."""

    tab: str
    group_by: GroupBy
    scope: int


def read_sheet(profile: Profile, whole_trace: Trace, query: SheetQuery, scope: TableScope) -> BuiltSheet | str:
    """Build the table of a query, or say why the trace lacks it. `whole_trace`: all ranks."""
    try:
        if query.tab == ARRIVALS_TAB:
            return build_late_arrivals(whole_trace)
        built_sheet = build_sheet(profile, query.tab, query.group_by, scope.select_events())
        _ = built_sheet.sheet.displays  # decoded here, not while a frame is painted
        return built_sheet
    except NotRecordedError as error:
        return str(error)
    except (OSError, LookupError) as error:
        return f"the trace file can no longer be read: {error}"
