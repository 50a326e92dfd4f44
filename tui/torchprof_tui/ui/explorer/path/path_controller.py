"""Controller of the critical path on the screen: requests it for what is shown, and walks along it.

The path is found on a worker thread by a module that is imported there.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.debounced_worker import DebouncedWorker
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.explorer.panels.chain_panel import ChainPanel
from torchprof_tui.ui.explorer.path.path_panel import OFF_HINT, PathPanel
from torchprof_tui.ui.explorer.path.path_scope import ALL_RANKS, PathScope, choose_scope, join_ranks
from torchprof_tui.ui.lanes.timeline import Timeline
from torchprof_tui.ui.lanes.view_state import ViewState

if TYPE_CHECKING:
    from textual.screen import Screen

    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.ui.explorer.path.shown_path import PathRead

MAX_KEPT_PATHS = 4
SEGMENT_MARGIN = 0.5
"""Margin on both sides of a segment that is shown, as a share of its length: what it waited for is on screen."""

MIN_SEGMENT_CELLS = 3
"""A segment that is narrower on screen is zoomed to."""


def read_path(trace: Trace, scope: PathScope) -> PathRead:
    """Find the critical path of a scope; called on a worker thread."""
    read: PathRead = importlib.import_module("torchprof_tui.ui.explorer.path.shown_path").read_path(trace, scope)
    return read


class PathController:
    """Own the panel. `is_on`: whether the path is shown. Call `update` after every move."""

    def __init__(
        self, screen: Screen[None], view_state: ViewState, timeline: Timeline, chain_panel: ChainPanel
    ) -> None:
        self._view_state, self._timeline, self._chain_panel = view_state, timeline, chain_panel
        self.panel = PathPanel(view_state.trace, id="path")
        self.is_on = False
        self._is_joined = False  # the path of all ranks, not that of the cursor's rank
        self._debounced_worker = DebouncedWorker(screen)
        self._requested: PathScope | None = None
        self._rank_scope: PathScope | None = None  # of the cursor's rank
        self._kept: dict[PathScope, PathRead] = {}
        self._position = -1  # the segment that the last step along the path went to
        self._walked_event = -1  # selected by the last step: it may begin in another step, but belongs to this path

    @property
    def has_keys(self) -> bool:
        """Whether there is a path for the panel's keys."""
        return self.is_on and self.panel.shown is not None

    def toggle(self) -> str:
        """Show the path, or hide it; a mark that still follows the selection ends here. Returns a message.

        Of several ranks first the path of all, then that of the cursor's rank.
        """
        if self.is_on and self._is_joined:
            self._is_joined = False
        else:
            self.is_on = not self.is_on
            self._is_joined = self.is_on and self._view_state.trace.merged_ranks is not None
        if self.is_on and self._view_state.mark is not None and self._view_state.mark.live:
            self._view_state.toggle_mark()
        self._requested = self._rank_scope = None
        self.update()
        if not self.is_on:
            return "critical path hidden"
        return "" if self.panel.shown is not None else self._describe_computing()

    def update(self) -> None:
        """Pass the state to panel and lanes; request a path where the scope is another."""
        if not self.is_on:
            self.panel.show_message(OFF_HINT)
            self._timeline.show_path(None)
            self._chain_panel.show_path_note("")
            return
        state = self._view_state
        ranks = state.trace.merged_ranks
        rank_index = 0 if ranks is None else ranks.index_of_lane(state.current_rank().header_lane)
        if self._walked_event < 0 or state.selected != self._walked_event or self._requested is None:
            self._walked_event = -1
            scope = self._rank_scope = choose_scope(state, rank_index, self._rank_scope)
            if self._is_joined:
                scope = join_ranks(scope, state.trace)
        else:
            scope = self._requested
        if scope != self._requested:
            self._requested = scope
            if scope in self._kept:
                self._show(self._kept[scope])
            else:
                self.panel.show_message(self._describe_computing())
                self._debounced_worker.submit("path", partial(read_path, state.trace, scope))
        self._describe_selection()

    def receive(self, message: PathRead) -> str:
        """Show a path that was found, if it is still asked for. Returns a message."""
        self._kept[message.scope] = message
        while len(self._kept) > MAX_KEPT_PATHS:
            del self._kept[next(iter(self._kept))]
        if not self.is_on or message.scope != self._requested:
            return ""
        self._show(message)
        self._describe_selection()
        if message.path is None:
            return f"no critical path: {message.problem}"
        path, share = message.path.path, message.path.path.shares[0]
        trust = "" if path.is_trusted else f" · replay error {path.replay_error * 100:.1f} %: dependencies are missing"
        most = f"{format_share(share.share)} {share.label}"
        of = clean(message.scope.label)
        if message.scope.rank_index == ALL_RANKS:
            late = path.rank_shares[0]
            most += f", {format_share(late.share)} on rank {late.rank}"
            return f"critical path of {of} on all ranks: {most}{trust} · C: of this rank alone"
        return f"critical path of {of}: {most}{trust} · C hides it"

    def _show(self, read: PathRead) -> None:
        self._position = -1
        self._timeline.show_path(None if read.path is None else read.path.rows)
        if read.path is None:
            self.panel.show_message(f"No critical path of {clean(read.scope.label)}: {read.problem}.")
        else:
            self.panel.show_path(read.path)

    def _describe_computing(self) -> str:
        label = "" if self._requested is None else f" of {clean(self._requested.label)}"
        return f"computing the critical path{label} …"

    def _describe_selection(self) -> None:
        shown, selected = self.panel.shown, self._view_state.selected
        text = "" if shown is None or selected < 0 else shown.describe_event(self._view_state.trace, selected)
        self.panel.show_selection(text)
        self._chain_panel.show_path_note(text)

    # -- keys of the panel ---------------------------------------------------------------------------------

    def move_cursor(self, distance: int) -> str:
        """Handle ↑ ↓. Returns a message."""
        if self.panel.move_cursor(distance) or (distance < 0 and self.panel.show_top()):
            self._position = -1
            return ""
        return f"the {'last' if distance > 0 else 'first'} row of the critical path; tab leaves the panel"

    def show_segment(self) -> str:
        """Handle enter: show the segment under the cursor on the lanes."""
        return self._go_to(self.panel.segment_index, fits=True)

    def step(self, distance: int) -> str:
        """Handle n and N: go to the next segment (1) or the previous one (-1), of the kind under the cursor if any."""
        shown = self.panel.shown
        if shown is None:
            return ""
        indexes = shown.list_segments(self.panel.kind)
        place = int(indexes.searchsorted(self._position))
        if self._position >= 0 and place < len(indexes) and int(indexes[place]) == self._position:
            place += distance
        else:  # the first step: from the cursor of the lanes
            ends = shown.path.segments.end[indexes]
            place = int(ends.searchsorted(self._view_state.cursor_time(), side="right")) - (distance < 0)
        return self._go_to(int(indexes[place % len(indexes)]), fits=False)

    def _go_to(self, index: int, fits: bool) -> str:
        """Select the event of a segment, and show its time. Returns a message that describes the segment."""
        shown, state = self.panel.shown, self._view_state
        if shown is None or index < 0:
            return ""
        self._position = index
        segment = shown.segment(index)
        view = state.viewport
        state.select(segment.event)
        state.viewport = view
        length = segment.end - segment.start
        is_inside = view.t0 <= segment.start and segment.end <= view.t1
        if fits or length < MIN_SEGMENT_CELLS * view.ns_per_cell or length > view.span:
            margin = max(round(length * SEGMENT_MARGIN), 1)
            state.show_range(segment.start - margin, segment.end + margin)
        elif not is_inside:
            state.viewport = view.centre((segment.start + segment.end) // 2)
        self._walked_event = segment.event
        place = f"{index + 1:,} of {len(shown.path.segments):,}"
        return f"critical path, {place}: {format_duration(length)} {self.panel.describe_segment(segment)}"
