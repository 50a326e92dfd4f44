"""Screen of the profiler's table and related tables: sort, filter, group, restrict to a scope, and inspect a row."""

from __future__ import annotations

from functools import partial

from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message

from torchprof_tui.analysis.search.name_search import is_case_sensitive
from torchprof_tui.analysis.table.gpu_time_shares import compute_gpu_time_shares
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.row_detail import find_row_of_event
from torchprof_tui.analysis.table.trace_profile import Profile
from torchprof_tui.ui.common.list_keys import LIST_BINDINGS, ListScreen
from torchprof_tui.ui.common.messages import PromptChanged, PromptClosed, PromptSubmitted
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.common.prompt_input import Prompt
from torchprof_tui.ui.common.row_list import RowList, RowPicked
from torchprof_tui.ui.common.status_line import StatusLine, format_copy_message
from torchprof_tui.ui.common.terminal_info import follow_theme
from torchprof_tui.ui.explorer.debounced_worker import DebouncedWorker
from torchprof_tui.ui.explorer.panels.panel_dock import PanelTabs
from torchprof_tui.ui.explorer.view_state import ViewState
from torchprof_tui.ui.table import file_export, sheet_rows
from torchprof_tui.ui.table.row_listing import RowListing
from torchprof_tui.ui.table.row_panel import RowPanel
from torchprof_tui.ui.table.scope_choices import list_table_scopes
from torchprof_tui.ui.table.sheet_catalog import (
    ARRIVALS_TAB,
    DEFAULT_SORT_KEYS,
    PICTURES_TAB,
    TABS,
    BuiltSheet,
    format_totals,
)
from torchprof_tui.ui.table.table_worker import (
    RowRead,
    SharesMade,
    SheetMade,
    SheetQuery,
    read_row,
    read_sheet,
)
from torchprof_tui.ui.table.time_share_charts import TimeShareCharts

FILTER_PROMPT, EXPORT_PROMPT = "filter", "write to"
PANEL_MIN_HEIGHT, PANEL_HEIGHT_SHARE = 24, 0.35
"""Minimal height for the panel of the current row below the table, and the panel's share of the height."""

HINTS = (
    ("tab", "table"),
    ("← →", "sort"),
    ("r", "reverse"),
    ("b", "group by"),
    ("v", "scope"),
    ("/", "filter"),
    ("n N", "instance"),
    ("enter", "on the lanes"),
    ("e", "export"),
    ("y Y", "copy"),
    ("esc", "back"),
)


