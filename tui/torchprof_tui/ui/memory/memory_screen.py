"""Screen of the memory of a trace: its curve by category, the lifetimes of allocations, and what is alive at a time."""

from __future__ import annotations

from functools import partial

import numpy as np
from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.geometry import Size

from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES
from torchprof_tui.analysis.memory.memory_history import GroupBy, explain_missing_addresses
from torchprof_tui.answers.memory import build_stacked_curve
from torchprof_tui.answers.pictures.memory_curve import COLUMNS, draw_memory_curve
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.child_screen import cycle
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_value
from torchprof_tui.ui.common.painted_widget import RowList, RowPicked, TextRun
from torchprof_tui.ui.common.panel_dock import PanelPicked, PanelTabs
from torchprof_tui.ui.common.status_line import PromptSubmitted, StatusLine
from torchprof_tui.ui.lanes.mouse_gestures import PanAsked, RangeDragged, ZoomAsked
from torchprof_tui.ui.lanes.time_ruler import Ruler
from torchprof_tui.ui.lanes.view_state import WHOLE_TRACE, ZOOM_FACTOR, ViewState
from torchprof_tui.ui.memory.curve_screen import CurveScreen
from torchprof_tui.ui.memory.lifetime_rows import (
    GROUP_HEADER,
    LifetimeRows,
    build_lifetime_header,
    choose_gutter_width,
    format_cells,
)
from torchprof_tui.ui.memory.memory_chart import Legend, MemoryChart
from torchprof_tui.ui.memory.memory_text import list_group_cells
from torchprof_tui.ui.memory.memory_worker import (
    DeviceStacks,
    FilterMade,
    MemoryRead,
    ShownDevice,
    StateQuery,
    StateRead,
    filter_lifetimes,
    find_allocation,
    find_snapshot_beside,
    find_state,
    read_memory,
    read_stacks,
)

NO_ROWS = "no allocation is alive here. esc: clear the filter; v: all on screen; 0: the whole trace"


class GroupList(RowList):
    """A list without a cursor: it only scrolls."""

    def on_click(self, event: events.Click) -> None:
        event.stop()


FILTER_PROMPT = "filter"
FILTER_HINT = "op, module, line, category or phase; or /regular expression/ · ↑ earlier"


