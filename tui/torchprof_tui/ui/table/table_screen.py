"""The profiler's table and its neighbours: sorted, filtered, grouped, restricted; each row opens into its instances."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message

from torchprof_tui.analysis.table.gpu_time_shares import shares
from torchprof_tui.analysis.table.profiler_table import Profile
from torchprof_tui.analysis.table.row_detail import row_of_event
from torchprof_tui.analysis.table.table_rows import By
from torchprof_tui.ui.common.list_keys import LIST_BINDINGS, ListScreen
from torchprof_tui.ui.common.messages import PromptChanged, PromptClosed, PromptSubmitted
from torchprof_tui.ui.common.painted_widget import Run
from torchprof_tui.ui.common.prompt_input import Prompt
from torchprof_tui.ui.common.row_list import RowList, RowPicked
from torchprof_tui.ui.common.status_line import Status
from torchprof_tui.ui.common.terminal_info import follow_theme
from torchprof_tui.ui.explorer.debounced_worker import Reading
from torchprof_tui.ui.explorer.panels.panel_dock import Tabs
from torchprof_tui.ui.explorer.view_state import Walk
from torchprof_tui.ui.table import file_export, sheet_rows
from torchprof_tui.ui.table.row_listing import Listing
from torchprof_tui.ui.table.row_panel import RowPanel
from torchprof_tui.ui.table.scope_choices import table_scopes
from torchprof_tui.ui.table.sheet_catalog import ARRIVALS, PICTURES, SORT, TABS, Made, foot
from torchprof_tui.ui.table.table_worker import Asked, RowRead, SharesMade, SheetMade, read_row, read_sheet
from torchprof_tui.ui.table.time_share_charts import Pictures

FILTER, EXPORT = "filter", "write to"
PANEL_FROM, PANEL_SHARE = 24, 0.35
"""From this height on the row under the cursor is opened below the table, in this part of it."""

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
    ("y", "copy"),
    ("esc", "back"),
)


class TableScreen(ListScreen):
    """Ends with the event to show on the lanes, None for none. `profile` outlives the screen: it is costly to make."""

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
        Binding("y", "copy", show=False),
        Binding("J", "panel(1)", show=False),
        Binding("K", "panel(-1)", show=False),
        Binding("escape,t", "back", show=False),
        Binding("?", "help", show=False),
    ]

    def __init__(self, profile: Profile, walk: Walk) -> None:
        super().__init__()
        self.profile = profile
        self.rank = walk.rank()
        self.trace = profile.trace
        self._whole = walk.trace
        self._offset = 0 if self.rank is None else self.rank.first
        self._shown_tabs = TABS if self.rank is None else (*TABS[:-1], ARRIVALS, PICTURES)
        self._scopes = table_scopes(profile, walk)
        self._scope = 0
        self._tab = TABS[0]
        self._by = By.NAME
        self._listing = Listing(SORT)
        self._made: Made | None = None
        self._layout: sheet_rows.Layout | None = None
        self._find = walk.selected - self._offset if walk.selected >= 0 else -1
        self._tabs = Tabs([(tab, tab) for tab in self._shown_tabs])
        self.rows = RowList(self._row, self._head, id="rows")
        self._panel = RowPanel(id="row-panel")
        self._pictures = Pictures(id="pictures")
        self._status = Status(id="table-status")
        self._prompt = Prompt(id="prompt")
        self._reading = Reading(self)

    def compose(self) -> ComposeResult:
        yield self._tabs
        yield self.rows
        yield self._panel
        yield self._pictures
        yield self._status
        yield self._prompt

    def on_mount(self) -> None:
        follow_theme(self)
        self._tabs.show(self._tab)
        self._status.keys(HINTS)
        self._ask()

    def on_resize(self) -> None:
        height = self.size.height
        self.set_class(height < PANEL_FROM, "low")
        self._panel.styles.height = int(height * PANEL_SHARE)
        self._layout = None

    # -- making a table ------------------------------------------------------------------------------------

    @property
    def _asked(self) -> Asked:
        return Asked(self._tab, self._by, self._scope)

    def _ask(self) -> None:
        self._status.say("adding up …")
        self.set_class(self._tab == PICTURES, "drawn")
        if self._tab == PICTURES:
            self._reading.ask("sheet", lambda: SharesMade(shares(self.profile)))
            return
        scope = self._scopes[self._scope]
        self._reading.ask("sheet", partial(read_sheet, self.profile, self._whole, self._asked, scope))

    def on_shares_made(self, message: SharesMade) -> None:
        self._pictures.learn(message.shares)
        if self._tab == PICTURES:
            self._status.say("whole trace · J K scroll")

    def on_sheet_made(self, message: SheetMade) -> None:
        if message.asked != self._asked:
            return
        self._made = message.made
        self._listing.show(self._tab, None if message.made is None else message.made.sheet)
        if message.made is None:
            self.rows.show(0)
            self._panel.learn("", None)
            self._status.say(message.problem, alarm=True)
            return
        self._relist()
        table = message.made.table
        if self._find >= 0 and table is not None:
            place = self._listing.place_of(row_of_event(self.trace, self.profile.calls, table, self._find))
            self._find = -1
            if place >= 0:
                self.rows.to(place)
                self.moved()

    def _relist(self) -> None:
        """Sort and filter anew."""
        if self._made is None:
            return
        problem = self._listing.relist()
        self._layout = None
        self.rows.show(len(self._listing.order), 0)
        self._say(problem)
        self.moved()

    def _say(self, problem: str = "") -> None:
        if problem:
            self._status.say(problem, alarm=True)
            return
        assert self._made is not None
        by = f" by {self._by.value}" if self._tab == TABS[0] and self._by is not By.NAME else ""
        where = self._scopes[self._scope].label if self._tab != ARRIVALS else "all ranks"
        rows = f"{len(self._listing.order):,} of {len(self._made.sheet):,} rows{by} · {where}"
        filtered = f" · filter {self._listing.filter!r}" if self._listing.filter else ""
        totals = foot(self.profile, self._made, self._tab)
        self._status.say(f"{rows}{filtered} · {totals}" if totals else rows + filtered)

    # -- painting ------------------------------------------------------------------------------------------

    def _shown(self, width: int) -> sheet_rows.Layout:
        assert self._made is not None
        if self._layout is None:
            self._layout = sheet_rows.layout(self._made.sheet, width, self._listing.key)
        return self._layout

    def _head(self, width: int) -> list[Run]:
        if self._made is None:
            return []
        listing = self._listing
        return sheet_rows.head(self._shown(width), listing.key, listing.descending, self.rows.palette)

    def _row(self, place: int, width: int, chosen: bool) -> list[Run]:
        assert self._made is not None
        row = self._listing.row(place)
        return sheet_rows.line(self._made.sheet, row, self._shown(width), self.rows.palette, chosen)

    # -- the row under the cursor --------------------------------------------------------------------------

    @property
    def _cursor(self) -> int:
        """The row of the sheet, -1 in an empty one."""
        return self._listing.row(self.rows.cursor)

    def moved(self) -> None:
        """Another row is under the cursor: what is behind it follows."""
        row = self._cursor
        if row < 0 or self._made is None:
            self._panel.learn("", None)
            return
        self._reading.ask("row", partial(read_row, self.profile, self._whole, self._made, row))

    def on_row_read(self, message: RowRead) -> None:
        if message.row == self._cursor:
            self._panel.learn(message.name_shown, message.detail)

    # -- keys ----------------------------------------------------------------------------------------------

    def action_move(self, distance: int) -> None:
        if self._tab == PICTURES:
            self._pictures.scroll_lines(distance)
            return
        super().action_move(distance)

    def action_sort(self, direction: int) -> None:
        if self._made is not None and self._tab != PICTURES:
            self._listing.sort_beside(direction)
            self._relist()

    def action_reverse(self) -> None:
        if self._tab != PICTURES:
            self._listing.descending = not self._listing.descending
            self._relist()

    def action_tab(self, direction: int) -> None:
        tabs = self._shown_tabs
        self._tab = tabs[(tabs.index(self._tab) + direction) % len(tabs)]
        self._listing.descending = True
        self._tabs.show(self._tab)
        self._ask()

    def on_panel_picked(self, message: Message) -> None:
        tab = getattr(message, "panel", self._tab)
        self.action_tab(self._shown_tabs.index(tab) - self._shown_tabs.index(self._tab))

    def action_group(self, direction: int) -> None:
        every = list(By)
        self._by = every[(every.index(self._by) + direction) % len(every)]
        self._tab = TABS[0]
        self._tabs.show(self._tab)
        self._ask()

    def action_scope(self) -> None:
        self._scope = (self._scope + 1) % len(self._scopes)
        self._ask()

    def action_instance(self, distance: int) -> None:
        self._panel.move(distance)

    def action_panel(self, direction: int) -> None:
        panel = self._pictures if self._tab == PICTURES else self._panel
        panel.scroll_lines(direction * max(1, panel.size.height - 1))

    def action_show(self) -> None:
        if self._tab != PICTURES and self._panel.event >= 0:
            self.dismiss(self._panel.event + (0 if self._tab == ARRIVALS else self._offset))

    def action_help(self) -> None:
        """The last line's keys, all of them, however narrow the terminal is."""
        self.notify(" · ".join(f"{key} {what}" for key, what in HINTS), title="keys", markup=False)

    def action_back(self) -> None:
        if self._listing.filter:
            self._listing.filter = ""
            self._relist()
        else:
            self.dismiss(None)

    def on_row_picked(self, message: RowPicked) -> None:
        self.moved()

    # -- typing --------------------------------------------------------------------------------------------

    def action_ask_filter(self) -> None:
        self._open_prompt(FILTER, "text, or /regular expression/", self._listing.filter)

    def action_ask_export(self) -> None:
        self._open_prompt(EXPORT, ".csv, .json or .md", "table.csv")

    def _open_prompt(self, purpose: str, hint: str, text: str) -> None:
        if self._made is not None and self._tab != PICTURES:
            self.add_class("asking")
            self._prompt.ask(purpose, hint, text)

    def _close_prompt(self) -> None:
        self.remove_class("asking")
        self._prompt.close()

    def on_prompt_changed(self, message: PromptChanged) -> None:
        if message.purpose == FILTER:
            self._listing.filter = message.text
            self._reading.soon("filter", self._relist)

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        self._close_prompt()
        if message.purpose == FILTER:
            self._listing.filter = message.text
            self._relist()
        elif message.text:
            self._write(Path(message.text).expanduser())

    def on_prompt_closed(self, message: PromptClosed) -> None:
        self._close_prompt()
        if message.purpose == FILTER:
            self._listing.filter = ""
            self._relist()

    def _write(self, path: Path) -> None:
        assert self._made is not None
        line, written = file_export.write(self._made.sheet, self._listing.order, path)
        self._status.say(line, alarm=not written)

    def action_copy(self) -> None:
        if self._made is not None and self._tab != PICTURES:
            order = self._listing.order
            self.app.copy_to_clipboard(file_export.markdown(self._made.sheet, order))
            self._status.say(f"copied {len(order):,} rows as Markdown")
