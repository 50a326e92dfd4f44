"""Controller of the panels below the lanes: requests their data when the state changes, and highlights their events.

Data that takes longer than a frame comes from worker threads: `background_queries.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.query.graph_neighbours import find_graph_neighbours
from torchprof_tui.ui.common.debounced_worker import DebouncedWorker
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.panel_dock import Dock
from torchprof_tui.ui.explorer.background_queries import (
    BackgroundQueries,
    DiagnosisReady,
    RangeRead,
    ScopeChecked,
    TraceChecked,
    VerdictDecided,
)
from torchprof_tui.ui.explorer.panels.chain_panel import LINE_ENTRY, ChainPanel
from torchprof_tui.ui.explorer.panels.cheatsheet_panel import CheatsheetPanel
from torchprof_tui.ui.explorer.panels.details_panel import DetailsPanel
from torchprof_tui.ui.explorer.panels.doctor_panel import DoctorPanel
from torchprof_tui.ui.explorer.panels.evidence_cursor import GAP_MARGIN
from torchprof_tui.ui.explorer.panels.kernel_panel import KernelPanel
from torchprof_tui.ui.explorer.panels.range_panel import RangePanel
from torchprof_tui.ui.explorer.panels.source_target import NO_SOURCE_PANEL, check_line, find_line_of_finding
from torchprof_tui.ui.explorer.path.path_controller import PathController
from torchprof_tui.ui.explorer.scope_mode import ScopeMode
from torchprof_tui.ui.explorer.verdict_line import VerdictLine
from torchprof_tui.ui.lanes.lane_gutter import Gutter
from torchprof_tui.ui.lanes.timeline import Timeline
from torchprof_tui.ui.lanes.view_state import ViewState

if TYPE_CHECKING:
    from textual.screen import Screen

    from torchprof_tui.analysis.dispatch.chain import Chain
    from torchprof_tui.analysis.dispatch.source_line import SourceLine
    from torchprof_tui.analysis.patterns.engine.check_scope import Scope
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import CheckResult
    from torchprof_tui.trace.model.ranks import Rank
    from torchprof_tui.ui.explorer.event_reading import ChainRead, EventContextRead

MAX_LINKED_WORK = 8
"""An event with more GPU work beneath it than this gets no link line: one line would say little about it."""

MAX_HIGHLIGHTED_EVIDENCE = 5_000
"""Maximum number of a pattern's evidence events that are highlighted: beyond it every cell would be."""


