"""Screen of the memory of a trace: its curve by category, the lifetimes of allocations, and what is alive at a time."""

from __future__ import annotations

from functools import partial

import numpy as np

from torchprof_tui.analysis.memory.memory_history import GroupBy
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.list_keys import switch_child_screen
from torchprof_tui.ui.common.panel_dock import PanelPicked
from torchprof_tui.ui.common.prompt_input import PromptClosed, PromptSubmitted
from torchprof_tui.ui.common.row_list import RowPicked
from torchprof_tui.ui.common.status_line import format_copy_message
from torchprof_tui.ui.lanes.mouse_gestures import JumpAsked, PanAsked, RangeDragged, ZoomAsked
from torchprof_tui.ui.lanes.view_state import LARGEST_ZOOM, PAN_DIVISOR, WHOLE_TRACE, ZOOM_FACTOR, ViewState
from torchprof_tui.ui.memory.lifetime_rows import GROUP_HEADER, list_group_cells
from torchprof_tui.ui.memory.memory_keys import BINDINGS
from torchprof_tui.ui.memory.memory_screen_view import MemoryScreenView
from torchprof_tui.ui.memory.memory_worker import FilterMade, MemoryRead, ShownDevice, filter_lifetimes

FILTER_PROMPT = "filter"
FILTER_HINT = "op, module, line, category or phase; or /regular expression/ · ↑ earlier"
NOT_READ = "nothing to see yet: the memory is being read"
NO_ALLOCATION = "no allocation is listed: v or 0 shows more"
MAX_VIEWS = 50


