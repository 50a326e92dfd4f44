"""The explorer screen: the lanes of one trace, the panels below them, and the actions of all keys and of the mouse.

An action changes the `ViewState`; `_refresh_widgets` passes the new state to the widgets. That is cheap, because the
cost of a frame is paid when it is painted, so held-down keys never queue frames. Screens that keys open are imported
after the first frame (`app.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.reactive import var
from textual.widgets import Static

from torchprof_tui.analysis.doctor.read_problems import summarize_losses
from torchprof_tui.analysis.repetition.step_list import are_repetitions, find_kept_repetitions
from torchprof_tui.analysis.search.name_search import is_case_sensitive
from torchprof_tui.analysis.time.gpu_time import compute_busy_by_device
from torchprof_tui.analysis.words.dictionary import Word, find_event_word
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.specs.address import SAMPLE_PREFIX
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.compare_asked import TrialsAsked
from torchprof_tui.ui.common.debounced_worker import WorkResult
from torchprof_tui.ui.common.name_display import shorten
from torchprof_tui.ui.common.panel_dock import PanelPicked
from torchprof_tui.ui.explorer.background_queries import search_repetitions
from torchprof_tui.ui.explorer.child_screens import ChildScreens
from torchprof_tui.ui.explorer.lanes_area import LanesArea, PanelSize, no_events_text, too_small_message
from torchprof_tui.ui.explorer.panel_controller import PanelController
from torchprof_tui.ui.explorer.panels.panel import Panel
from torchprof_tui.ui.explorer.prompts import CASE_NOTE, WHAT_IF, WHAT_IF_FORMS, PromptScreen
from torchprof_tui.ui.lanes.lane_gutter import LanesFolded
from torchprof_tui.ui.lanes.mouse_gestures import EventPicked, JumpAsked, PanAsked, RangeDragged, ScrollAsked, ZoomAsked
from torchprof_tui.ui.lanes.overview import ViewDragged
from torchprof_tui.ui.lanes.timeline import LanesResized, PointerMoved, SeamPicked
from torchprof_tui.ui.lanes.view_state import NO_LANES, NOTHING_TO_CLEAR, WHEEL_HINT, transfer_state
from torchprof_tui.ui.source.source_screen import SourceScreen

STAGE_SECONDS = 0.2  # seconds between updates of the sign that a trace is still being loaded


class LoadingCancelled(Message):
    """The rest of a trace, whose beginning is on screen, is not to be loaded."""


EVENT_PANELS = frozenset({"details", "chain", "kernel"})  # panels about the selected event

FIRST_PANEL = "details"
"""The panel that a trace opens with. The others have more lines on a low screen, because they were asked for."""

CANCEL_HINT = "nothing to clear; esc again stops loading this trace"


class ExplorerScreen(PromptScreen):
    """Show one trace. `view_state`: the state; `moves`: how keys move the selection."""

    BINDINGS = keys.LANES
    KEYLESS_COMMANDS = keys.KEYLESS_COMMANDS
    CSS_PATH = "explorer_screen.tcss"
    TITLE = "explorer"
    details_open: var[bool] = var(True)
    panel_size: var[PanelSize] = var(PanelSize.NORMAL)
    reserved_lines: var[int] = var(0)
    """Lines at the top that something else takes, such as the panel of a case."""
    is_quiz: var[bool] = var(False)
    """Whether a question is being asked that the verdict and the findings would answer: then they are not shown."""

    def __init__(self, trace: Trace, get_stage: Callable[[], str] | None = None) -> None:
        """Show a trace; of one that is the beginning of another, `get_stage` tells how far the rest is loaded."""
        super().__init__(trace)
        self._get_stage = get_stage
        self._first_panel = ""
        self._laid_out_for = ("", False)
        busy = compute_busy_by_device(trace)
        self._lanes_area = LanesArea(self.view_state, busy)
        self._panel_controller = PanelController(
            self, self.view_state, busy, self._lanes_area.timeline, self._lanes_area.gutter
        )
        self._dock = self._panel_controller.dock
        self._path_panel = self._panel_controller.path_panel
        self._child_screens = ChildScreens(self.view_state, self._panel_controller.queries)
        self._data_loss_line = summarize_losses(trace)

    def compose(self) -> ComposeResult:
        yield Static("", id="too-small", markup=False)
        yield self._lanes_area.title
        yield self._panel_controller.scopes.verdict_line
        yield self._lanes_area.overview
        yield self._lanes_area.ruler
        with Horizontal(id="lanes"):
            yield from (self._lanes_area.gutter, self._lanes_area.timeline)
        yield Static(no_events_text(self.trace), id="empty", markup=False)
        yield self._dock
        yield self._status
        yield self._prompt

    def on_mount(self) -> None:
        self.set_class(not self.trace.lanes, "empty")
        hints = keys.LANES_HINTS if self.trace.links.gpu_events else keys.CPU_HINTS
        has_memory = any(rank.trace.memory is not None for rank in self.trace.all_ranks)
        self.follow_theme([*hints[:4], *keys.MEMORY_HINT, *hints[4:]] if has_memory else hints)
        self._refresh_widgets()
        if self._first_panel:  # a mark has shown its own
            self._dock.show_panel(self._first_panel)
        self.call_after_refresh(self._panel_controller.start_checks)
        if self._get_stage is not None:
            get_stage, show_stage = self._get_stage, self._lanes_area.title.show_stage
            show_stage(get_stage())
            self.set_interval(STAGE_SECONDS, lambda: show_stage(get_stage()))

    def on_resize(self, event: events.Resize) -> None:
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
        self._laid_out_for = self._layout_key
        layout = self._lanes_area.apply_layout(
            self.size.width, self.size.height - self.reserved_lines, panel_size, self._dock.active_name != FIRST_PANEL
        )
        self.set_class(not layout.verdict, "low")
        self._panel_controller.scopes.verdict_line.styles.height = max(layout.verdict, 1)
        self.set_class(panel_size is PanelSize.WHOLE, "panels-only")
        self._dock.styles.height = layout.dock
        self._panel_controller.scopes.verdict_line.visible = not self.is_quiz
        self._dock.show_side_by_side(1 if self.is_quiz else layout.panels, self.size.width)
        self._refresh_widgets()

    @property
    def _layout_key(self) -> tuple[str, bool]:
        """What the screen is shared out for: the active panel, and whether all ranks are folded."""
        return self._dock.active_name, self.view_state.lane_view.are_ranks_folded

    def on_lanes_resized(self, message: LanesResized) -> None:
        self.view_state.resize(message.width, message.height)
        self._refresh_widgets()

    def _arrange_lanes(self) -> None:
        """Arrange the lanes for the size that they got, and give the lines that they leave to the panels."""
        size = self._lanes_area.timeline.size
        self.view_state.resize(size.width, size.height)
        if size.width > 1 and self.view_state.arrange_lanes():
            self._apply_layout()

    @property
    def is_asking(self) -> bool:
        """Whether the user types into the prompt."""
        return self.has_class("asking")

    def take_view(self, part: ExplorerScreen) -> None:
        """Show what an explorer of the beginning of this trace shows: times, selection, mark, search, lanes, panels.

        Nothing moves that did not change; a view of all that there was becomes one of the whole trace. Call it before
        mounting.
        """
        transfer_state(part.view_state, self.view_state)
        self.panel_size, self.details_open = part.panel_size, part.details_open
        if part._dock.active_name in self._dock.names:
            self._first_panel = part._dock.active_name
        self._panel_controller.scopes.mode = part._panel_controller.scopes.mode

    # -- showing the state ---------------------------------------------------------------------------------

    def _run_move(self, move: Callable[[], str | None], is_jump: bool = True) -> None:
        """Change the state, then refresh the widgets and show the message that the move returned.

        `is_jump`: `backspace` returns to the view before the move, if the move changed it.
        """
        message = self.view_state.jump(move) if is_jump else move() or ""
        self._refresh_widgets(message or ("" if self.trace.lanes else NO_LANES))

    def _refresh_widgets(self, message: str = "") -> None:
        """Pass the state to the widgets. Cheap: each compares it and repaints what differs in the next frame."""
        if self._laid_out_for != self._layout_key and self._laid_out_for[0]:
            self._apply_layout()
        self._lanes_area.update_widgets()
        self._panel_controller.update_panels()
        line = message or self._default_status()
        hint = "space opens a rank" if self.view_state.lane < 0 and self.view_state.lane_view.has_folded_rank else ""
        self._status.show_message(
            line or self._data_loss_line or hint, is_warning=not line and bool(self._data_loss_line)
        )

    def show_position(self, text: str) -> str:
        """Go to a time or a step, as `g` does. Returns why that failed, else ""."""
        problem = self.view_state.go_to(text)
        self._refresh_widgets()
        return problem

    def _default_status(self) -> str:
        state, matches = self.view_state, self.view_state.search.matches
        if matches is not None:
            number = state.search.match_number(state.selected)
            case = f" · {CASE_NOTE}" if is_case_sensitive(state.search.query) else ""
            return f"{state.search.query}: {number if number else '–'}/{len(matches):,}{case}"
        if state.mark is not None and not self.details_open:
            return f"range {format_duration(state.mark.end - state.mark.start)} · i shows its statistics"
        if state.selected >= 0 and not self.details_open:
            event = self.trace.event(state.selected)
            return f"{shorten(event.name)} · {format_duration(event.duration)}"
        return ""

    @on(WorkResult)
    def _pass_result(self, result: WorkResult) -> None:
        message = self._panel_controller.receive(result)
        self._lanes_area.title.show_verdict(self._panel_controller.scopes.verdict_line.verdict)
        if message:
            self._refresh_widgets(message)

    def on_trace_checked(self) -> None:
        if are_repetitions(self.view_state.current_steps()):  # found with the check: they have lines of their own
            self._lanes_area.update_widgets()
            self._apply_layout()

    def watch_details_open(self, is_open: bool) -> None:
        self._dock.styles.display = None if is_open else "none"  # a class would restyle all widgets
        if self.is_mounted:
            self._panel_controller.release_evidence()
            self._apply_layout()

    def watch_panel_size(self) -> None:
        if self.is_mounted:
            self._apply_layout()

    watch_reserved_lines = watch_panel_size

    watch_is_quiz = watch_reserved_lines

    def is_panel_open(self, name: str) -> bool:
        return self.details_open and self._dock.active_name == name

    def show_evidence(self, event: int, panel: str) -> None:
        """Select an event, show its step, and open a panel; -1 and "" for neither."""
        if panel == "path":
            if not self._path_panel.is_on:
                self.action_path()
        elif panel:
            self.details_open = True
            self._dock.show_panel(panel)
        if event >= 0:
            self._run_move(partial(self.view_state.show_in_step, event))

    @property
    def help_topic(self) -> str:
        """The panel that has the keys: the help begins with its guide. "" where it is hidden or only lists keys."""
        shows_keys = self._dock.active_name == "details" and self.view_state.selected < 0
        return self._dock.active_name if self.details_open and not shows_keys else ""

    @property
    def help_word(self) -> Word | None:
        """The word of the selected event, with which the help begins unless another panel is open; else None."""
        if self.view_state.selected < 0 or (self.details_open and self._dock.active_name not in EVENT_PANELS):
            return None
        event = self.trace.event(self.view_state.selected)
        return find_event_word(event.kind, event.name)

    # -- keys ----------------------------------------------------------------------------------------------

    def action_zoom(self, steps: int) -> None:
        self._run_move(partial(self.view_state.zoom, steps), is_jump=False)

    def action_pan(self, tenths: int) -> None:
        self._run_move(partial(self.view_state.pan, tenths), is_jump=False)

    def action_page(self, direction: int) -> None:
        """Scroll the part that has the keys by a page: the active panel, else the lanes."""
        if self.details_open and (self._panel_controller.active_panel.has_keys or self.panel_size is PanelSize.WHOLE):
            self.action_scroll_panel(direction)
            return
        page = max(1, self.view_state.lane_view.height - 2)
        self._run_move(partial(self.view_state.scroll_lanes, direction * page))

    def action_fit(self) -> None:
        self._run_move(self.view_state.fit_selection)

    def action_fit_all(self) -> None:
        self._run_move(self.view_state.fit_all)

    def action_edge(self, later: bool) -> None:
        low, high = self.view_state.viewport.limits
        self._run_move(partial(self.view_state.pan_to, high if later else low))

    def action_beside(self, distance: int) -> None:
        self._run_move(partial(self.moves.next_in_row, distance), is_jump=False)

    @property
    def _open_panel(self) -> Panel | None:
        """The panel that keys act on; None while the panels are hidden."""
        return self._panel_controller.active_panel if self.details_open else None

    def _ask_panel(self, ask: Callable[[Panel], str | None], move: Callable[[], str]) -> None:
        """Let the open panel handle a key; move on the lanes where there is none, or where it does not (None)."""
        panel = self._open_panel

        def run() -> str:
            message = None if panel is None else ask(panel)
            return move() if message is None else message

        self._run_move(run)

    def action_up(self) -> None:
        self._ask_panel(lambda panel: panel.move(-1) if panel.has_keys else None, self.moves.select_parent)

    def action_down(self) -> None:
        self._ask_panel(lambda panel: panel.move(1) if panel.has_keys else None, self.moves.select_child)

    def action_jump(self) -> None:
        """Open the source where the panel's cursor is on a line; else select what it points at, and fit that."""
        if self._open_panel is not None and self._open_panel.is_on_line:
            self.action_open_source()
        else:
            self.view_state.search.is_last_question = False
            self._ask_panel(lambda panel: panel.enter(), self.view_state.fit_selection)

    def action_open_source(self) -> None:
        panel = self._panel_controller.active_panel
        line, rank, problem = panel.find_source_line() if self.details_open else Panel.find_source_line(panel)
        if line is None:
            self._refresh_widgets(problem)
            return

        def count_lines_below() -> int:  # that the source leaves to the panels
            return 1 if self.panel_size is PanelSize.WHOLE else self._dock.size.height + 1

        trace_file = "" if rank.file.startswith(SAMPLE_PREFIX) else rank.file  # no host is called "sample"
        self.app.push_screen(SourceScreen(line, trace_file, count_lines_below))

    def action_scope(self, direction: int) -> None:
        self.details_open = True
        self._run_move(partial(self._panel_controller.cheatsheet_panel.cycle_scope, direction))

    def action_labels(self) -> None:
        self._run_move(self._panel_controller.toggle_labels)

    def action_follow(self, forward: bool) -> None:
        """Follow the selected event's link; forward, where it has none, that of the finding under the cursor."""
        panel = self._open_panel if forward and not self.moves.has_link else None
        self._run_move(lambda: (panel.follow() if panel is not None else None) or self.moves.follow_link(forward))

    def action_next_step(self, distance: int) -> None:
        self._run_move(partial(self.moves.select_adjacent_step, distance > 0))

    def action_fold_repeats(self) -> None:
        """Show one of the repeats; look for those within recorded steps meanwhile, for the next press."""
        self._run_move(self.view_state.toggle_repeats)
        rank = self.view_state.current_rank()
        if rank.trace.steps and find_kept_repetitions(rank.trace) is None:
            self.run_worker(partial(search_repetitions, rank), group="repeats", exclusive=True, thread=True)

    def action_slowest_repeat(self) -> None:
        self._run_move(self.moves.show_slowest_repeat)

    def on_seam_picked(self, message: SeamPicked) -> None:
        self._run_move(partial(self.view_state.show_hidden, message.at))

    def action_go_back(self) -> None:
        self._run_move(self.view_state.go_back, is_jump=False)

    def action_back(self) -> None:
        if self.panel_size is not PanelSize.NORMAL:
            self.panel_size = PanelSize.NORMAL
            self._refresh_widgets("the panels are back to their normal size")
            return
        self._run_move(self._clear_last)

    def _clear_last(self) -> str:
        """Clear what was marked, searched or selected last; then, when pressed again, stop loading the rest."""
        message = self.view_state.clear_last()
        if not self.trace.part or message != NOTHING_TO_CLEAR:
            return message
        if self._status.message == CANCEL_HINT:
            self.post_message(LoadingCancelled())
        return CANCEL_HINT

    def action_enlarge(self) -> None:
        self.panel_size = self.panel_size.next if self.details_open else PanelSize.ENLARGED
        self.details_open = True
        self._refresh_widgets(f"panels: {self.panel_size.value} · z: {self.panel_size.next.value} · esc: normal")

    def action_finding(self, number: int) -> None:
        self.details_open = True
        self._run_move(partial(self._panel_controller.cheatsheet_panel.go_to_finding, number))

    def action_rule(self) -> None:
        self.details_open = True
        self._run_move(self._panel_controller.cheatsheet_panel.toggle_rule)

    def action_fold(self) -> None:
        self._run_move(partial(self.view_state.toggle_fold, (self.view_state.current_lane(),)))

    def action_pin(self) -> None:
        self._run_move(partial(self.view_state.toggle_pin, self.view_state.current_lane()))

    def action_hide(self) -> None:
        self._run_move(partial(self.view_state.hide_lane, self.view_state.current_lane()))

    def action_show_hidden(self) -> None:
        self._run_move(self.view_state.unhide_lanes)

    def action_fold_all(self, fold: bool) -> None:
        self._run_move(partial(self.view_state.fold_all, fold))

    def action_mark(self) -> None:
        self._run_move(self.view_state.toggle_mark)

    def action_match(self, distance: int) -> None:
        self._ask_panel(lambda panel: panel.next_evidence(distance), partial(self.moves.select_match, distance > 0))

    def _lacks_lanes(self) -> bool:
        """Return whether the trace is without lanes, and so without panels; then show it in the status line."""
        if not self.trace.lanes:
            self._refresh_widgets(NO_LANES)
        return not self.trace.lanes

    def action_next_panel(self, direction: int) -> None:
        if self._lacks_lanes():
            return
        self.details_open = True
        self._dock.cycle_panel(direction)
        self._panel_controller.highlight()

    def action_panel(self, name: str) -> None:
        if self._lacks_lanes():
            return
        if self.details_open and self._dock.active_name == name:
            self.details_open = False
        else:
            cheatsheet = self._panel_controller.cheatsheet_panel
            if name in ("chain", "kernel") and self.view_state.selected < 0 and self._open_panel is cheatsheet:
                cheatsheet.select_first_evidence()
            is_range = name == "details" and not self.details_open and self.view_state.mark is not None
            self.details_open = True
            self._dock.show_panel("range" if is_range else name)
        self._refresh_widgets()

    def action_path(self) -> None:
        """Show the critical path and its panel, or hide both."""
        if self._lacks_lanes():
            return
        message = self._path_panel.toggle()
        if self._path_panel.is_on:
            self.details_open = True
            self._dock.show_panel("path")
        elif self._dock.active_name == "path":
            self._dock.show_previous()
        self._refresh_widgets(message)

    def action_what_if(self) -> None:
        """Ask for changes of the step, and show the step time that they lead to in the panel of the critical path."""
        if self._lacks_lanes():
            return
        if not self._path_panel.is_on:
            self.action_path()
        self.details_open = True
        self._dock.show_panel("path")
        self._open_prompt(WHAT_IF, self._clip_hint(WHAT_IF_FORMS), self._suggest_scenarios(), replace=False)

    def action_try_remedies(self) -> None:
        """Ask for trials of the finding under the cursor, where the cheatsheet is open; else of all findings."""
        cheatsheet = self._panel_controller.cheatsheet_panel
        finding = cheatsheet.finding if self._open_panel is cheatsheet else None
        self.post_message(TrialsAsked(finding.id if finding is not None and finding.id in cheatsheet.tryable else ""))

    def set_tryable(self, findings: frozenset[str]) -> None:
        """Set the findings whose remedies can be measured, because the run of this trace can be repeated."""
        self._panel_controller.cheatsheet_panel.set_tryable(findings)

    async def action_child(self, name: str) -> None:
        """Open another screen; the event that is chosen there is selected."""
        select = None if name == "learn" else self._select_returned_event
        self.app.push_screen(await self._child_screens.create(name), select)

    def _select_returned_event(self, event: int | None) -> None:
        self._run_move(lambda: None if event is None else self.view_state.fit_event(event))

    def action_scroll_panel(self, direction: int) -> None:
        if self._lacks_lanes():
            return
        if not self.details_open:
            self._refresh_widgets("no panel is open: i c l k open one")
            return
        if problem := self._dock.active_panel.scroll_page(direction):
            self._refresh_widgets(problem)

    def action_copy(self, everything: bool) -> None:
        if self.view_state.selected < 0 and self.view_state.mark is None:
            self._refresh_widgets("nothing to copy: nothing is selected or marked")
            return
        if everything or self.view_state.selected < 0:
            text, label = self._dock.active_panel.text(), f"all of the panel {self._dock.active_name!r}"
        else:
            text = label = self.trace.event(self.view_state.selected).name
        self.copy_text(text, label)

    # -- the mouse -----------------------------------------------------------------------------------------

    def on_event_picked(self, message: EventPicked) -> None:
        if message.fit:
            self._run_move(partial(self.view_state.fit_event, message.event))
            return
        if message.event >= 0:
            self.view_state.select(message.event)
        elif message.lane >= 0:
            self.view_state.lane, self.view_state.selected = message.lane, -1
        self._refresh_widgets()

    def on_zoom_asked(self, message: ZoomAsked) -> None:
        self._run_move(partial(self.view_state.zoom, message.steps, int(message.at)), is_jump=False)

    def on_pan_asked(self, message: PanAsked) -> None:
        self._run_move(partial(self.view_state.pan_cells, message.cells), is_jump=False)

    def on_scroll_asked(self, message: ScrollAsked) -> None:
        self._run_move(partial(self.view_state.scroll_lanes, message.lines, WHEEL_HINT), is_jump=False)

    def on_pointer_moved(self, message: PointerMoved) -> None:
        self.view_state.pointer_time = None if message.at is None else int(message.at)
        self._lanes_area.ruler.move_cursor(self.view_state.cursor_time())

    def on_range_dragged(self, message: RangeDragged) -> None:
        self._run_move(partial(self.view_state.mark_range, int(message.start), int(message.end)))

    def on_jump_asked(self, message: JumpAsked) -> None:
        self._run_move(partial(self.view_state.pan_to, int(message.at)), is_jump=not message.is_continued)

    def on_view_dragged(self, message: ViewDragged) -> None:
        move = partial(self.view_state.show_range, int(message.start), int(message.end))
        self._run_move(move, is_jump=not message.is_continued)

    def on_lanes_folded(self, message: LanesFolded) -> None:
        self._run_move(partial(self.view_state.toggle_fold, message.lanes))

    def on_panel_picked(self, message: PanelPicked) -> None:
        self._dock.show_panel(message.panel)
        self._panel_controller.highlight()