class PanelController:
    """Own the panels; call `update_panels` after every move. Results of worker threads arrive through the screen."""

    def __init__(
        self,
        screen: Screen[None],
        view_state: ViewState,
        gpu_busy: dict[int, Intervals],
        timeline: Timeline,
        gutter: Gutter,
    ) -> None:
        trace = view_state.trace
        self._view_state, self._trace = view_state, trace
        self._timeline, self._gutter = timeline, gutter
        self.details_panel = DetailsPanel(trace, id="details")
        self.chain_panel = ChainPanel(trace, id="chain")
        self.kernel_panel = KernelPanel(trace, id="kernel")
        self.cheatsheet_panel = CheatsheetPanel(id="cheatsheet")
        self.range_panel = RangePanel(trace, id="range")
        self.doctor_panel = DoctorPanel(id="doctor")
        self.path = PathController(screen, view_state, timeline, self.chain_panel)
        self.dock = Dock(
            [
                ("details", "details", self.details_panel),
                ("chain", "chain", self.chain_panel),
                ("kernel", "kernel", self.kernel_panel),
                ("cheatsheet", "cheatsheet", self.cheatsheet_panel),
                ("range", "range", self.range_panel),
                ("path", "path", self.path.panel),
                ("doctor", "doctor", self.doctor_panel),
            ],
            shown_beside=("cheatsheet", "chain"),
            id="dock",
        )
        self.verdict_line = VerdictLine(id="verdict")
        self.scope_mode = ScopeMode.SCREEN
        self.precomputed = False
        self._background_queries = BackgroundQueries(trace, gpu_busy, screen.post_message)
        self._rank_index = 0  # the rank that verdict and cheatsheet are about
        # Of several ranks without GPU times: each has steps of its own.
        busy = list(gpu_busy.values()) if trace.merged_ranks is None else []
        self.details_panel.set_steps(view_state.current_steps(), busy)
        self._debounced_worker = DebouncedWorker(screen)
        self._highlighted: Chain | Finding | None = None
        self._last_queried: tuple[int, tuple[int, int] | None] = (-1, None)
        self._requested_scope: Scope | None = None
        self._is_on_gap = False  # whether the last place of the evidence was a gap, which the view shows
        self._evidence_scope: Scope | None = None  # that of the findings while the user walks through their evidence

    # -- after a move --------------------------------------------------------------------------------------

    def start_checks(self) -> None:
        """Start the checks of the whole trace, once the first frame is painted."""
        if len(self._trace):
            self._rank_index = self._current_rank_index()
            self._debounced_worker.submit("precompute", partial(self._background_queries.precompute, self._rank_index))
        else:
            self._debounced_worker.submit("doctor", self._background_queries.diagnose_trace)

    def _current_rank_index(self) -> int:
        ranks = self._trace.merged_ranks
        return 0 if ranks is None else ranks.index_of_lane(self._view_state.current_rank().header_lane)

    @property
    def _rank_label(self) -> str:
        return self._trace.all_ranks[self._rank_index].label

    def update_panels(self) -> None:
        """Pass the state to the panels. Cheap: data that takes longer than a frame is requested and arrives later."""
        state = self._view_state
        marked = (state.mark.start, state.mark.end) if state.mark is not None else None
        self.details_panel.show_event(state.selected)
        self.chain_panel.show_event(state.selected)
        self.kernel_panel.show_event(state.selected)
        self.range_panel.show_range(marked, state.mark is not None and state.mark.live)
        before, self._last_queried = self._last_queried, (state.selected, marked)
        if before[0] != state.selected and state.selected >= 0:
            self._debounced_worker.submit(
                "context", partial(self._background_queries.compute_event_context, state.selected)
            )
            self._debounced_worker.submit("chain", partial(self._background_queries.compute_chain, state.selected))
        if before[1] != marked:
            if marked is not None:
                self._debounced_worker.submit(
                    "range", partial(self._background_queries.compute_range_statistics, *marked, state.current_steps())
                )
                self.dock.show_panel("range")
            elif self.dock.active_name == "range":
                self.dock.show_panel("details")
        self._check_if_scope_changed()
        self.path.update()
        self.highlight()

    def highlight(self) -> None:
        """Highlight the selection's chain and link line, or the cheatsheet's evidence; the path panel has its own."""
        self.dock.mark_keys(self.has_keys)
        self.cheatsheet_panel.set_verdict_above(self.verdict_line.display and self.verdict_line.shows_all)
        self.details_panel.show_findings(not self.dock.is_shown("cheatsheet"))
        if self.dock.active_name != "cheatsheet":
            self.release_evidence()
        chain = None if self.dock.active_name == "path" and self.path.has_keys else self.chain_panel.chain
        finding = self.cheatsheet_panel.finding if self.dock.active_name == "cheatsheet" else None
        shown = finding if finding is not None else chain
        if shown is not self._highlighted:
            self._highlighted = shown
            if finding is not None:
                events = finding.answer.events[:MAX_HIGHLIGHTED_EVIDENCE].tolist()
                self._timeline.highlighted = events
                self._gutter.flag_lanes({int(self._trace.lane[event]) for event in events}, finding.is_significant)
            else:
                edges = find_graph_neighbours(self._trace, self._view_state.selected)
                self._timeline.highlighted = [*chain.events.tolist(), *edges.events] if chain is not None else ()
                self._gutter.flag_lanes(())
        if chain is None or finding is not None:
            self._timeline.show_link(-1, -1)
            return
        work = self._view_state.selected
        launch = int(self._trace.links.launch_of[work])
        if launch < 0 and 0 < len(chain.work) <= MAX_LINKED_WORK:
            work, launch = chain.work[0].event, chain.work[0].launch
        self._timeline.show_link(launch, work)

    # -- keys that depend on the active panel --------------------------------------------------------------

    @property
    def has_keys(self) -> bool:
        """Whether the arrow and page keys act on the active panel, while the panels are shown; else on the lanes."""
        return {
            "chain": self.chain_panel.chain is not None,
            "cheatsheet": self.cheatsheet_panel.finding is not None,
            "path": self.path.has_keys,
            "doctor": self.doctor_panel.remark is not None,
        }.get(self.dock.active_name, False)

    def move_in_panel(self, distance: int, is_open: bool) -> str | None:
        """Handle ↑ ↓ in the active panel. Returns a message, or None where the lanes should handle the key."""
        if not is_open or not self.has_keys:
            return None
        if self.dock.active_name == "chain":
            event = self.chain_panel.move_cursor(distance)
            if event == LINE_ENTRY:
                line = self.chain_panel.line_under_cursor
                location = None if line is None else line.location
                return "its file is unknown" if location is None else f"enter opens {clean(location)}"
            if event < 0:
                return f"the {'end' if distance > 0 else 'beginning'} of the chain; tab leaves it"
            self._view_state.select(event)
            return ""
        if self.dock.active_name == "cheatsheet":
            self._view_state.search.is_last_question = False
            if self.cheatsheet_panel.move_cursor(distance) or (distance < 0 and self.cheatsheet_panel.show_top()):
                return ""
            return f"the {'last' if distance > 0 else 'first'} finding; tab leaves the cheatsheet"
        if self.dock.active_name == "path":
            return self.path.move_cursor(distance)
        at_end = f"the {'last' if distance > 0 else 'first'} row of the trace doctor; tab leaves the panel"
        return "" if self.doctor_panel.move_cursor(distance) else at_end

    def go_to_finding(self, number: int) -> str:
        """Handle 1 to 9: open the cheatsheet at this finding, counted from 1, and fit its first evidence."""
        finding_id = self.cheatsheet_panel.find_id(number)
        if finding_id is None:
            found = self.cheatsheet_panel.finding is not None
            return f"there is no finding {number}" if found else "no pattern was found here"
        self.cheatsheet_panel.move_to(finding_id)
        self.dock.show_panel("cheatsheet")
        self._view_state.selected = -1
        return self.fit_panel_target(True)

    def select_evidence(self, distance: int, is_open: bool) -> str | None:
        """Handle n N: select the next event of a pattern's evidence, or the next piece of the critical path.

        None where the search should handle the key.
        """
        if is_open and self.dock.active_name == "path" and self.path.has_keys:
            return None if self._view_state.search.is_last_question else self.path.step(distance)
        if not is_open or self.dock.active_name != "cheatsheet" or self.cheatsheet_panel.finding is None:
            return None
        if self._view_state.search.is_last_question:
            return None
        place = self.cheatsheet_panel.next_evidence(distance, self._trace)
        if place is None:
            return "this finding has no single event to show"
        # Else the scope would follow the view to this event, and the evidence elsewhere would be lost.
        checked = self.cheatsheet_panel.checked
        if checked is not None and checked.scope != self._evidence_scope:
            self._evidence_scope = checked.scope
            self._update_cheatsheet(checked)
        self._view_state.select(place.event)
        if place.is_gap:  # select() may have panned to the event beside it
            margin = round((place.end - place.start) * GAP_MARGIN)
            self._view_state.show_range(place.start - margin, place.end + margin)
        self._is_on_gap = place.is_gap
        return clean(place.describe(self._trace))

    def select_first_evidence(self, is_open: bool) -> None:
        """Select the first event of the finding under the cursor, so that its chain or kernel can be shown."""
        if is_open and self.dock.active_name == "cheatsheet" and self.cheatsheet_panel.finding is not None:
            place = self.cheatsheet_panel.next_evidence(1, self._trace)
            if place is not None and place.event >= 0:
                self._view_state.select(place.event)

    def fit_panel_target(self, is_open: bool) -> str:
        """Handle enter: select what the active panel points at, and fit the selection."""
        remark = self.doctor_panel.remark if is_open and self.dock.active_name == "doctor" else None
        if remark is not None and remark.event >= 0:
            self._view_state.select(remark.event)
        if is_open and self.dock.active_name == "kernel" and (reason := self.kernel_panel.missing_reason):
            return f"no kernel to go to: {reason}"
        self._view_state.search.is_last_question = self._is_on_gap = False
        if is_open and self.dock.active_name == "path" and self.path.has_keys:
            return self.path.show_segment()
        message = self.select_evidence(1, is_open)
        if message is not None and (self._is_on_gap or self._view_state.selected < 0):
            return message
        return self._view_state.fit_selection() or (message or "")

    def is_on_line(self, is_open: bool) -> bool:
        """Return whether the cursor of the active panel is on the line of the program: enter opens it."""
        return is_open and self.dock.active_name == "chain" and self.chain_panel.line_under_cursor is not None

    def find_source_line(self, is_open: bool) -> tuple[SourceLine | None, Rank, str]:
        """Handle L: find the line of the program that the active panel names: see `source_target`."""
        panel = self.dock.active_name if is_open else ""
        if panel == "cheatsheet":
            return find_line_of_finding(self._trace.all_ranks[self._rank_index], self.cheatsheet_panel.finding)
        rank = self._trace.rank_of_event(max(self._view_state.selected, 0))
        if panel == "chain" and self.chain_panel.chain is not None:
            return check_line(self.chain_panel.line, rank, "this event")
        return None, rank, NO_SOURCE_PANEL

    def cycle_scope_mode(self, direction: int) -> str:
        """Handle v and V: show the cheatsheet of the next part of the trace (1), or of the previous one (-1)."""
        self.scope_mode = self.scope_mode.neighbour(direction)
        self._view_state.search.is_last_question = False
        self._requested_scope = self._evidence_scope = None
        self.dock.show_panel("cheatsheet")
        if self.scope_mode is ScopeMode.SELECTION and self._view_state.selected < 0:
            return "scope of the cheatsheet: selection; nothing is selected, so it shows the screen"
        return f"scope of the cheatsheet: {self.scope_mode.value}"

    def release_evidence(self) -> None:
        """Let the scope follow the view again, and n N the cheatsheet when it is next shown: the user has left it."""
        self._view_state.search.is_last_question = False
        if self._evidence_scope is not None:
            self._evidence_scope = None
            self._check_if_scope_changed()

    def toggle_labels(self) -> str:
        """Handle x: show or hide the labels on the lanes: reasons of GPU gaps, kernel classes, notes."""
        shown = self._timeline.toggle_labels()
        return "labels shown on gaps, kernels and the profiler's own events" if shown else "labels hidden"

    # -- results of worker threads -------------------------------------------------------------------------

    def update_doctor(self, message: DiagnosisReady) -> None:
        self.doctor_panel.set_diagnosis(message.diagnosis)

    def update_details(self, message: EventContextRead) -> None:
        self.details_panel.set_event_context(message.event, message.context, message.captured)

    def update_chain(self, message: ChainRead) -> None:
        if message.chain.event != self._view_state.selected:
            return
        if self.chain_panel.needs_chain(message.chain.event):
            self.chain_panel.set_chain(message)
        else:
            self.chain_panel.set_end(message)
        self.kernel_panel.set_chain(message.chain, message.kernel)
        if self.scope_mode is ScopeMode.SELECTION:
            self._check_if_scope_changed()
        self.highlight()

    def update_range(self, message: RangeRead) -> None:
        self.range_panel.set_statistics(message.range)

    def update_verdict(self, message: VerdictDecided) -> None:
        """Show a verdict before its findings are there."""
        if message.rank_index == self._rank_index:
            self.verdict_line.set_verdict(message.verdict, self._rank_label or self._trace.part)

    def update_trace_findings(self, message: TraceChecked) -> None:
        """Show the verdict, cheatsheet and lane labels of a checked trace; from now on scopes can be checked."""
        if not self.precomputed:  # after the verdict, which it would delay
            self._debounced_worker.submit("doctor", self._background_queries.diagnose_trace)
        self.precomputed = True
        self.details_panel.set_steps(self._view_state.current_steps())
        if self._background_queries.annotations is not None:
            self._timeline.set_annotations(*self._background_queries.annotations)
        if message.rank_index != self._rank_index:
            return
        self.verdict_line.set_verdict(message.checked.verdict, self._rank_label or self._trace.part)
        self._update_cheatsheet(message.checked)
        self._check_if_scope_changed()

    def update_scope_findings(self, message: ScopeChecked) -> None:
        if message.rank_index != self._rank_index:
            return
        requested, scope = self._requested_scope, message.checked.scope
        if requested is not None and (scope.t0, scope.t1) == (requested.t0, requested.t1):
            self._update_cheatsheet(message.checked)

    def _update_cheatsheet(self, checked: CheckResult) -> None:
        scope = checked.scope
        label = scope.label if scope.is_whole_trace else self._mode_label
        if scope == self._evidence_scope and not scope.is_whole_trace:
            step = 10 ** max(len(str(scope.length)) - 3, 0)  # three digits of the length tell both ends apart
            label = f"{format_time(scope.t0, step)} to {format_time(scope.t1, step)}"
        label = f"{self._rank_label} {label}".lstrip()
        self.cheatsheet_panel.set_checked(checked, label)
        self.details_panel.set_checked(checked)
        self.highlight()

    @property
    def _mode_label(self) -> str:
        is_empty = self.scope_mode is ScopeMode.SELECTION and self._view_state.selected < 0
        return ScopeMode.SCREEN.value if is_empty else self.scope_mode.value

    def _check_if_scope_changed(self) -> None:
        """Request a check where the scope has changed; of another rank its verdict and lane labels as well."""
        if not self.precomputed:
            return
        rank_index = self._current_rank_index()
        if rank_index != self._rank_index:
            self._rank_index, self._requested_scope, self._evidence_scope = rank_index, None, None
            self.details_panel.set_steps(self._view_state.current_steps(), ())
            self._debounced_worker.submit("precompute", partial(self._background_queries.precompute, rank_index))
        scope = self._current_scope()
        requested = self._requested_scope
        if requested is None or (scope.t0, scope.t1) != (requested.t0, requested.t1):
            self._requested_scope = scope
            self._background_queries.cancel(rank_index)
            self._debounced_worker.submit("check", partial(self._background_queries.check_scope, rank_index, scope))

    def _current_scope(self) -> Scope:
        if self._evidence_scope is not None:
            return self._evidence_scope
        whole = self._background_queries.whole_trace_scope(self._rank_index)
        if self.scope_mode is ScopeMode.TRACE:
            return whole
        chain = self.chain_panel.chain
        if self.scope_mode is ScopeMode.SELECTION and self._view_state.selected >= 0:
            events = chain.events.tolist() if chain is not None else [self._view_state.selected]
            return scopes.selection_scope(self._trace, events)
        view = self._view_state.viewport
        if view.t0 <= whole.t0 and view.t1 >= whole.t1:
            return whole
        t0, t1 = max(view.t0, whole.t0), min(view.t1, whole.t1)
        return scopes.range_scope(t0, t1) if t1 > t0 else whole