class MemoryScreen(CurveScreen[ShownDevice]):
    """Dismissed with the event to show on the lanes, the op of an allocation, or None."""

    BINDINGS = keys.MEMORY
    help_topic = "memory"
    NOUN, WHOLE, NOT_READ = "trace", WHOLE_TRACE, "nothing to see yet: the memory is being read"
    MOVES_CURSOR = True
    CSS_PATH = "memory_screen.tcss"

    def __init__(self, view_state: ViewState, known: dict[int, MemoryRead]) -> None:
        self.rank = view_state.current_rank()
        self.trace = self.rank.trace
        super().__init__(Viewport.whole(self.trace.span, 40))
        self._known = known  # by rank: what was read when the screen was opened before
        self._asked_event = view_state.selected - self.rank.first if view_state.selected >= 0 else -1
        self.gutter_width = 32
        self.by = GroupBy.CATEGORY
        self.only_alive = True
        self._stacks: DeviceStacks = ()  # by device, from a snapshot
        self._filter: FilterMade | None = None
        self._listed: tuple[object, ...] = ()  # what `_rows` were found for
        self._listed_rows: I64 = np.zeros(0, np.int64)
        self._builder: LifetimeRows | None = None
        self.state: StateRead | None = None
        self._ruler = Ruler(view_state.current_steps(), id="memory-ruler")
        self.chart = MemoryChart(id="memory-chart")
        self._legend = Legend(id="memory-legend")
        self.rows = self.lifetimes = RowList(self._build_lifetime, self._build_header, id="memory-lifetimes")
        self._tabs = PanelTabs([(by.value, by.value) for by in GroupBy])
        self.groups = GroupList(self._build_group, self._build_group_header, id="memory-groups")
        self._detail = StatusLine(id="memory-detail")

    def compose(self) -> ComposeResult:
        yield from (self.chart, self._ruler, self._legend, self.lifetimes, self._tabs, self.groups)
        yield from (self._detail, self._status, self._prompt)

    def draw_pictures(self) -> dict[str, str]:
        """Draw the curve of the device over the whole trace."""
        if self.device is None:
            return {}
        return {"memory-curve": draw_memory_curve(build_stacked_curve(self.trace, self.device.history, COLUMNS))}

    def on_mount(self) -> None:
        self.follow_theme(keys.NO_MEMORY_HINTS if self.trace.memory is None else keys.MEMORY_HINTS)
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
            work = partial(read_stacks, self.trace, self._devices, snapshot)
            self._worker.answer("snapshot", work, self._show_stacks)
        found = find_allocation(self._devices, self.trace, self._asked_event) if self._asked_event >= 0 else None
        self._show_device(found[0] if found else 0)
        if found is not None:
            self._select_lifetime(found[1], move_cursor=True)
            self._status.show_message("the largest allocation of the selected event")
        elif self._asked_event >= 0:
            self._status.show_message("the selected event allocates nothing: this is the peak")

    def _show_stacks(self, read: tuple[DeviceStacks, str]) -> None:
        self._stacks, line = read
        self._status.show_message(line)
        self.request_state()

    def _show_device(self, number: int) -> None:
        self._number, self._filter, self.state = number, None, None
        shown = self._devices[number]
        memory = shown.history.memory
        span = (min(self.trace.span[0], int(memory.time[0])), max(self.trace.span[1], int(memory.time[-1])))
        self.viewport = Viewport.whole(span, self.viewport.width)
        self._builder = LifetimeRows(self.trace, shown)
        self.time = int(memory.time[memory.peak])
        self.refresh_view(reset=True)

    def refresh_view(self, reset: bool = False) -> None:
        shown = self.device
        self._ruler.show_viewport(self.viewport, self.gutter_width, self.time, None)
        self.chart.show(shown, self.viewport, self.gutter_width, self.time)
        if shown is None:
            return
        sums = shown.totals.sum_at(np.array([self.find_position(shown)], np.int64))[0]
        has_reserved = bool((shown.history.memory.reserved > 0).any())
        self._legend.show(sums, shown.history.memory.lifetimes is not None, has_reserved)
        self._list_lifetimes(shown, -1 if reset else self.current_lifetime)
        self.request_state()

    def find_position(self, shown: ShownDevice) -> int:
        """Find the record at the cursor; at the time of the peak, the peak."""
        memory = shown.history.memory
        return memory.peak if self.time == int(memory.time[memory.peak]) else memory.find_position(self.time)

    @property
    def current_lifetime(self) -> int:
        """The allocation under the row cursor, -1 for none."""
        return int(self._listed_rows[self.lifetimes.cursor]) if len(self._listed_rows) else -1

    def _list_lifetimes(self, shown: ShownDevice, current: int) -> None:
        """List the allocations on screen or alive at the cursor, the largest first; the row cursor stays on its own."""
        scope = (self._number, self.only_alive, self.time if self.only_alive else 0, self.viewport, self._filter)
        if scope != self._listed:
            self._listed = scope
            if self.only_alive:
                mask = shown.mask_alive(self.find_position(shown))
            else:
                mask = (shown.begin < self.viewport.t1) & (shown.end > self.viewport.t0)
            if self._filter is not None:
                mask = mask & self._filter.mask
            self._listed_rows = np.asarray(shown.by_size[mask[shown.by_size]])
        place = np.flatnonzero(self._listed_rows == current)
        self.lifetimes.empty_text = explain_missing_addresses(shown.history.memory) or NO_ROWS
        self.lifetimes.set_row_count(len(self._listed_rows), int(place[0]) if len(place) else 0)

    def _select_lifetime(self, lifetime: int, move_cursor: bool) -> None:
        """Put the row cursor on an allocation, and the time cursor on its begin; the view moves where needed."""
        shown = self.device
        assert shown is not None
        if move_cursor:
            self.time = max(int(shown.begin[lifetime]), self.viewport.limits[0])
            self.viewport = self.viewport.reveal(self.time, self.time + 1)
        self._list_lifetimes(shown, lifetime)
        place = np.flatnonzero(self._listed_rows == lifetime)
        if len(place):
            self.lifetimes.move_to(int(place[0]))
        self.refresh_view()

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

    def _build_header(self, width: int) -> list[TextRun]:
        shown = self.device
        if shown is None:
            return [(" memory", self.lifetimes.palette.muted)]
        which = "alive at the cursor" if self.only_alive else "on screen"
        found = "" if self._filter is None else f" with {self._filter.text!r}"
        note = f" {len(self._listed_rows):,} allocations {which}{found}"
        return [(build_lifetime_header(self.gutter_width, note), self.lifetimes.palette.muted)]

    def _build_lifetime(self, index: int, width: int, selected: bool) -> list[TextRun]:
        assert self._builder is not None
        palette = self.lifetimes.palette
        row = int(self._listed_rows[index])
        return self._builder.build(row, width, selected, self.viewport, self.gutter_width, palette)

    def _build_group_header(self, width: int) -> list[TextRun]:
        palette = self.groups.palette
        if self.state is None:
            return [("", palette.muted)]
        empty = format_cells((*GROUP_HEADER, ""), width)
        state = self.state.state
        title = f"at {format_duration(state.time)}: {format_value(state.allocated, 'bytes')} allocated"
        got = "" if state.reserved == UNKNOWN_BYTES else f", {format_value(state.reserved, 'bytes')} reserved"
        if cell_len(title + got) <= max(width - cell_len(empty.rstrip()) - 2, 1):
            title += got
        return [(format_cells((*GROUP_HEADER, title), width), palette.muted)]

    def _build_group(self, index: int, width: int, selected: bool) -> list[TextRun]:
        assert self.state is not None
        line = format_cells(list_group_cells(self.state.groups[index], self.state.state.allocated), width)
        return [(line, self.groups.palette.text)]

    def find_peak_time(self) -> int:
        shown = self.device
        return 0 if shown is None else int(shown.history.memory.time[shown.history.memory.peak])

    def action_fit(self) -> None:
        shown = self._get_device()
        if shown is None or (lifetime := self._find_lifetime()) < 0:
            return
        low, high = self.viewport.limits
        start, end = max(int(shown.begin[lifetime]), low), min(int(shown.end[lifetime]), high)
        time = self.time if start <= self.time < end else start
        self._show_view(self.viewport.fit(start, max(end, start + 1)), time, "it fits the screen already", is_jump=True)

    def action_go_back(self) -> None:
        if not self._views:
            self._status.show_message("no earlier view: there was no jump yet; q: back to the lanes")
            return
        view, time = self._views.pop()
        width = self.viewport.width
        self._show_view(view if view.width == width else view.resize(width), time, "the earlier view is this one")

    def on_range_dragged(self, message: RangeDragged) -> None:
        start, end = sorted((int(message.start), int(message.end)))
        view = self.viewport.fit(start, max(end, start + 1), margin=0)
        self._show_view(view, view.middle(view.width // 2), "", is_jump=True)

    def on_zoom_asked(self, message: ZoomAsked) -> None:
        self._show_view(self.viewport.zoom(message.at, ZOOM_FACTOR**message.steps), self.time, "")

    def on_pan_asked(self, message: PanAsked) -> None:
        self._show_view(self.viewport.pan_cells(message.cells), self.time, "")

    def _find_lifetime(self) -> int:
        """Return the allocation under the row cursor; -1 where there is none, and say so."""
        if self._get_device() is not None and self.current_lifetime < 0:
            self._status.show_message("no allocation is listed: v or 0 shows more")
        return self.current_lifetime

    def has_row(self) -> bool:
        return self._find_lifetime() >= 0

    def show_row(self) -> None:
        self.request_state()

    def action_scroll_panel(self, direction: int) -> None:
        if self._get_device() is None:
            return
        before = self.groups.cursor
        # the cursor of the groups is their first row on screen
        last = max(self.groups.count - self.groups.page_size, 0)
        self.groups.cursor = min(max(before + direction * self.groups.page_size, 0), last)
        self.groups.scroll_lines(self.groups.cursor - before)
        edge = "" if self.groups.cursor != before else f"the {'last' if direction > 0 else 'first'} groups"
        self._status.show_message(edge)

    def on_row_picked(self, message: RowPicked) -> None:
        if message.opened:
            self.action_show()
        else:
            self.request_state()

    def action_match(self, distance: int) -> None:
        """Go to the listed allocation that was made next, or before, in time."""
        shown = self._get_device()
        if shown is None or (lifetime := self._find_lifetime()) < 0:
            return
        by_time = np.sort(self._listed_rows)
        place = int(np.searchsorted(by_time, lifetime)) + distance
        if not 0 <= place < len(by_time):
            self._status.show_message(f"the {'last' if distance > 0 else 'first'} of the listed allocations by time")
            return
        self._status.show_message(f"{place + 1:,} of {len(by_time):,} by time")
        self._select_lifetime(int(by_time[place]), move_cursor=not self.only_alive)

    def action_group(self, direction: int) -> None:
        self._show_grouping(cycle(list(GroupBy), self.by, direction))

    action_next_panel = action_group

    def on_panel_picked(self, message: PanelPicked) -> None:
        self._show_grouping(GroupBy(message.panel))

    def _show_grouping(self, by: GroupBy) -> None:
        if self._get_device() is None:
            return
        self.by = by
        self._tabs.show_active(by.value)
        self.request_state()

    def action_alive(self) -> None:
        shown = self._get_device()
        if shown is not None:
            self.only_alive = not self.only_alive
            which = "alive at the cursor" if self.only_alive else "on screen"
            self._status.show_message(f"listed: allocations {which}")
            self.refresh_view()

    def action_next_step(self, distance: int) -> None:
        if self._get_device() is None:
            return
        if len(self._devices) == 1:
            self._status.show_message("no other device has memory in this trace")
            return
        self._views.clear()
        self._show_device((self._number + distance) % len(self._devices))
        self._status.show_message(f"memory of {self._devices[self._number].history.memory.label}")

    def action_search(self) -> None:
        if self._get_device() is not None:
            self._open_prompt(FILTER_PROMPT, FILTER_HINT, "" if self._filter is None else self._filter.text)

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        if message.purpose != FILTER_PROMPT:  # handled by the base class
            return
        shown = self.device
        if shown is None or not message.text:
            self._close_prompt()
            self._clear_filter()
            return
        self._prompt.show_hint("searching …")
        self._worker.submit("filter", partial(filter_lifetimes, shown, self._number, message.text))

    def on_filter_made(self, message: FilterMade) -> None:
        if message.device != self._number or not self._prompt.is_open:
            return
        if message.problem:
            self._prompt.show_hint(message.problem)
            return
        self._close_prompt()
        self._filter = message
        self.refresh_view()
        count = len(self._listed_rows)
        self._status.show_message(f"{count:,} allocations with {message.text!r}", is_warning=not count)

    def _clear_filter(self) -> None:
        if self._filter is not None:
            self._filter = None
            self._status.show_message("")
            self.refresh_view()

    def action_show(self) -> None:
        shown = self._get_device()
        if shown is None or (lifetime := self._find_lifetime()) < 0:
            return
        event = int(shown.history.op[lifetime])
        if event < 0:
            record = int(shown.history.lifetimes.allocated_by[lifetime])
            self._status.show_message(
                "it was allocated before the recording: no op to show" if record < 0 else "no op was recorded for it"
            )
            return
        self.dismiss(event + self.rank.first)

    def action_back(self) -> None:
        """Clear the filter, else leave."""
        if self._filter is None:
            self.dismiss(None)
        else:
            self._clear_filter()

    def action_copy(self, everything: bool) -> None:
        if self._get_device() is None:
            return
        read = self.state
        if everything and read is not None:
            rows = [(*GROUP_HEADER, "what"), *(list_group_cells(each, read.state.allocated) for each in read.groups)]
            text = "".join("\t".join(row) + "\n" for row in rows)
            label = f"what is alive, by {self.by.value}"
        elif read is not None and read.detail:
            text = label = read.detail
        else:
            self._status.show_message("nothing to copy here yet")
            return
        self.copy_text(text, label)
