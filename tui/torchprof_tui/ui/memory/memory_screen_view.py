"""What the memory screen consists of and shows: the curve, the lifetimes, and what is alive at the cursor."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import Screen
from textual.strip import Strip

from torchprof_tui.analysis.memory.category_totals import BANDS
from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES
from torchprof_tui.analysis.memory.memory_history import GroupBy, explain_missing_addresses
from torchprof_tui.analysis.memory.snapshots.trace_stacks import TraceStacks
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.debounced_worker import DebouncedWorker
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_value
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip
from torchprof_tui.ui.common.panel_dock import PanelTabs
from torchprof_tui.ui.common.prompt_input import Prompt
from torchprof_tui.ui.common.row_list import RowList
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.common.terminal_info import follow_theme
from torchprof_tui.ui.lanes.time_ruler import Ruler
from torchprof_tui.ui.lanes.view_state import ViewState
from torchprof_tui.ui.memory.lifetime_rows import (
    GROUP_HEADER,
    LifetimeRows,
    build_lifetime_header,
    choose_gutter_width,
    format_group_line,
    list_group_cells,
)
from torchprof_tui.ui.memory.memory_chart import MemoryChart, format_legend
from torchprof_tui.ui.memory.memory_keys import HINTS
from torchprof_tui.ui.memory.memory_worker import (
    FilterMade,
    MemoryRead,
    ShownDevice,
    StateQuery,
    StateRead,
    find_allocation,
    find_state,
    read_memory,
)
from torchprof_tui.ui.memory.snapshot_worker import StacksRead, find_snapshot_beside, read_stacks

NO_ROWS = "no allocation is alive here. esc: clear the filter; v: all on screen; 0: the whole trace"


class Legend(PaintedWidget):
    """Paint what each band of the curve holds at the cursor."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._sums: I64 = np.zeros(len(BANDS), np.int64)
        self._has_lifetimes = True

    def show(self, sums: I64, has_lifetimes: bool) -> None:
        self._sums, self._has_lifetimes = sums, has_lifetimes
        self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        return build_strip(
            format_legend(self.palette, self._sums, self._has_lifetimes, width), width, self.palette.text
        )


class GroupList(RowList):
    """A list without a cursor: it only scrolls."""

    def on_click(self, event: events.Click) -> None:
        event.stop()


