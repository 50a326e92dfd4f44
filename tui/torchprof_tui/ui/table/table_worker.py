"""What the table screen's threads find out, and the messages that they tell it by."""

from __future__ import annotations

from typing import NamedTuple

from textual.message import Message

from torchprof_tui.analysis.table.gpu_time_shares import Shares
from torchprof_tui.analysis.table.groups import NotRecordedError
from torchprof_tui.analysis.table.profiler_table import Profile
from torchprof_tui.analysis.table.row_detail import RowDetail
from torchprof_tui.analysis.table.table_rows import By
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.table.scope_choices import TableScope
from torchprof_tui.ui.table.sheet_catalog import ARRIVALS, Made, arrivals_of, behind, make


class Asked(NamedTuple):
    """Which table: an answer counts while it is the one that is asked for."""

    tab: str
    by: By
    scope: int


class SheetMade(Message):
    """A table is there, or a line that says why not."""

    def __init__(self, asked: Asked, made: Made | None, problem: str = "") -> None:
        super().__init__()
        self.asked, self.made, self.problem = asked, made, problem


class SharesMade(Message):
    """What the pictures are drawn from."""

    def __init__(self, found: Shares) -> None:
        super().__init__()
        self.shares = found


class RowRead(Message):
    """What is behind a row."""

    def __init__(self, row: int, name: str, detail: RowDetail) -> None:
        super().__init__()
        self.row, self.name_shown, self.detail = row, name, detail


def read_sheet(profile: Profile, whole: Trace, asked: Asked, scope: TableScope) -> SheetMade:
    """`whole`: all ranks, where there are several. What the trace cannot tell is said in a line."""
    try:
        if asked.tab == ARRIVALS:
            return SheetMade(asked, arrivals_of(whole))
        return SheetMade(asked, make(profile, asked.tab, asked.by, scope.only()))
    except NotRecordedError as error:
        return SheetMade(asked, None, str(error))
    except (OSError, LookupError) as error:
        return SheetMade(asked, None, f"the trace file cannot be read any more: {error}")


def read_row(profile: Profile, whole: Trace, made: Made, row: int) -> RowRead | None:
    """None for a row without events."""
    detail = behind(profile, whole, made, row)
    return None if detail is None else RowRead(row, str(made.sheet.columns["name"][row]), detail)
