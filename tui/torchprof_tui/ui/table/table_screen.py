"""Screen of the profiler's table and related tables: sort, filter, group, restrict to a scope, and inspect a row."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult

from torchprof_tui.analysis.table.groups import GpuTimeShares, Profile, compute_gpu_time_shares
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.row_detail import RowDetail, find_row_of_event
from torchprof_tui.analysis.table.sheets import format_spans_note
from torchprof_tui.analysis.table.table_reading import describe_row, has_balance
from torchprof_tui.analysis.table.table_sheet import read_balance
from torchprof_tui.analysis.words.dictionary import Word, find_event_word
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.child_screen import MAX_VIEWS, SEARCH_HINT, ListScreen, cycle
from torchprof_tui.ui.common.name_display import clean, format_found
from torchprof_tui.ui.common.painted_widget import HeaderPicked, RowList, TextRun, wrap_text
from torchprof_tui.ui.common.panel_dock import PanelPicked, PanelTabs
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.lanes.view_state import ViewState
from torchprof_tui.ui.table import sheet_rows
from torchprof_tui.ui.table.row_panel import RowPanel
from torchprof_tui.ui.table.scope_choices import list_table_scopes
from torchprof_tui.ui.table.sheet_catalog import (
    ARRIVALS_TAB,
    CHARTS_TAB,
    DEFAULT_SORT_KEYS,
    REPETITIONS_TAB,
    TABS,
    BuiltSheet,
    SheetQuery,
    format_totals,
    load_row_detail,
    read_sheet,
)
from torchprof_tui.ui.table.sheet_rows import RowListing, TableView, format_summary, push_view
from torchprof_tui.ui.table.time_share_charts import TimeShareCharts

PANEL_MIN_HEIGHT, PANEL_HEIGHT_SHARE = 24, 0.35
"""Minimal height for the panel of the current row below the table, and the panel's share of the height."""

PANEL_MOST_LINES, SHORT_PANEL_LINES = 14, 7
"""Its most lines, and those of tables whose rows have neither callers nor callees."""

MOST_LINES_BELOW = 3  # lines that the sentence under the table and the totals take at most, each
EXPORT_PROMPT = "write to"
MEASURING = "measuring what limits …"  # in the line of the sentence under the table, until it is known