class TableScreen(ListScreen):
    """Dismissed with the event to show on the lanes, or None.

    `profile` is slow to compute, so the caller keeps it for the next time.
    """

    CSS_PATH = "table_screen.tcss"
    AUTO_FOCUS = ""
    BINDINGS = [
        *LIST_BINDINGS,
        Binding("left", "sort(-1)", show=False),
        Binding("right", "sort(1)", show=False),
        Binding("r", "reverse", show=False),
        Binding("tab", "tab(1)", show=False, priority=True),
        Binding("shift+tab", "tab(-1)", show=False, priority=True),
        Binding("b", "group(1)", show=False),
        Binding("B", "group(-1)", show=False),
        Binding("v", "scope", show=False),
        Binding("/", "ask_filter", show=False),
        Binding("n", "instance(1)", show=False),
        Binding("N", "instance(-1)", show=False),
        Binding("enter", "show", show=False),
        Binding("e", "ask_export", show=False),
        Binding("y", "copy(False)", show=False),
        Binding("Y", "copy(True)", show=False),
        Binding("J", "panel(1)", show=False),
        Binding("K", "panel(-1)", show=False),
        Binding("escape,t", "back", show=False),
        Binding("?", "help", show=False),
    ]

    def __init__(self, profile: Profile, view_state: ViewState) -> None:
        super().__init__()
        self.profile = profile
        self.rank = view_state.current_rank()
        self.trace = profile.trace
        self._whole_trace = view_state.trace
        self._event_offset = self.rank.first
        self._shown_tabs = (*TABS[:-1], ARRIVALS_TAB, PICTURES_TAB) if self.rank.is_merged else TABS
        self._scopes = list_table_scopes(profile, view_state)
        self._scope = 0
        self._tab = TABS[0]
        self._group_by = GroupBy.NAME
        self._listing = RowListing(DEFAULT_SORT_KEYS)
        self._built_sheet: BuiltSheet | None = None
        self._column_layout: sheet_rows.ColumnLayout | None = None
        self._target_event = view_state.selected - self._event_offset if view_state.selected >= 0 else -1
        self._tabs = PanelTabs([(tab, tab) for tab in self._shown_tabs])
        self.rows = RowList(self._format_row, self._format_header, id="rows")
        self._panel = RowPanel(id="row-panel")
        self._charts = TimeShareCharts(id="pictures")
        self._status = StatusLine(id="table-status")
        self._prompt = Prompt(id="prompt")
        self._worker = DebouncedWorker(self)

    def compose(self) -> ComposeResult:
        yield self._tabs
        yield self.rows
        yield self._panel
        yield self._charts
        yield self._status
        yield self._prompt

    def on_mount(self) -> None:
        follow_theme(self)
        self._tabs.show_active(self._tab)
        self._status.show_keys(HINTS)
        self._request_sheet()

    def on_resize(self) -> None:
        height = self.size.height
        self.set_class(height < PANEL_MIN_HEIGHT, "low")
        self._panel.styles.height = int(height * PANEL_HEIGHT_SHARE)
        self._column_layout = None

    # -- building a table ----------------------------------------------------------------------------------

    @property
    def _current_query(self) -> SheetQuery:
        return SheetQuery(self._tab, self._group_by, self._scope)

    def _request_sheet(self) -> None:
        self._status.show_message("adding up …")
        self.set_class(self._tab == PICTURES_TAB, "drawn")
        if self._tab == PICTURES_TAB:
            self._worker.submit("sheet", lambda: SharesMade(compute_gpu_time_shares(self.profile)))
            return
        scope = self._scopes[self._scope]
        self._worker.submit("sheet", partial(read_sheet, self.profile, self._whole_trace, self._current_query, scope))

    def on_shares_made(self, message: SharesMade) -> None:
        self._charts.set_shares(message.shares)
        if self._tab == PICTURES_TAB:
            self._status.show_message("whole trace · J K scroll")

    def on_sheet_made(self, message: SheetMade) -> None:
        if message.query != self._current_query:
            return
        self._built_sheet = message.built_sheet
        self._listing.set_sheet(self._tab, None if message.built_sheet is None else message.built_sheet.sheet)
        if message.built_sheet is None:
            self.rows.set_row_count(0)
            self._panel.set_detail("", None)
            self._status.show_message(message.problem, is_warning=True)
            return
        self._refresh_rows()
        table = message.built_sheet.table
        if self._target_event >= 0 and table is not None:
            row = find_row_of_event(self.trace, self.profile.calls, table, self._target_event)
            index = self._listing.index_of(row)
            self._target_event = -1
            if index >= 0:
                self.rows.move_to(index)
                self.handle_cursor_move()

    def _refresh_rows(self) -> None:
        """Sort and filter the rows again and show them."""
        if self._built_sheet is None:
            return
        problem = self._listing.sort_and_filter()
        self._column_layout = None
        self.rows.set_row_count(len(self._listing.order), 0)
        self._update_status(problem)
        self.handle_cursor_move()

    def _update_status(self, problem: str = "") -> None:
        if problem:
            self._status.show_message(problem, is_warning=True)
            return
        assert self._built_sheet is not None
        grouping = f" by {self._group_by.value}" if self._tab == TABS[0] and self._group_by is not GroupBy.NAME else ""
        scope = self._scopes[self._scope].label if self._tab != ARRIVALS_TAB else "all ranks"
        rows = f"{len(self._listing.order):,} of {len(self._built_sheet.sheet):,} rows{grouping} · {scope}"
        case = " (case-sensitive)" if is_case_sensitive(self._listing.filter) else ""
        filter_text = f" · filter {self._listing.filter!r}{case}" if self._listing.filter else ""
        totals = format_totals(self.profile, self._built_sheet, self._tab)
        self._status.show_message(f"{rows}{filter_text} · {totals}" if totals else rows + filter_text)

    # -- painting ------------------------------------------------------------------------------------------

    def _fit_columns(self, width: int) -> sheet_rows.ColumnLayout:
        assert self._built_sheet is not None
        if self._column_layout is None:
            self._column_layout = sheet_rows.fit_columns(self._built_sheet.sheet, width, self._listing.sort_key)
        return self._column_layout

    def _format_header(self, width: int) -> list[TextRun]:
        if self._built_sheet is None:
            return []
        listing = self._listing
        return sheet_rows.format_header(
            self._fit_columns(width), listing.sort_key, listing.descending, self.rows.palette
        )

    def _format_row(self, index: int, width: int, selected: bool) -> list[TextRun]:
        assert self._built_sheet is not None
        row = self._listing.row_at(index)
        return sheet_rows.format_row(
            self._built_sheet.sheet, row, self._fit_columns(width), self.rows.palette, selected
        )

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
        if message.row == self._cursor_row:
            self._panel.set_detail(message.row_name, message.detail)

    # -- keys ----------------------------------------------------------------------------------------------

    def action_move(self, distance: int) -> None:
        if self._tab == PICTURES_TAB:
            self._charts.scroll_lines(distance)
            return
        super().action_move(distance)

    def _has_rows(self) -> bool:
        """Return whether there are rows for a key to act on; say so where there are none."""
        if self._tab == PICTURES_TAB:
            self._status.show_message("these charts have no rows: tab shows the next table")
        return self._built_sheet is not None and self._tab != PICTURES_TAB

    def action_sort(self, direction: int) -> None:
        if self._has_rows():
            self._listing.cycle_sort_column(direction)
            self._refresh_rows()

    def action_reverse(self) -> None:
        if self._has_rows():
            self._listing.descending = not self._listing.descending
            self._refresh_rows()

    def action_tab(self, direction: int) -> None:
        tabs = self._shown_tabs
        self._tab = tabs[(tabs.index(self._tab) + direction) % len(tabs)]
        self._listing.descending = True
        self._tabs.show_active(self._tab)
        self._request_sheet()

    def on_panel_picked(self, message: Message) -> None:
        tab = getattr(message, "panel", self._tab)
        self.action_tab(self._shown_tabs.index(tab) - self._shown_tabs.index(self._tab))

    def action_group(self, direction: int) -> None:
        groupings = list(GroupBy)
        self._group_by = groupings[(groupings.index(self._group_by) + direction) % len(groupings)]
        self._tab = TABS[0]
        self._tabs.show_active(self._tab)
        self._request_sheet()

    def action_scope(self) -> None:
        self._scope = (self._scope + 1) % len(self._scopes)
        self._request_sheet()

    def action_instance(self, distance: int) -> None:
        self._panel.cycle_instance(distance)

    def action_panel(self, direction: int) -> None:
        panel = self._charts if self._tab == PICTURES_TAB else self._panel
        panel.scroll_lines(direction * max(1, panel.size.height - 1))

    def action_show(self) -> None:
        if not self._has_rows():
            return
        if self._panel.selected_event < 0:
            self._status.show_message("no instance to show on the lanes")
            return
        self.dismiss(self._panel.selected_event + (0 if self._tab == ARRIVALS_TAB else self._event_offset))

    def action_help(self) -> None:
        """Show all keys of the status line, which a narrow terminal cuts off."""
        self.notify(" · ".join(f"{key} {description}" for key, description in HINTS), title="keys", markup=False)

    def action_back(self) -> None:
        if self._listing.filter:
            self._listing.filter = ""
            self._refresh_rows()
        else:
            self.dismiss(None)

    def on_row_picked(self, message: RowPicked) -> None:
        self.handle_cursor_move()

    # -- filter and export ---------------------------------------------------------------------------------

    def action_ask_filter(self) -> None:
        self._open_prompt(FILTER_PROMPT, "text, or /regular expression/ · ↑ earlier", self._listing.filter)

    def action_ask_export(self) -> None:
        self._open_prompt(EXPORT_PROMPT, ".csv, .json or .md", "table.csv")

    def _open_prompt(self, purpose: str, hint: str, text: str) -> None:
        if self._has_rows():
            self.add_class("asking")
            self._prompt.open(purpose, hint, text, replace=purpose == FILTER_PROMPT)

    def _close_prompt(self) -> None:
        self.remove_class("asking")
        self._prompt.close()

    def on_prompt_changed(self, message: PromptChanged) -> None:
        if message.purpose == FILTER_PROMPT:
            self._listing.filter = message.text
            self._worker.debounce("filter", self._refresh_rows)

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        """Apply what was typed; on an error the prompt stays open, so that no further character becomes a key."""
        problem = ""
        if message.purpose == FILTER_PROMPT:
            self._listing.filter = message.text
            problem = self._listing.sort_and_filter()
        elif message.text:
            problem = self._export_file(message.text)
        if problem:
            self._prompt.show_hint(problem)
            return
        self._close_prompt()
        if message.purpose == FILTER_PROMPT:
            self._refresh_rows()

    def on_prompt_closed(self, message: PromptClosed) -> None:
        self._close_prompt()
        if message.purpose == FILTER_PROMPT:
            self._listing.filter = ""
            self._refresh_rows()

    def _export_file(self, name: str) -> str:
        """Write the listed rows and show so. Returns why they could not be written, else ""."""
        assert self._built_sheet is not None
        line, written = file_export.write_sheet(self._built_sheet.sheet, self._listing.order, name)
        if not written:
            return line
        self._status.show_message(line)
        return ""

    def action_copy(self, everything: bool) -> None:
        row = self._cursor_row
        if not self._has_rows():
            return
        if self._built_sheet is None or row < 0:
            self._status.show_message("nothing to copy: no row is selected")
            return
        name = str(self._built_sheet.sheet.columns["name"][row])
        self.app.copy_to_clipboard(self._panel.text() if everything else name)
        self._status.show_message(format_copy_message(f"all of the panel of {name}" if everything else name))
