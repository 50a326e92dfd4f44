"""The explorer: the lanes of one trace, and the keys that walk them.

Every key changes the `Walk` (where somebody is) and then `_show` hands the new state to the widgets, which is
cheap; what a frame costs is paid when it is painted. So keys held down never queue frames. The screens that a key
leads to are imported behind the first frame (`app.py`), not before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.reactive import var
from textual.screen import Screen
from textual.widgets import Static

from torchprof_tui.analysis.doctor.read_problems import lost_in_a_line
from torchprof_tui.analysis.time.gpu_time import busy_by_device
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.messages import (
    ChainRead,
    Diagnosed,
    EventPicked,
    FactsRead,
    JumpAsked,
    LanesFolded,
    LanesResized,
    PanAsked,
    PanelPicked,
    PointerMoved,
    PromptChanged,
    PromptClosed,
    PromptSubmitted,
    RangeDragged,
    RangeRead,
    ScopeChecked,
    ScrollAsked,
    SliceWritten,
    TraceChecked,
    ZoomAsked,
)
from torchprof_tui.ui.common.status_line import Status
from torchprof_tui.ui.common.terminal_info import follow_theme, palette_for
from torchprof_tui.ui.explorer.child_screens import WaysOut
from torchprof_tui.ui.explorer.keys import BINDINGS, OPENS_PROMPT, key_hints, sections
from torchprof_tui.ui.explorer.lanes.empty_lanes import no_events_text
from torchprof_tui.ui.explorer.lanes_area import TraceView
from torchprof_tui.ui.explorer.layout import too_small
from torchprof_tui.ui.explorer.palette_commands import ExplorerCommands
from torchprof_tui.ui.explorer.panel_controller import Inspection
from torchprof_tui.ui.explorer.prompts import Prompts
from torchprof_tui.ui.explorer.view_state import Walk


class ExplorerScreen(Screen[None]):
    """Walk one trace. `walk` is where one is; see `torchprof_tui.ui.explorer.view_state`."""

    CSS_PATH = "explorer_screen.tcss"
    BINDINGS = BINDINGS
    COMMANDS = {ExplorerCommands}
    AUTO_FOCUS = ""
    TITLE = "explorer"
    details_open: var[bool] = var(True)

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.walk = Walk(trace)
        busy = busy_by_device(trace)
        self._view = TraceView(self.walk, busy)
        self._inspection = Inspection(self, self.walk, busy, self._view.timeline, self._view.gutter)
        self._dock = self._inspection.dock
        self._status = Status(id="status")
        self._prompts = Prompts(self, self.walk, self._show)
        self._ways_out = WaysOut(self.walk)
        self._settled = False
        self._lost = lost_in_a_line(trace)

    def compose(self) -> ComposeResult:
        yield Static("", id="too-small", markup=False)
        yield self._view.title
        yield self._inspection.verdict
        yield self._view.overview
        yield self._view.ruler
        with Horizontal(id="lanes"):
            yield self._view.gutter
            yield self._view.timeline
        yield Static(no_events_text(self.trace), id="empty", markup=False)
        with Horizontal(id="panels"):
            yield self._dock
            yield self._inspection.brief
        yield self._status
        yield self._prompts.prompt

    def on_mount(self) -> None:
        self.set_class(not self.trace.lanes, "empty")
        follow_theme(self)
        self._status.keys(key_hints())
        self._show()
        self.call_after_refresh(self._inspection.begin)

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        small = too_small(width, height)
        self.set_class(bool(small), "too-small")
        if small:
            self.query_one("#too-small", Static).update(small)
            return
        layout = self._view.fit(width, height)
        self.set_class(not layout.verdict, "low")
        self.set_class(not layout.brief, "narrow")
        self.query_one("#panels").styles.height = layout.dock
        self._show()

    def on_lanes_resized(self, message: LanesResized) -> None:
        self.walk.resize(message.width, message.height)
        if not self._settled and message.width > 1:
            self._settled = True
            self.walk.settle()
        self._show()

    # -- showing -------------------------------------------------------------------------------------------

    def _do(self, move: Callable[[], str | None]) -> None:
        """One key: change the state, say what there is to say, show."""
        self._show(move() or "")

    def _show(self, message: str = "") -> None:
        """Hand the state to the widgets. Cheap: each compares, and repaints in the next frame what differs."""
        self._view.show()
        self._inspection.show()
        said = message or self._standing()
        self._status.say(said or self._lost, alarm=not said)

    def _standing(self) -> str:
        """What the status line says when nothing has just happened."""
        walk, found = self.walk, self.walk.search.found
        if found is not None:
            place = walk.search.place_of(walk.selected)
            return f"{walk.search.query}: {place if place else '–'}/{len(found):,}"
        if walk.selected >= 0 and not self.details_open:
            event = self.trace.event(walk.selected)
            return f"{event.name} · {format_duration(event.duration)}"
        return ""

    def on_facts_read(self, message: FactsRead) -> None:
        self._inspection.facts_read(message)

    def on_chain_read(self, message: ChainRead) -> None:
        self._inspection.chain_read(message)

    def on_diagnosed(self, message: Diagnosed) -> None:
        self._inspection.diagnosed(message)

    def on_range_read(self, message: RangeRead) -> None:
        self._inspection.range_read(message)

    def on_trace_checked(self, message: TraceChecked) -> None:
        self._inspection.trace_checked(message)

    def on_scope_checked(self, message: ScopeChecked) -> None:
        self._inspection.scope_checked(message)

    # -- keys ----------------------------------------------------------------------------------------------

    def action_zoom(self, steps: int) -> None:
        self._do(partial(self.walk.zoom, steps))

    def action_pan(self, tenths: int) -> None:
        self._do(partial(self.walk.pan, tenths))

    def action_scroll_lanes(self, direction: int) -> None:
        self._do(partial(self.walk.lanes.scroll, direction * max(1, self.walk.lanes.height - 2)))

    def action_fit(self) -> None:
        self._do(self.walk.fit)

    def action_fit_all(self) -> None:
        self._do(self.walk.fit_all)

    def action_to_end(self, later: bool) -> None:
        low, high = self.walk.viewport.limits
        self._do(partial(self.walk.pan_to, high if later else low))

    def action_beside(self, distance: int) -> None:
        self._do(partial(self.walk.beside, distance))

    def action_up(self) -> None:
        self._do(lambda: self._or(self._inspection.along(-1, self.details_open), self.walk.up))

    def action_down(self) -> None:
        self._do(lambda: self._or(self._inspection.along(1, self.details_open), self.walk.down))

    @staticmethod
    def _or(said: str | None, move: Callable[[], str]) -> str:
        """A panel that one walks takes the key; else the lanes do."""
        return move() if said is None else said

    def action_jump(self) -> None:
        self._do(partial(self._inspection.jump, self.details_open))

    def action_follow_next(self) -> None:
        self.details_open = True
        self._do(self._inspection.follow_next)

    def action_labels(self) -> None:
        self._do(self._inspection.toggle_labels)

    def action_follow(self, forward: bool) -> None:
        self._do(partial(self.walk.follow, forward))

    def action_step(self, later: bool) -> None:
        self._do(partial(self.walk.step, later))

    def action_clear(self) -> None:
        self._do(self.walk.clear)

    def action_fold(self) -> None:
        lane = self.walk.current_lane()
        if lane >= 0:
            self._do(partial(self.walk.fold, (lane,)))

    def action_pin(self) -> None:
        lane = self.walk.current_lane()
        if lane >= 0:
            self._do(partial(self.walk.pin, lane))

    def action_hide(self) -> None:
        self._do(partial(self.walk.hide, self.walk.current_lane()))

    def action_show_hidden(self) -> None:
        self._do(self.walk.show_all)

    def action_fold_all(self, fold: bool) -> None:
        self._do(partial(self.walk.fold_all, fold))

    def action_mark(self) -> None:
        self._do(self.walk.toggle_mark)

    def action_to_found(self, later: bool) -> None:
        said = self._inspection.evidence(1 if later else -1, self.details_open)
        self._do(lambda: self._or(said, partial(self.walk.to_found, later)))

    def action_search(self) -> None:
        self._prompts.search()

    def action_go_to(self) -> None:
        self._prompts.go_to()

    def action_slice(self) -> None:
        self._prompts.slice()

    def on_slice_written(self, message: SliceWritten) -> None:
        self._status.say(message.line, alarm=message.failed)

    def action_next_panel(self, direction: int) -> None:
        self.details_open = True
        self._dock.cycle(direction)
        self._inspection.light()

    def action_panel(self, name: str) -> None:
        if self.details_open and self._dock.active == name:
            self.details_open = False
        else:
            self.details_open = True
            self._dock.show(name)
        self._inspection.light()

    def action_guess(self) -> None:
        self.app.push_screen(self._ways_out.guess())

    def action_table(self) -> None:
        self.app.push_screen(self._ways_out.table(), self._come_back)

    def action_tree(self) -> None:
        self.app.push_screen(self._ways_out.tree(), self._come_back)

    def _come_back(self, event: int | None) -> None:
        """From a screen of its own, with the event that was chosen there."""
        if event is not None:
            self.walk.select(event)
            self.walk.fit()
        self._show()

    def action_scroll_panel(self, direction: int) -> None:
        self._dock.panel.scroll_lines(direction * max(1, self._dock.panel.size.height - 1))

    def action_copy(self, everything: bool) -> None:
        if self.walk.selected < 0 and self.walk.mark is None:
            self._show("nothing to copy: nothing is selected or marked")
            return
        if everything or self.walk.selected < 0:
            text, what = self._dock.panel.text(), f"all of the panel {self._dock.active!r}"
        else:
            text = what = self.trace.event(self.walk.selected).name
        self.app.copy_to_clipboard(text)
        self._show(f"copied: {what}")

    def action_help(self) -> None:
        from torchprof_tui.ui.common.help_screen import HelpScreen

        self.app.push_screen(HelpScreen(sections(self.active_bindings.values()), palette_for(self.app)))

    def watch_details_open(self, is_open: bool) -> None:
        self.set_class(not is_open, "no-dock")
        if self.is_mounted:
            self._show()

    # -- the prompt ----------------------------------------------------------------------------------------

    async def on_key(self, event: events.Key) -> None:
        """What is typed in one breath with `/` arrives here, on its way up, before the prompt has the focus."""
        prompt = self._prompts.prompt
        if prompt.is_open and event.is_printable and event.character:
            event.stop()
            prompt.type(event.character)
        elif event.key in OPENS_PROMPT:
            event.stop()
            await self.run_action(OPENS_PROMPT[event.key])

    def on_prompt_changed(self, message: PromptChanged) -> None:
        self._prompts.changed(message)

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        self._prompts.submitted(message)

    def on_prompt_closed(self, message: PromptClosed) -> None:
        self._prompts.closed(message)

    # -- the mouse -----------------------------------------------------------------------------------------

    def on_event_picked(self, message: EventPicked) -> None:
        if message.event >= 0:
            self.walk.select(message.event)
        elif message.lane >= 0:
            self.walk.lane, self.walk.selected = message.lane, -1
        self._show()

    def on_zoom_asked(self, message: ZoomAsked) -> None:
        self._do(partial(self.walk.zoom, message.steps, int(message.at)))

    def on_pan_asked(self, message: PanAsked) -> None:
        self._do(partial(self.walk.pan_cells, message.cells))

    def on_scroll_asked(self, message: ScrollAsked) -> None:
        self._do(partial(self.walk.lanes.scroll, message.lines))

    def on_pointer_moved(self, message: PointerMoved) -> None:
        self.walk.pointer = None if message.at is None else int(message.at)
        self._view.ruler.point_at(self.walk.cursor())

    def on_range_dragged(self, message: RangeDragged) -> None:
        self._do(partial(self.walk.mark_range, int(message.start), int(message.end)))

    def on_jump_asked(self, message: JumpAsked) -> None:
        self._do(partial(self.walk.pan_to, int(message.at)))

    def on_lanes_folded(self, message: LanesFolded) -> None:
        self._do(partial(self.walk.fold, message.lanes))

    def on_panel_picked(self, message: PanelPicked) -> None:
        self._dock.show(message.panel)
        self._inspection.light()
