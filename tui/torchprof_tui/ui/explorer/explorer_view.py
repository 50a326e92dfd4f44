"""The widgets of the explorer screen, their layout, and how the state reaches them. Keys and mouse: `explorer_screen`.

`_refresh_widgets` passes the state to the widgets. It is cheap, because the cost of a frame is paid when it is
painted, so held-down keys never queue frames.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.reactive import var
from textual.screen import Screen
from textual.widgets import Static

from torchprof_tui.analysis.doctor.read_problems import summarize_losses
from torchprof_tui.analysis.repetition.step_list import are_repetitions
from torchprof_tui.analysis.search.name_search import is_case_sensitive
from torchprof_tui.analysis.time.gpu_time import compute_busy_by_device
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.debounced_worker import WorkResult
from torchprof_tui.ui.common.keys import key_hints
from torchprof_tui.ui.common.screen_state import is_removed
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.common.terminal_info import follow_theme
from torchprof_tui.ui.explorer.child_screens import ChildScreens
from torchprof_tui.ui.explorer.lanes_area import LanesArea
from torchprof_tui.ui.explorer.layout import PanelSize, too_small_message
from torchprof_tui.ui.explorer.panel_controller import PanelController
from torchprof_tui.ui.explorer.path.what_if_controller import WhatIfController
from torchprof_tui.ui.explorer.prompts import CASE_NOTE, PromptController
from torchprof_tui.ui.lanes.empty_lanes import no_events_text
from torchprof_tui.ui.lanes.selection_moves import SelectionMoves
from torchprof_tui.ui.lanes.timeline import LanesResized
from torchprof_tui.ui.lanes.view_state import NO_LANES, ViewState

if TYPE_CHECKING:
    from torchprof_tui.ui.explorer.path.shown_forecast import WhatIfRead

STAGE_SECONDS = 0.2
"""Seconds between updates of the sign that a trace is still being loaded."""


class ExplorerView(Screen[None]):
    """Show one trace. `view_state`: the state; `moves`: how keys move the selection."""

    CSS_PATH = "explorer_view.tcss"
    AUTO_FOCUS = ""
    TITLE = "explorer"
    details_open: var[bool] = var(True)
    panel_size: var[PanelSize] = var(PanelSize.NORMAL)

    def __init__(self, trace: Trace, get_stage: Callable[[], str] | None = None) -> None:
        """Show a trace; of one that is the beginning of another, `get_stage` tells how far the rest is loaded."""
        super().__init__()
        self._get_stage = get_stage
        self._first_panel = ""
        self.trace = trace
        self.view_state = ViewState(trace)
        self.moves = SelectionMoves(self.view_state)
        busy = compute_busy_by_device(trace)
        self._lanes_area = LanesArea(self.view_state, busy)
        self._panel_controller = PanelController(
            self, self.view_state, busy, self._lanes_area.timeline, self._lanes_area.gutter
        )
        self._dock = self._panel_controller.dock
        self._status = StatusLine(id="status")
        what_if = WhatIfController(self, self.view_state, self._panel_controller.path_panel)
        self._prompts = PromptController(self, self.view_state, self.moves, what_if, self._refresh_widgets)
        self._child_screens = ChildScreens(self.view_state)
        self._data_loss_line = summarize_losses(trace)

    def compose(self) -> ComposeResult:
        yield Static("", id="too-small", markup=False)
        yield self._lanes_area.title
        yield self._panel_controller.scopes.verdict_line
        yield self._lanes_area.overview
        yield self._lanes_area.ruler
        with Horizontal(id="lanes"):
            yield self._lanes_area.gutter
            yield self._lanes_area.timeline
        yield Static(no_events_text(self.trace), id="empty", markup=False)
        yield self._dock
        yield self._status
        yield self._prompts.prompt

    def on_mount(self) -> None:
        self.set_class(not self.trace.lanes, "empty")
        follow_theme(self)
        self._status.show_keys(key_hints())
        self._refresh_widgets()
        if self._first_panel:  # a mark has shown its own
            self._dock.show_panel(self._first_panel)
        self.call_after_refresh(self._panel_controller.start_checks)
        if self._get_stage is not None:
            self._show_stage(self._get_stage)
            self.set_interval(STAGE_SECONDS, partial(self._show_stage, self._get_stage))

    def on_resize(self, event: events.Resize) -> None:
        if is_removed(self):
            return
        width, height = event.size
        small = too_small_message(width, height)
        self.set_class(bool(small), "too-small")
        if small:
            self.query_one("#too-small", Static).update(small)
            return
        self.view_state.reset_arrangement()
        self._apply_layout()
        self.call_after_refresh(self._arrange_lanes)

    def _apply_layout(self) -> None:
        """Share out the screen for its size and the size that the panels have by `z`."""
        panel_size = self.panel_size if self.details_open and self.trace.lanes else PanelSize.NORMAL
        layout = self._lanes_area.apply_layout(*self.size, panel_size)
        self.set_class(not layout.verdict, "low")
        self._panel_controller.scopes.verdict_line.styles.height = max(layout.verdict, 1)
        self.set_class(panel_size is PanelSize.WHOLE, "panels-only")
        self._dock.styles.height = layout.dock
        self._dock.show_side_by_side(layout.panels, self.size.width)
        self._refresh_widgets()

    def on_lanes_resized(self, message: LanesResized) -> None:
        self.view_state.resize(message.width, message.height)
        self._refresh_widgets()

    def _arrange_lanes(self) -> None:
        """Arrange the lanes for the size that they got, and give the lines that they leave to the panels."""
        size = self._lanes_area.timeline.size
        self.view_state.resize(size.width, size.height)
        if size.width > 1 and self.view_state.arrange_lanes():
            self._apply_layout()

    def _show_stage(self, get_stage: Callable[[], str]) -> None:
        self._lanes_area.title.show_stage(get_stage())

    @property
    def is_asking(self) -> bool:
        """Whether the user types into the prompt."""
        return self.has_class("asking")

    def take_panels(self, other: ExplorerView) -> None:
        """Show the panel, and the scope of the cheatsheet, that another explorer shows. Call it before mounting."""
        if other._dock.active_name in self._dock.names:
            self._first_panel = other._dock.active_name
        self._panel_controller.scopes.mode = other._panel_controller.scopes.mode

    # -- showing the state ---------------------------------------------------------------------------------

    def _run_move(self, move: Callable[[], str | None], is_jump: bool = True) -> None:
        """Change the state, then refresh the widgets and show the message that the move returned.

        `is_jump`: `backspace` returns to the view before the move, if the move changed it.
        """
        message = self.view_state.jump(move) if is_jump else move() or ""
        self._refresh_widgets(message or ("" if self.trace.lanes else NO_LANES))

    def _refresh_widgets(self, message: str = "") -> None:
        """Pass the state to the widgets. Cheap: each compares it and repaints what differs in the next frame."""
        self._lanes_area.update_widgets()
        self._panel_controller.update_panels()
        line = message or self._default_status()
        self._status.show_message(
            line or self._data_loss_line or self._rank_hint(), is_warning=not line and bool(self._data_loss_line)
        )

    def show_position(self, text: str) -> str:
        """Go to a time or a step, as `g` does. Returns why that failed, else ""."""
        problem = self.view_state.go_to(text)
        self._refresh_widgets()
        return problem

    def _default_status(self) -> str:
        """Return the status line for a state without a message: the search, or the selected event."""
        state, matches = self.view_state, self.view_state.search.matches
        if matches is not None:
            number = state.search.match_number(state.selected)
            case = f" · {CASE_NOTE}" if is_case_sensitive(state.search.query) else ""
            return f"{state.search.query}: {number if number else '–'}/{len(matches):,}{case}"
        if state.selected >= 0 and not self.details_open:
            event = self.trace.event(state.selected)
            return f"{event.name} · {format_duration(event.duration)}"
        return ""

    def _rank_hint(self) -> str:
        """Return how to open a rank, for the first screen of ranks that do not fit."""
        return "space opens a rank" if self.view_state.lane < 0 and self.view_state.lane_view.has_folded_rank else ""

    @on(WorkResult)
    def _pass_result(self, result: WorkResult) -> None:
        message = self._panel_controller.receive(result)
        if message:
            self._refresh_widgets(message)

    def on_trace_checked(self) -> None:
        if are_repetitions(self.view_state.current_steps()):  # found with the check: they have lines of their own
            self._lanes_area.update_widgets()
            self._apply_layout()

    def on_what_if_read(self, message: WhatIfRead) -> None:
        self._prompts.receive_forecast(message)

    def watch_details_open(self, is_open: bool) -> None:
        self.set_class(not is_open, "no-dock")
        if self.is_mounted:
            self._panel_controller.release_evidence()
            self._apply_layout()

    def watch_panel_size(self, _size: PanelSize) -> None:
        if self.is_mounted:
            self._apply_layout()