class MemoryScreenView(Screen[Any]):
    """The widgets of the memory screen and what they show. `memory_screen` adds the keys."""

    CSS_PATH = "memory_screen.tcss"
    AUTO_FOCUS = ""

    def __init__(self, view_state: ViewState, known: dict[int, MemoryRead]) -> None:
        super().__init__()
        self.rank = view_state.current_rank()
        self.trace = self.rank.trace
        self._known = known  # by rank: what was read when the screen was opened before
        self._asked_event = view_state.selected - self.rank.first if view_state.selected >= 0 else -1
        self.viewport = Viewport.whole(self.trace.span, 40)
        self.gutter_width = 32
        self.time = self.viewport.t0
        self.by = GroupBy.CATEGORY
        self.only_alive = False
        self._devices: tuple[ShownDevice, ...] = ()
        self._number = 0
        self._stacks: tuple[TraceStacks | None, ...] = ()  # by device, from a snapshot
        self._problem = ""
        self._filter: FilterMade | None = None
        self._listed: tuple[object, ...] = ()  # what `_rows` were found for
        self._rows: I64 = np.zeros(0, np.int64)
        self._builder: LifetimeRows | None = None
        self.state: StateRead | None = None
        self._ruler = Ruler(view_state.current_steps(), id="memory-ruler")
        self.chart = MemoryChart(id="memory-chart")
        self._legend = Legend(id="memory-legend")
        self.lifetimes = RowList(self._build_lifetime, self._build_header, id="memory-lifetimes")
        self._tabs = PanelTabs([(by.value, by.value) for by in GroupBy])
        self.groups = GroupList(self._build_group, self._build_group_header, id="memory-groups")
        self._detail = StatusLine(id="memory-detail")
        self._status = StatusLine(id="memory-status")
        self._prompt = Prompt(id="prompt")
        self._worker = DebouncedWorker(self)

    def compose(self) -> ComposeResult:
        yield self.chart
        yield self._ruler
        yield self._legend
        yield self.lifetimes
        yield self._tabs
        yield self.groups
        yield self._detail
        yield self._status
        yield self._prompt

    def on_mount(self) -> None:
        follow_theme(self)
        self._status.show_keys(HINTS)
        self._arrange(self.app.size)
        self._tabs.show_active(self.by.value)
        number = self.rank.number
        if number in self._known:
            self.on_memory_read(self._known[number])
            return
        memory = self.trace.memory
        count = 0 if memory is None else len(memory.time)
        self.lifetimes.empty_text = f"reading {count:,} allocations and frees: pairing them, finding their ops …"
        self.lifetimes.repaint()
        self._worker.submit("memory", partial(read_memory, self.trace))

    # -- layout --------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(event.size)
        self.refresh_view()

    def _arrange(self, size: Size) -> None:
        """Share the lines of the screen: a third for the curve, at most 20; the groups get as many as there can be."""
        steps = self._ruler.preferred_lines
        rest = max(size.height - steps - 4, 6)
        self._ruler.styles.height = steps
        self.chart.styles.height = min(max(rest * 3 // 10, 4), 20)
        self.groups.styles.height = min(max(rest * 3 // 10, 4), 16)
        self.gutter_width = choose_gutter_width(size.width)
        self.viewport = self.viewport.resize(max(size.width - self.gutter_width, 1))

    @property
    def device(self) -> ShownDevice | None:
        """The device that is shown; None until the memory was read, and where there is none."""
        return self._devices[self._number] if self._devices else None

    # -- reading -------------------------------------------------------------------------------------------

    def on_memory_read(self, message: MemoryRead) -> None:
        self._known[self.rank.number] = message
        self._devices, self._problem = message.devices, message.problem
        if not self._devices:
            snapshot = find_snapshot_beside(self.rank)
            beside = f" torchprof-tui memory {clean(snapshot.name)} prints the snapshot beside it." if snapshot else ""
            self.lifetimes.empty_text = f"{self._problem}.{beside} q: back to the lanes"
            self.lifetimes.set_row_count(0)
            return
        self._stacks = (None,) * len(self._devices)
        snapshot = find_snapshot_beside(self.rank)
        if snapshot is not None:
            self._worker.submit("snapshot", partial(read_stacks, self.trace, self._devices, snapshot))
        found = find_allocation(self._devices, self.trace, self._asked_event) if self._asked_event >= 0 else None
        self._show_device(found[0] if found else 0)
        if found is not None:
            self._select_lifetime(found[1], move_cursor=True)
            self._status.show_message("the largest allocation of the selected event")
        elif self._asked_event >= 0:
            self._status.show_message("the selected event allocates nothing: this is the peak")

    def on_stacks_read(self, message: StacksRead) -> None:
        self._stacks = message.stacks
        self._status.show_message(message.line)
        self.request_state()

    def _show_device(self, number: int) -> None:
        """Show a device, with the cursor at its peak."""
        self._number, self._filter, self.state = number, None, None
        shown = self._devices[number]
        memory = shown.history.memory
        span = (min(self.trace.span[0], int(memory.time[0])), max(self.trace.span[1], int(memory.time[-1])))
        self.viewport = Viewport.whole(span, self.viewport.width)
        self._builder = LifetimeRows(self.trace, shown)
        self.time = int(memory.time[memory.peak])
        self.refresh_view(reset=True)

    def refresh_view(self, reset: bool = False) -> None:
        """Show the viewport and the cursor, and ask for what is alive there."""
        shown = self.device
        self._ruler.show_viewport(self.viewport, self.gutter_width, self.time, None)
        self.chart.show(shown, self.viewport, self.gutter_width, self.time)
        if shown is None:
            return
        sums = shown.totals.sum_at(np.array([self.find_position(shown)], np.int64))[0]
        self._legend.show(sums, shown.history.memory.lifetimes is not None)
        self._list_lifetimes(shown, -1 if reset else self.current_lifetime)
        self.request_state()

    def find_position(self, shown: ShownDevice) -> int:
        """Find the record at the cursor; at the time of the peak, the peak."""
        memory = shown.history.memory
        return memory.peak if self.time == int(memory.time[memory.peak]) else memory.find_position(self.time)

    @property
    def current_lifetime(self) -> int:
        """The allocation under the row cursor, -1 for none."""
        return int(self._rows[self.lifetimes.cursor]) if len(self._rows) else -1

    def _list_lifetimes(self, shown: ShownDevice, current: int) -> None:
        """List the allocations on screen or alive at the cursor, the largest first; the row cursor stays on its own."""
        scope = (self._number, self.only_alive, self.time if self.only_alive else 0, self.viewport, self._filter)
        if scope != self._listed:
            self._listed = scope
            self._rows = self._find_rows(shown)
        place = np.flatnonzero(self._rows == current)
        self.lifetimes.empty_text = explain_missing_addresses(shown.history.memory) or NO_ROWS
        self.lifetimes.set_row_count(len(self._rows), int(place[0]) if len(place) else 0)

    def _find_rows(self, shown: ShownDevice) -> I64:
        """Find the allocations to list, the largest first: int64[r]."""
        if self.only_alive:
            mask = shown.mask_alive(self.find_position(shown))
        else:
            mask = (shown.begin < self.viewport.t1) & (shown.end > self.viewport.t0)
        if self._filter is not None:
            mask = mask & self._filter.mask
        return np.asarray(shown.by_size[mask[shown.by_size]])

    def _select_lifetime(self, lifetime: int, move_cursor: bool) -> None:
        """Put the row cursor on an allocation, and the time cursor on its begin; the view moves where needed."""
        shown = self.device
        assert shown is not None
        if move_cursor:
            self.time = max(int(shown.begin[lifetime]), self.viewport.limits[0])
            self.viewport = self.viewport.reveal(self.time, self.time + 1)
        self._list_lifetimes(shown, lifetime)
        place = np.flatnonzero(self._rows == lifetime)
        if len(place):
            self.lifetimes.move_to(int(place[0]))
        self.refresh_view()

    # -- what is alive -------------------------------------------------------------------------------------

    def request_state(self) -> None:
        """Ask a worker what is alive at the cursor, and about the allocation of the row."""
        shown = self.device
        if shown is not None:
            query = StateQuery(self._number, self.time, self.by, self.current_lifetime)
            self._worker.submit("state", partial(find_state, shown, query, self._stacks[self._number]))

    def on_state_read(self, message: StateRead) -> None:
        if message.query != StateQuery(self._number, self.time, self.by, self.current_lifetime):
            return
        self.state = message
        self._detail.show_message(message.detail)
        self.groups.empty_text = message.problem
        self.groups.set_row_count(len(message.groups))

    # -- rows ----------------------------------------------------------------------------------------------

    def _build_header(self, width: int) -> list[TextRun]:
        shown = self.device
        if shown is None:
            return [(" memory", self.lifetimes.palette.muted)]
        which = "alive at the cursor" if self.only_alive else "on screen"
        found = "" if self._filter is None else f" with {self._filter.text!r}"
        note = f" {len(self._rows):,} allocations {which}{found}"
        return [(build_lifetime_header(self.gutter_width, note), self.lifetimes.palette.muted)]

    def _build_lifetime(self, index: int, width: int, selected: bool) -> list[TextRun]:
        assert self._builder is not None
        palette = self.lifetimes.palette
        return self._builder.build(int(self._rows[index]), width, selected, self.viewport, self.gutter_width, palette)

    def _build_group_header(self, width: int) -> list[TextRun]:
        palette = self.groups.palette
        if self.state is None:
            return [("", palette.muted)]
        empty = format_group_line((*GROUP_HEADER, ""), width)
        title = self._describe_state(self.state, max(width - cell_len(empty.rstrip()) - 2, 1))
        return [(format_group_line((*GROUP_HEADER, title), width), palette.muted)]

    def _describe_state(self, read: StateRead, width: int) -> str:
        """Describe the time of the cursor: what is allocated, and what is reserved where that fits."""
        reserved = read.state.reserved
        text = f"at {format_duration(read.state.time)}: {format_value(read.state.allocated, 'bytes')} allocated"
        got = "" if reserved == UNKNOWN_BYTES else f", {format_value(reserved, 'bytes')} reserved"
        return text + got if cell_len(text + got) <= width else text

    def _build_group(self, index: int, width: int, selected: bool) -> list[TextRun]:
        assert self.state is not None
        line = format_group_line(list_group_cells(self.state.groups[index], self.state.state.allocated), width)
        return [(line, self.groups.palette.text)]
