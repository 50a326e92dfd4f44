"""Functions that the table screen runs in workers, and the messages that carry their results."""

from __future__ import annotations

from typing import NamedTuple

from textual.message import Message

from torchprof_tui.analysis.table.event_scope import NotRecordedError
from torchprof_tui.analysis.table.gpu_time_shares import GpuTimeShares
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.row_detail import RowDetail
from torchprof_tui.analysis.table.trace_profile import Profile
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.table.scope_choices import TableScope
from torchprof_tui.ui.table.sheet_catalog import (
    ARRIVALS_TAB,
    BuiltSheet,
    build_late_arrivals,
    build_sheet,
    load_row_detail,
)


class SheetQuery(NamedTuple):
    """The table to show; results for an earlier query are dropped."""

    tab: str
    group_by: GroupBy
    scope: int


class SheetMade(Message):
    """A table was built, or `problem` says why not."""

    def __init__(self, query: SheetQuery, built_sheet: BuiltSheet | None, problem: str = "") -> None:
        super().__init__()
        self.query, self.built_sheet, self.problem = query, built_sheet, problem


class SharesMade(Message):
    """The shares of GPU time were computed, which the charts show."""

    def __init__(self, shares: GpuTimeShares) -> None:
        super().__init__()
        self.shares = shares


class RowRead(Message):
    """The detail of a row was loaded."""

    def __init__(self, row: int, name: str, detail: RowDetail) -> None:
        super().__init__()
        self.row, self.row_name, self.detail = row, name, detail


def read_sheet(profile: Profile, whole_trace: Trace, query: SheetQuery, scope: TableScope) -> SheetMade:
    """Build the table of a query, or a message with the reason why the trace lacks it. `whole_trace`: all ranks."""
    try:
        if query.tab == ARRIVALS_TAB:
            return SheetMade(query, build_late_arrivals(whole_trace))
        built_sheet = build_sheet(profile, query.tab, query.group_by, scope.select_events())
        _ = built_sheet.sheet.displays  # decoded here, not while a frame is painted
        return SheetMade(query, built_sheet)
    except NotRecordedError as error:
        return SheetMade(query, None, str(error))
    except (OSError, LookupError) as error:
        return SheetMade(query, None, f"the trace file can no longer be read: {error}")


def read_row(profile: Profile, whole_trace: Trace, built_sheet: BuiltSheet, row: int) -> RowRead | None:
    """Load the detail of a row; None for a row without events."""
    detail = load_row_detail(profile, whole_trace, built_sheet, row)
    return None if detail is None else RowRead(row, str(built_sheet.sheet.columns["name"][row]), detail)
