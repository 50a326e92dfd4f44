"""What the table screen consists of and shows: building a table, painting its rows, the row under the cursor."""

from __future__ import annotations

from functools import partial

from textual.app import ComposeResult

from torchprof_tui.analysis.table.gpu_time_shares import compute_gpu_time_shares
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.row_detail import find_row_of_event
from torchprof_tui.analysis.table.sheets import format_spans_note
from torchprof_tui.analysis.table.trace_profile import Profile
from torchprof_tui.ui.common.debounced_worker import DebouncedWorker
from torchprof_tui.ui.common.list_keys import ListScreen
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.common.panel_dock import PanelTabs
from torchprof_tui.ui.common.prompt_input import Prompt
from torchprof_tui.ui.common.row_list import RowList
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.common.terminal_info import follow_theme
from torchprof_tui.ui.lanes.view_state import ViewState
from torchprof_tui.ui.table import sheet_rows
from torchprof_tui.ui.table.row_listing import RowListing
from torchprof_tui.ui.table.row_panel import RowPanel
from torchprof_tui.ui.table.scope_choices import list_table_scopes
from torchprof_tui.ui.table.sheet_catalog import (
    ARRIVALS_TAB,
    CHARTS_TAB,
    DEFAULT_SORT_KEYS,
    TABS,
    BuiltSheet,
    format_totals,
)
from torchprof_tui.ui.table.summary_line import format_summary
from torchprof_tui.ui.table.table_keys import HINTS
from torchprof_tui.ui.table.table_worker import (
    RowRead,
    SharesMade,
    SheetMade,
    SheetQuery,
    read_row,
    read_sheet,
)
from torchprof_tui.ui.table.time_share_charts import TimeShareCharts
from torchprof_tui.ui.table.view_history import ViewHistory

PANEL_MIN_HEIGHT, PANEL_HEIGHT_SHARE = 24, 0.35
"""Minimal height for the panel of the current row below the table, and the panel's share of the height."""