class TableScreen(ListScreen):
    """Dismissed with the event to show on the lanes, or None.

    `profile` is slow to compute, so the caller keeps it for the next time.
    """

    BINDINGS = keys.TABLE
    help_topic = "table"
    SEARCH = "filter"
    CSS_PATH = "table_screen.tcss"

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
        self._history: deque[TableView] = deque(maxlen=MAX_VIEWS)
        self._row_to_show = -1  # row of the sheet to move to once it is built
        self._is_loading = True
        self._detail_row = -1  # row of the sheet whose detail the panel shows
        self._keys_after_show: list[events.Key] | None = None  # since enter was pressed before that detail was there
        self._target_event = view_state.selected - self._event_offset if view_state.selected >= 0 else -1
        self._tabs = PanelTabs([(tab, tab) for tab in self._shown_tabs])
        self.rows = RowList(self._format_row, self._format_header, id="rows")
        self._panel = RowPanel(id="row-panel")
        self._charts = TimeShareCharts(id="charts")
        self._reading = StatusLine(id="table-reading")
        self._summary = StatusLine(id="table-summary")
        self._summary_text = ""

    def compose(self) -> ComposeResult:
        yield from (self._tabs, self.rows, self._panel, self._charts)
        yield from (self._reading, self._summary, self._status, self._prompt)

    def on_mount(self) -> None:
        self._show_tab()
        self.follow_theme(keys.TABLE_HINTS)
        self._request_sheet()

    def _show_tab(self) -> None:
        self._tabs.show_active(self._tab, {self._tab: 0}, has_keys=False)

    def on_resize(self) -> None:
        self.set_class(self.size.height < PANEL_MIN_HEIGHT, "low")
        self._fit_panels()

    def _fit_panels(self) -> None:
        """Give the panel of the row no more lines than its rows fill, and the sentence those that it needs."""
        has_more = self._tab in (TABS[0], ARRIVALS_TAB, REPETITIONS_TAB)
        most = PANEL_MOST_LINES if has_more else SHORT_PANEL_LINES
        self._panel.styles.height = min(int(self.size.height * PANEL_HEIGHT_SHARE), most)
        width, text = self.size.width - 2, self._summary_text
        self._summary.show_message(text if cell_len(text) <= width else text.replace(" time total:", ""))
        for line in (self._reading, self._summary):
            wrapped = wrap_text(clean(line.message), width, line.palette.text)
            line.styles.height = max(1, min(len(wrapped), MOST_LINES_BELOW))

    @property
    def _current_query(self) -> SheetQuery:
        return SheetQuery(self._tab, self._group_by, self._scope)

    def _request_sheet(self) -> None:
        self._status.show_message("adding up …")
        self._is_loading, self._keys_after_show = self._tab != CHARTS_TAB, None
        self.set_class(self._tab == CHARTS_TAB, "drawn")
        if self._tab == CHARTS_TAB:
            self._worker.answer("sheet", partial(compute_gpu_time_shares, self.profile), self._show_shares)
            return
        query, scope = self._current_query, self._scopes[self._scope]
        work = partial(read_sheet, self.profile, self._whole_trace, query, scope)
        self._worker.answer("sheet", work, partial(self._show_sheet, query))

    def _show_shares(self, shares: GpuTimeShares) -> None:
        self._charts.set_shares(shares)
        if self._tab == CHARTS_TAB:
            self._summary_text = self.profile.trace.part or "whole trace"
            self._fit_panels()
            self._status.show_message("")

    def _show_sheet(self, query: SheetQuery, found: BuiltSheet | str) -> None:
        """Show a table, or why there is none, unless another one has been asked for since."""
        if query != self._current_query:
            return
        built = self._built_sheet = None if isinstance(found, str) else found
        self._is_loading, self._detail_row = False, -1
        self._status.show_message("")
        self._listing.set_sheet(self._tab, None if built is None else built.sheet)
        table = built.table if built is not None and built.table is not None and has_balance(built.table) else None
        self._show_reading("" if table is None else MEASURING)
        if table is not None:
            # once the checker is free: after the table, which does not wait for it
            work = partial(read_balance, self.profile, table, self._scopes[self._scope].time)
            self._worker.answer("balance", work, partial(self._show_balance, query))
        if built is None:
            self.rows.empty_text = f"{found}. b: another grouping; tab: the next table."
            self.rows.set_row_count(0)
            self._panel.set_detail("", None)
            self._summary_text = "no rows"
            self._fit_panels()
            self._finish_show()
            return
        self._refresh_rows()
        row, self._row_to_show = self._row_to_show, -1
        if self._target_event >= 0 and built.table is not None:
            row = find_row_of_event(self.trace, self.profile.calls, built.table, self._target_event)
            self._target_event = -1
        self._move_to_row(row)
        self._finish_show()

    def _show_balance(self, query: SheetQuery, reading: str) -> None:
        if query == self._current_query and self._built_sheet is not None:
            self._built_sheet = replace(self._built_sheet, sheet=replace(self._built_sheet.sheet, reading=reading))
            self._show_reading(reading)

    def _show_reading(self, reading: str) -> None:
        self._reading.show_message(reading)
        self._reading.display = bool(reading)
        self._fit_panels()

    def _move_to_row(self, row: int) -> None:
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
        self._summary_text = format_summary(listing, group_by, scope, totals)
        self._fit_panels()
        self.handle_cursor_move()
        return problem

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
        work = partial(load_row_detail, self.profile, self._whole_trace, self._built_sheet, row)
        self._worker.answer("row", work, partial(self._show_row, row))

    def _show_row(self, row: int, detail: RowDetail) -> None:
        if row == self._cursor_row and self._built_sheet is not None:
            sheet = self._built_sheet.sheet
            name = str(sheet.columns["name"][row])
            self._panel.set_detail(name, detail, sheet.displays[row], describe_row(sheet, row))
            self._detail_row = row
            self._finish_show()

    def action_move(self, distance: int) -> None:
        if self._tab == CHARTS_TAB:
            self._charts.scroll_lines(distance)
            return
        if not self._has_rows():
            return
        before = self._cursor_row
        self.rows.move_by(distance)
        if self._cursor_row < 0:  # the line above the annotations
            self.rows.move_by(1 if distance > 0 else -1)
        if self._cursor_row == before:
            self._status.show_message(f"the {'first' if distance < 0 else 'last'} row")
        self.handle_cursor_move()

    def action_edge(self, last: bool) -> None:
        self.action_move(self.rows.count if last else -self.rows.count)

    def _has_rows(self) -> bool:
        """Return whether there are rows for a key to act on; say so where there are none."""
        if self._tab == CHARTS_TAB:
            self._status.show_message("these charts have no rows: tab shows the next table")
        elif self._built_sheet is None or not len(self._built_sheet.sheet):
            self._status.show_message("this table has no rows: tab shows the next one")
        else:
            self._status.show_message("")
            return True
        return False

    def _remember_view(self) -> None:
        """Keep the current view for `backspace`; call it before a change."""
        listing, row = self._listing, self._cursor_row
        order = listing.sort_key, listing.descending, listing.filter
        push_view(self._history, TableView(self._tab, self._group_by, self._scope, *order, row))

    def action_go_back(self) -> None:
        if not self._history:
            self._status.show_message("no earlier view of the table; q: back to the lanes")
            return
        view = self._history.pop()
        self._tab, self._group_by, self._scope, self._row_to_show = view.tab, view.group_by, view.scope, view.row
        self._listing.restore(view.tab, view.sort_key, view.descending, view.filter)
        self._show_tab()
        self._request_sheet()

    def action_sort(self, direction: int) -> None:
        if self._has_rows():
            self._remember_view()
            self._listing.cycle_sort_column(direction)
            self._refresh_rows()

    def action_reverse(self) -> None:
        if self._has_rows():
            self._remember_view()
            self._listing.descending = not self._listing.descending
            self._refresh_rows()

    def on_header_picked(self, message: HeaderPicked) -> None:
        """Sort by the column that was clicked; by the same one: reverse."""
        field = sheet_rows.find_column(self._fit_columns(self.rows.size.width), message.x) if self._has_rows() else None
        if field is None:
            return
        self._remember_view()
        again = field.key == self._listing.sort_key
        self._listing.sort_by(field.key, not self._listing.descending if again else True)
        self._refresh_rows()

    def action_next_panel(self, direction: int) -> None:
        self._remember_view()
        self._tab = cycle(self._shown_tabs, self._tab, direction)
        self._listing.descending = True
        self._show_tab()
        self._request_sheet()

    def on_panel_picked(self, message: PanelPicked) -> None:
        self.action_next_panel(self._shown_tabs.index(message.panel) - self._shown_tabs.index(self._tab))

    def action_group(self, direction: int) -> None:
        self._remember_view()
        has_kinds = bool(self.rank.steps) and self.rank.steps[0].serving is not None
        groupings = [each for each in GroupBy if has_kinds or each is not GroupBy.STEP_KIND]
        self._group_by = cycle(groupings, self._group_by, direction)
        self._tab = TABS[0]
        self._show_tab()
        self._request_sheet()

    def action_scope(self, direction: int) -> None:
        if self._tab in (CHARTS_TAB, ARRIVALS_TAB, REPETITIONS_TAB):
            self._status.show_message("this table always covers the whole trace")
        elif len(self._scopes) == 1:
            self._status.show_message("no other scope: mark a range (m) or select an event on the lanes first")
        else:
            self._remember_view()
            self._scope = (self._scope + direction) % len(self._scopes)
            self._request_sheet()

    def action_match(self, distance: int) -> None:
        if not self._has_rows():
            return
        count = len(self._listing.order)
        if not self._listing.filter:
            self._status.show_message("no search yet: / starts one; { and } choose another instance")
        elif not count:
            self._status.show_message(f"no match for {self._listing.filter!r}")
        else:
            matches = self._listing.order.tolist()
            place = (matches.index(self._cursor_row) + distance) % count if self._cursor_row >= 0 else 0
            self._move_to_row(matches[place])
            self._status.show_message(f"match {place + 1:,} of {count:,}")

    def action_next_step(self, distance: int) -> None:
        if self._has_rows():
            if self._panel.selected_event < 0:
                self._status.show_message("this row has no events in the trace")
            elif not self._panel.cycle_instance(distance):
                self._status.show_message("the only instance of this row")

    def action_scroll_panel(self, direction: int) -> None:
        panel = self._charts if self._tab == CHARTS_TAB else self._panel
        if not panel.size.height:
            self._status.show_message(f"the panel of the row needs {PANEL_MIN_HEIGHT} lines")
        elif self._tab != CHARTS_TAB and not self._has_rows():
            return
        elif not panel.scroll_lines(direction * panel.page_size):
            self._status.show_message(f"nothing more {'below' if direction > 0 else 'above'}")

    @property
    def _shown_event(self) -> int:
        """The event of the current row's instance, as a row of the whole trace; -1 for none."""
        has_rows = self._tab != CHARTS_TAB and self._built_sheet is not None and len(self._built_sheet.sheet)
        event = self._panel.selected_event if has_rows else -1
        return event if event < 0 or self._tab == ARRIVALS_TAB else event + self._event_offset

    @property
    def help_word(self) -> Word | None:
        """The word of the current row's instance, with which the help begins."""
        if self._shown_event < 0:
            return None
        event = self._whole_trace.event(self._shown_event)
        return find_event_word(event.kind, event.name)

    @property
    def _is_instance_awaited(self) -> bool:
        """Whether the table, or the detail of the current row, is still being loaded."""
        return self._is_loading or (self._cursor_row >= 0 and self._detail_row != self._cursor_row)

    def action_show(self) -> None:
        """Show the instance on the lanes; while it is loaded, keep the keys that follow for the lanes."""
        if self._is_instance_awaited:
            self._keys_after_show = []
        elif self._has_rows():
            if self._shown_event < 0:
                self._status.show_message("no instance to show on the lanes")
                return
            self.dismiss(self._shown_event)

    def _finish_show(self) -> None:
        """Show the instance that enter asked for, once it is loaded; then send the keys that followed enter."""
        if self._keys_after_show is None or self._is_instance_awaited:
            return
        keys_after, self._keys_after_show = self._keys_after_show, None
        self.action_show()
        for key in keys_after if self.is_left else ():
            self.app.post_message(key)

    def keep_key(self, event: events.Key) -> bool:
        if self._keys_after_show is None:
            return False
        if event.key == "escape":
            self._keys_after_show = None
            self._status.show_message("")
        else:
            self._keys_after_show.append(events.Key(event.key, event.character))
        return True

    def action_back(self) -> None:
        if self._listing.filter:
            self.search("")
        else:
            self.dismiss(None)

    def action_ask_filter(self) -> None:
        if self._has_rows():
            self._remember_view()
            self._open_prompt(self.SEARCH, SEARCH_HINT, self._listing.filter)

    def action_ask_export(self) -> None:
        if self._has_rows():
            self._open_prompt(EXPORT_PROMPT, ".csv, .json or .md", "table.csv", replace=False)

    def search(self, text: str) -> str:
        """List the rows that match, with the cursor on the first; "" lists all, with the cursor on the row it was on.

        Returns what is wrong with the text, else "".
        """
        row = self._cursor_row
        self._listing.filter = text
        problem = self._refresh_rows()
        if not text:
            self._move_to_row(row)
        return problem

    def describe_found(self, text: str) -> str:
        return format_found(len(self._listing.order), text)

    def finish_search(self, text: str) -> None:
        if text and not len(self._listing.order):
            self._status.show_message(f"no match for {text!r}", is_warning=True)

    def submit(self, text: str) -> str:
        """Write the listed rows to a file, and show so."""
        if not text or self._built_sheet is None:
            return ""
        return self.report_written(*sheet_rows.write_sheet(self._built_sheet.sheet, self._listing.order, text))

    def action_copy(self, everything: bool) -> None:
        if self._tab == CHARTS_TAB and everything:
            text, label = self._charts.text(), "the charts"
        elif not self._has_rows():
            return
        elif everything:
            text, label = f"{self.rows.visible_text()}\n{self._summary.message}\n", "the rows on screen"
        elif self._built_sheet is None or self._cursor_row < 0:
            self._status.show_message("nothing to copy: no row is selected")
            return
        else:
            text = label = str(self._built_sheet.sheet.columns["name"][self._cursor_row])
        self.copy_text(text, label)