class MemoryScreen(MemoryScreenView):
    """Dismissed with the event to show on the lanes, the op of an allocation, or None."""

    BINDINGS = BINDINGS
    help_topic = "memory"

    def __init__(self, view_state: ViewState, known: dict[int, MemoryRead]) -> None:
        super().__init__(view_state, known)
        self._views: list[tuple[Viewport, int]] = []

    def _get_device(self) -> ShownDevice | None:
        """Return the device; None where there is none, and say so."""
        if self.device is None:
            self._status.show_message(self._problem or NOT_READ)
        return self.device

    # -- time ----------------------------------------------------------------------------------------------

    def _show_view(self, viewport: Viewport, time: int, reason: str, is_jump: bool = False) -> None:
        """Show a viewport and a cursor, or say why that changes nothing."""
        if self._get_device() is None:
            return
        if (viewport, time) == (self.viewport, self.time):
            self._status.show_message(reason)
            return
        if is_jump:
            self._views = [*self._views[1 - MAX_VIEWS :], (self.viewport, self.time)]
        self.viewport, self.time = viewport, time
        self._status.show_message("")
        self.refresh_view()

    def action_zoom(self, steps: int) -> None:
        reason = LARGEST_ZOOM if steps > 0 else WHOLE_TRACE
        time = min(max(self.time, self.viewport.t0), self.viewport.t1 - 1)
        self._show_view(self.viewport.zoom(time, ZOOM_FACTOR**steps), self.time, reason)

    def action_pan(self, tenths: int) -> None:
        view = self.viewport.pan_cells(tenths * max(1, self.viewport.width // PAN_DIVISOR))
        reason = WHOLE_TRACE if view.is_whole else f"the {'end' if tenths > 0 else 'start'} of the trace"
        is_inside = view.t0 <= self.time < view.t1
        time = self.time if is_inside or view == self.viewport else view.middle(view.width // 2)
        self._show_view(view, time, reason)

    def action_fit_all(self) -> None:
        low, high = self.viewport.limits
        view = Viewport.whole((low, high), self.viewport.width, margin=0)
        self._show_view(view, self.time, WHOLE_TRACE, is_jump=True)

    def action_to_end(self, later: bool) -> None:
        low, high = self.viewport.limits
        time = high - 1 if later else low
        self._show_view(self.viewport.reveal(time, time + 1), time, f"the {'end' if later else 'start'}", is_jump=True)

    def action_step(self, cells: int) -> None:
        """Move the cursor by cells: into the middle of the next one."""
        cell = self.viewport.cell(self.time) + cells
        time = min(max(self.viewport.middle(cell), self.viewport.limits[0]), self.viewport.limits[1] - 1)
        edge = f"the {'end' if cells > 0 else 'start'} of the trace"
        self._show_view(self.viewport.reveal(time, time + 1), time, edge)

    def action_peak(self) -> None:
        shown = self._get_device()
        if shown is not None:
            memory = shown.history.memory
            time = int(memory.time[memory.peak])
            self._show_view(self.viewport.reveal(time, time + 1), time, "the cursor is at the peak", is_jump=True)

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

    def on_jump_asked(self, message: JumpAsked) -> None:
        """Move the cursor to where the curve was clicked."""
        self._show_view(self.viewport, int(message.at), "")

    def on_range_dragged(self, message: RangeDragged) -> None:
        start, end = sorted((int(message.start), int(message.end)))
        view = self.viewport.fit(start, max(end, start + 1), margin=0)
        self._show_view(view, view.middle(view.width // 2), "", is_jump=True)

    def on_zoom_asked(self, message: ZoomAsked) -> None:
        self._show_view(self.viewport.zoom(message.at, ZOOM_FACTOR**message.steps), self.time, "")

    def on_pan_asked(self, message: PanAsked) -> None:
        self._show_view(self.viewport.pan_cells(message.cells), self.time, "")

    # -- rows ----------------------------------------------------------------------------------------------

    def _find_lifetime(self) -> int:
        """Return the allocation under the row cursor; -1 where there is none, and say so."""
        if self._get_device() is not None and self.current_lifetime < 0:
            self._status.show_message(NO_ALLOCATION)
        return self.current_lifetime

    def action_move(self, rows: int) -> None:
        if self._find_lifetime() < 0:
            return
        before = self.lifetimes.cursor
        self.lifetimes.move_by(rows)
        edge = "" if self.lifetimes.cursor != before else f"the {'first' if rows < 0 else 'last'} row"
        self._status.show_message(edge)
        self.request_state()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * self.lifetimes.page_size)

    def action_scroll(self, direction: int) -> None:
        if self._get_device() is None:
            return
        before = self.groups.cursor
        # the cursor of the groups is their first row on screen
        last = max(self.groups.count - self.groups.page_size, 0)
        self.groups.cursor = min(max(before + direction * self.groups.page_size, 0), last)
        self.groups.scroll_rows(self.groups.cursor - before)
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
        by_time = np.sort(self._rows)
        place = int(np.searchsorted(by_time, lifetime)) + distance
        if not 0 <= place < len(by_time):
            self._status.show_message(f"the {'last' if distance > 0 else 'first'} of the listed allocations by time")
            return
        self._status.show_message(f"{place + 1:,} of {len(by_time):,} by time")
        self._select_lifetime(int(by_time[place]), move_cursor=not self.only_alive)

    # -- what is shown -------------------------------------------------------------------------------------

    def action_group(self, direction: int) -> None:
        kinds = list(GroupBy)
        self._show_grouping(kinds[(kinds.index(self.by) + direction) % len(kinds)])

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

    def action_device(self) -> None:
        if self._get_device() is None:
            return
        if len(self._devices) == 1:
            self._status.show_message("no other device has memory in this trace")
            return
        self._views = []
        self._show_device((self._number + 1) % len(self._devices))
        self._status.show_message(f"memory of {self._devices[self._number].history.memory.label}")

    # -- filtering -----------------------------------------------------------------------------------------

    def action_search(self) -> None:
        if self._get_device() is not None:
            self.add_class("asking")
            self._prompt.open(
                FILTER_PROMPT, FILTER_HINT, "" if self._filter is None else self._filter.text, replace=True
            )

    def _close_prompt(self) -> None:
        self.remove_class("asking")
        self._prompt.close()

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
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
        count = len(self._rows)
        self._status.show_message(f"{count:,} allocations with {message.text!r}", is_warning=not count)

    def on_prompt_closed(self, message: PromptClosed) -> None:
        self._close_prompt()

    def _clear_filter(self) -> None:
        if self._filter is not None:
            self._filter = None
            self._status.show_message("")
            self.refresh_view()

    # -- leaving and copying -------------------------------------------------------------------------------

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

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_child(self, action: str) -> None:
        switch_child_screen(self, action)

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
        self.app.copy_to_clipboard(text)
        self._status.show_message(format_copy_message(label))