class TableScreenView(ListScreen):
    """The widgets of the table screen and what they show. `table_screen` adds the keys."""

    CSS_PATH = "table_screen.tcss"
    AUTO_FOCUS = ""

    def __init__(self, profile: Profile, view_state: ViewState) -> None:
        super().__init__()
        self.profile = profile
        self.rank = view_state.current_rank()
        self.trace = profile.trace
        self._whole_trace = view_state.trace
        self._event_offset = self.rank.first
        self._shown_tabs = (*TABS[:-1], ARRIVALS_TAB, CHARTS_TAB) if self.rank.is_merged else TABS
        self._scopes = list_table_scopes(profile, view_state)
        self._scope = 0
        self._tab = TABS[0]
        self._group_by = GroupBy.NAME
        self._listing = RowListing(DEFAULT_SORT_KEYS)
        self._built_sheet: BuiltSheet | None = None
        self._column_layouts: dict[int, sheet_rows.ColumnLayout] = {}  # by width
        self._history = ViewHistory()
        self._row_to_show = -1  # row of the sheet to move to once it is built
        self._target_event = view_state.selected - self._event_offset if view_state.selected >= 0 else -1
        self._tabs = PanelTabs([(tab, tab) for tab in self._shown_tabs])
        self.rows = RowList(self._format_row, self._format_header, id="rows")
        self._panel = RowPanel(id="row-panel")
        self._charts = TimeShareCharts(id="charts")
        self._summary = StatusLine(id="table-summary")
        self._status = StatusLine(id="table-status")
        self._prompt = Prompt(id="prompt")
        self._worker = DebouncedWorker(self)

    def compose(self) -> ComposeResult:
        yield self._tabs
        yield self.rows
        yield self._panel
        yield self._charts
        yield self._summary
        yield self._status
        yield self._prompt

    def on_mount(self) -> None:
        follow_theme(self)
        self._show_tab()
        self._status.show_keys(HINTS)
        self._request_sheet()

    def _show_tab(self) -> None:
        self._tabs.show_active(self._tab, {self._tab: 0}, has_keys=False)

    def on_resize(self) -> None:
        height = self.size.height
        self.set_class(height < PANEL_MIN_HEIGHT, "low")
        self._panel.styles.height = int(height * PANEL_HEIGHT_SHARE)

    # -- building a table ----------------------------------------------------------------------------------

    @property
    def _current_query(self) -> SheetQuery:
        return SheetQuery(self._tab, self._group_by, self._scope)

    def _request_sheet(self) -> None:
        self._status.show_message("adding up …")
        self.set_class(self._tab == CHARTS_TAB, "drawn")
        if self._tab == CHARTS_TAB:
            self._worker.submit("sheet", lambda: SharesMade(compute_gpu_time_shares(self.profile)))
            return
        scope = self._scopes[self._scope]
        self._worker.submit("sheet", partial(read_sheet, self.profile, self._whole_trace, self._current_query, scope))

    def on_shares_made(self, message: SharesMade) -> None:
        self._charts.set_shares(message.shares)
        if self._tab == CHARTS_TAB:
            self._summary.show_message(self.profile.trace.part or "whole trace")
            self._status.show_message("")

    def on_sheet_made(self, message: SheetMade) -> None:
        if message.query != self._current_query:
            return
        built, self._built_sheet = message.built_sheet, message.built_sheet
        self._status.show_message("")
        self._listing.set_sheet(self._tab, None if built is None else built.sheet)
        if built is None:
            self.rows.empty_text = f"{message.problem}. b: another grouping; tab: the next table."
            self.rows.set_row_count(0)
            self._panel.set_detail("", None)
            self._summary.show_message("no rows")
            return
        self._refresh_rows()
        row, self._row_to_show = self._row_to_show, -1
        if self._target_event >= 0 and built.table is not None:
            row = find_row_of_event(self.trace, self.profile.calls, built.table, self._target_event)
            self._target_event = -1
        self._move_to_row(row)

    def _move_to_row(self, row: int) -> None:
        """Move the cursor to a row of the sheet, if it is listed."""
        index = self._listing.index_of(row) if row >= 0 else -1
        if index >= 0:
            self.rows.move_to(index)
            self.handle_cursor_move()

    def _refresh_rows(self) -> str:
        """Sort and filter the rows again and show them. Returns what is wrong with the filter, else ""."""
        if self._built_sheet is None:
            return ""
        problem = self._listing.sort_and_filter()
        listing = self._listing
        self._column_layouts.clear()
        self.rows.empty_text = self._built_sheet.empty_reason or f"no match for {listing.filter!r}. esc: all rows."
        self.rows.set_row_count(listing.line_count, 0)
        totals = format_totals(self.profile, self._built_sheet, self._tab)
        scope = self._scopes[self._scope].label if self._tab != ARRIVALS_TAB else "all ranks"
        group_by = self._group_by if self._tab == TABS[0] else GroupBy.NAME
        self._summary.show_message(format_summary(listing, group_by, scope, totals))
        self.handle_cursor_move()
        return problem

    # -- painting ------------------------------------------------------------------------------------------

    def _fit_columns(self, width: int) -> sheet_rows.ColumnLayout:
        assert self._built_sheet is not None
        if width not in self._column_layouts:
            layout = sheet_rows.fit_columns(self._built_sheet.sheet, width, self._listing.sort_key)
            self._column_layouts = {width: layout}
        return self._column_layouts[width]

    def _format_header(self, width: int) -> list[TextRun]:
        if self._built_sheet is None or not len(self._built_sheet.sheet):
            return []
        listing = self._listing
        return sheet_rows.format_header(
            self._fit_columns(width), listing.sort_key, listing.descending, self.rows.palette
        )

    def _format_row(self, index: int, width: int, selected: bool) -> list[TextRun]:
        assert self._built_sheet is not None
        sheet, row = self._built_sheet.sheet, self._listing.row_at(index)
        if row < 0:
            return sheet_rows.format_section(format_spans_note(sheet), width, self.rows.palette)
        return sheet_rows.format_row(sheet, row, self._fit_columns(width), self.rows.palette, selected)

    # -- the row under the cursor --------------------------------------------------------------------------

    @property
    def _cursor_row(self) -> int:
        """The row of the sheet under the cursor, -1 in an empty list."""
        return self._listing.row_at(self.rows.cursor)

    def handle_cursor_move(self) -> None:
        """Load the detail of the row under the cursor."""
        row = self._cursor_row
        if row < 0 or self._built_sheet is None:
            self._panel.set_detail("", None)
            return
        self._worker.submit("row", partial(read_row, self.profile, self._whole_trace, self._built_sheet, row))

    def on_row_read(self, message: RowRead) -> None:
        if message.row == self._cursor_row and self._built_sheet is not None:
            self._panel.set_detail(message.row_name, message.detail, self._built_sheet.sheet.displays[message.row])
