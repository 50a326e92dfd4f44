"""Screen of the profiler's table and related tables: sort, filter, group, restrict to a scope, and inspect a row."""

from __future__ import annotations

from functools import partial

from torchprof_tui.analysis.search.name_search import is_case_sensitive
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.ui.common.list_keys import switch_child_screen
from torchprof_tui.ui.common.panel_dock import PanelPicked
from torchprof_tui.ui.common.prompt_input import PromptChanged, PromptClosed, PromptSubmitted
from torchprof_tui.ui.common.row_list import HeaderPicked, RowPicked
from torchprof_tui.ui.common.status_line import format_copy_message
from torchprof_tui.ui.common.text_panel import COPY_WIDTH
from torchprof_tui.ui.table import file_export, sheet_rows
from torchprof_tui.ui.table.sheet_catalog import ARRIVALS_TAB, CHARTS_TAB, REPETITIONS_TAB, TABS
from torchprof_tui.ui.table.table_keys import BINDINGS
from torchprof_tui.ui.table.table_screen_view import PANEL_MIN_HEIGHT, TableScreenView
from torchprof_tui.ui.table.view_history import TableView

FILTER_PROMPT, EXPORT_PROMPT = "filter", "write to"
FILTER_HINT = "text, or /regular expression/ · ↑ earlier"


class TableScreen(TableScreenView):
    """Dismissed with the event to show on the lanes, or None.

    `profile` is slow to compute, so the caller keeps it for the next time.
    """

    BINDINGS = BINDINGS
    help_topic = "table"

    # -- keys ----------------------------------------------------------------------------------------------

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
        listing = self._listing
        self._history.push(
            TableView(
                self._tab,
                self._group_by,
                self._scope,
                listing.sort_key,
                listing.descending,
                listing.filter,
                self._cursor_row,
            )
        )

    def action_go_back(self) -> None:
        view = self._history.pop()
        if view is None:
            self._status.show_message("no earlier view of the table; q: back to the lanes")
            return
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

    def action_tab(self, direction: int) -> None:
        self._remember_view()
        tabs = self._shown_tabs
        self._tab = tabs[(tabs.index(self._tab) + direction) % len(tabs)]
        self._listing.descending = True
        self._show_tab()
        self._request_sheet()

    def on_panel_picked(self, message: PanelPicked) -> None:
        self.action_tab(self._shown_tabs.index(message.panel) - self._shown_tabs.index(self._tab))

    def action_group(self, direction: int) -> None:
        self._remember_view()
        has_kinds = bool(self.rank.steps) and self.rank.steps[0].serving is not None
        groupings = [each for each in GroupBy if has_kinds or each is not GroupBy.STEP_KIND]
        self._group_by = groupings[(groupings.index(self._group_by) + direction) % len(groupings)]
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
            self._status.show_message("no search yet: / starts one; , and . choose another instance")
        elif not count:
            self._status.show_message(f"no match for {self._listing.filter!r}")
        else:
            matches = self._listing.order.tolist()
            place = (matches.index(self._cursor_row) + distance) % count if self._cursor_row >= 0 else 0
            self._move_to_row(matches[place])
            self._status.show_message(f"match {place + 1:,} of {count:,}")

    def action_instance(self, distance: int) -> None:
        if self._has_rows():
            if self._panel.selected_event < 0:
                self._status.show_message("this row has no events in the trace")
            elif not self._panel.cycle_instance(distance):
                self._status.show_message("the only instance of this row")

    def action_panel(self, direction: int) -> None:
        panel = self._charts if self._tab == CHARTS_TAB else self._panel
        if not panel.size.height:
            self._status.show_message(f"the panel of the row needs {PANEL_MIN_HEIGHT} lines")
        elif self._tab != CHARTS_TAB and not self._has_rows():
            return
        elif not panel.scroll_lines(direction * max(1, panel.size.height - 1)):
            self._status.show_message(f"nothing more {'below' if direction > 0 else 'above'}")

    def action_show(self) -> None:
        if not self._has_rows():
            return
        if self._panel.selected_event < 0:
            self._status.show_message("no instance to show on the lanes")
            return
        self.dismiss(self._panel.selected_event + (0 if self._tab == ARRIVALS_TAB else self._event_offset))

    def action_back(self) -> None:
        if self._listing.filter:
            self._apply_filter("")
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_tree(self) -> None:
        switch_child_screen(self, "tree")

    def action_flame(self) -> None:
        switch_child_screen(self, "flame")

    def on_row_picked(self, message: RowPicked) -> None:
        self.handle_cursor_move()

    # -- filter and export ---------------------------------------------------------------------------------

    def action_ask_filter(self) -> None:
        self._open_prompt(FILTER_PROMPT, FILTER_HINT, self._listing.filter)

    def action_ask_export(self) -> None:
        self._open_prompt(EXPORT_PROMPT, ".csv, .json or .md", "table.csv")

    def _open_prompt(self, purpose: str, hint: str, text: str) -> None:
        if self._has_rows():
            if purpose == FILTER_PROMPT:
                self._remember_view()
            self.add_class("asking")
            self._prompt.open(purpose, hint, text, replace=purpose == FILTER_PROMPT)

    def _close_prompt(self) -> None:
        self.remove_class("asking")
        self._prompt.close()

    def _apply_filter(self, text: str) -> str:
        """List the rows that match, with the cursor on the first; "" lists all, with the cursor on the row it was on.

        Returns what is wrong with the text, else "".
        """
        row = self._cursor_row
        self._listing.filter = text
        problem = self._refresh_rows()
        if not text:
            self._move_to_row(row)
        return problem

    def on_prompt_changed(self, message: PromptChanged) -> None:
        if message.purpose == FILTER_PROMPT:
            self._worker.debounce("filter", partial(self._preview_filter, message.text))

    def _preview_filter(self, text: str) -> None:
        """Filter and show the number of matches while the text is being typed."""
        if self._prompt.is_open:
            problem = self._apply_filter(text)
            case = " · case-sensitive: it has a capital" if is_case_sensitive(text) else ""
            self._prompt.show_hint(problem or (f"{len(self._listing.order):,} found{case}" if text else FILTER_HINT))

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
            self._apply_filter(message.text)
            if message.text and not len(self._listing.order):
                self._status.show_message(f"no match for {message.text!r}", is_warning=True)

    def on_prompt_closed(self, message: PromptClosed) -> None:
        self._close_prompt()
        if message.purpose == FILTER_PROMPT:
            self._apply_filter("")

    def _export_file(self, name: str) -> str:
        """Write the listed rows and show so. Returns why they could not be written, else ""."""
        assert self._built_sheet is not None
        line, written = file_export.write_sheet(self._built_sheet.sheet, self._listing.order, name)
        if not written:
            return line
        self._status.show_message(line)
        return ""

    def action_copy(self, everything: bool) -> None:
        if self._tab == CHARTS_TAB and everything:
            text, label = self._charts.text(), "the charts"
        elif not self._has_rows():
            return
        elif everything:
            text = self.rows.visible_text(min(self.rows.size.width, COPY_WIDTH))
            text, label = f"{text}\n{self._summary.message}\n", "the rows on screen"
        elif self._built_sheet is None or self._cursor_row < 0:
            self._status.show_message("nothing to copy: no row is selected")
            return
        else:
            text = label = str(self._built_sheet.sheet.columns["name"][self._cursor_row])
        self.app.copy_to_clipboard(text)
        self._status.show_message(format_copy_message(label))
