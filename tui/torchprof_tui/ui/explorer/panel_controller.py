"""Controller of the panels below the lanes: passes them the state, results and keys, and highlights their events.

What a panel does with them is in its own file: `panels/panel.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.query.navigation import find_graph_neighbours
from torchprof_tui.ui.common.debounced_worker import DebouncedWorker, WorkResult
from torchprof_tui.ui.common.guarded_screen import GuardedScreen
from torchprof_tui.ui.common.panel_dock import Dock
from torchprof_tui.ui.explorer.background_queries import BackgroundQueries
from torchprof_tui.ui.explorer.panels.chain_panel import ChainPanel
from torchprof_tui.ui.explorer.panels.cheatsheet_panel import WHY_MIN_HEIGHT, CheatsheetPanel
from torchprof_tui.ui.explorer.panels.details_panel import DetailsPanel
from torchprof_tui.ui.explorer.panels.doctor_panel import DoctorPanel
from torchprof_tui.ui.explorer.panels.kernel_panel import KernelPanel
from torchprof_tui.ui.explorer.panels.panel import Panel, PanelContext
from torchprof_tui.ui.explorer.panels.range_panel import RangePanel
from torchprof_tui.ui.explorer.path.path_panel import PathPanel
from torchprof_tui.ui.explorer.scope_checks import ScopeChecks
from torchprof_tui.ui.lanes.lane_gutter import Gutter
from torchprof_tui.ui.lanes.timeline import Timeline
from torchprof_tui.ui.lanes.view_state import ViewState

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.chain import Chain

MAX_LINKED_WORK = 8
"""An event with more GPU work beneath it than this gets no link line: one line would say little about it."""

MAX_HIGHLIGHTED_EVIDENCE = 5_000
"""Maximum number of a pattern's evidence events that are highlighted: beyond it every cell would be."""


class PanelController:
    """Own the panels; call `update_panels` after every move, and `receive` with results of worker threads."""

    def __init__(
        self,
        screen: GuardedScreen[None],
        view_state: ViewState,
        gpu_busy: dict[int, Intervals],
        timeline: Timeline,
        gutter: Gutter,
    ) -> None:
        trace = view_state.trace
        self._view_state, self._trace = view_state, trace
        self._timeline, self._gutter = timeline, gutter
        queries = self.queries = BackgroundQueries(trace, gpu_busy, screen.post_message)
        worker = DebouncedWorker(screen)
        context = PanelContext(
            view_state,
            timeline,
            queries,
            worker,
            show_panel=lambda name: self.dock.show_panel(name),
            leave_panel=self._leave_panel,
            is_shown=lambda name: self.dock.is_shown(name),
        )
        self.chain_panel = ChainPanel(trace)
        self.scopes = ScopeChecks(context, self.chain_panel)
        self.details_panel = DetailsPanel(trace)
        self.cheatsheet_panel = CheatsheetPanel(self.scopes)
        self.path_panel = PathPanel(trace, self.chain_panel)
        self.doctor_panel = DoctorPanel()
        self._panels: dict[str, Panel] = {
            panel.NAME: panel
            for panel in (
                self.details_panel,
                self.chain_panel,
                KernelPanel(trace),
                self.cheatsheet_panel,
                RangePanel(trace),
                self.path_panel,
                self.doctor_panel,
            )
        }
        for panel in self._panels.values():
            panel.context = context
        self.dock = Dock(
            [(name, name, panel) for name, panel in self._panels.items()],
            shown_beside=(CheatsheetPanel.NAME, ChainPanel.NAME),
            id="dock",
        )
        # Of several ranks without GPU times: each has steps of its own.
        busy = list(gpu_busy.values()) if trace.merged_ranks is None else []
        self.details_panel.set_steps(view_state.current_steps(), busy)
        self._highlighted: Chain | Finding | None = None

    def start_checks(self) -> None:
        """Start the checks of the whole trace, once the first frame is painted."""
        if len(self._trace):
            self.scopes.start()
        else:
            self.doctor_panel.request()

    @property
    def active_panel(self) -> Panel:
        return self._panels[self.dock.active_name]

    def _leave_panel(self, name: str) -> None:
        if self.dock.active_name == name:
            self.dock.show_panel(DetailsPanel.NAME)

    def update_panels(self) -> None:
        """Pass the state to the panels. Cheap: data that takes longer than a frame is requested and arrives later."""
        for panel in self._panels.values():
            panel.update()
        self._update_scope()
        self.highlight()

    def _update_scope(self) -> None:
        """Request the check of another scope; of another rank also show the steps."""
        if self.scopes.update():
            self.details_panel.set_steps(self._view_state.current_steps(), ())

    def receive(self, result: WorkResult) -> str:
        """Pass a result to the panels that have a handler for it. Returns a message."""
        messages = []
        for panel in self._panels.values():
            handle = getattr(panel, result.handler_name, None)
            if handle is not None:
                messages.append(handle(result))
        self._update_scope()
        self.highlight()
        return next(filter(None, messages), "")

    def highlight(self) -> None:
        """Highlight the selection's chain and link line, or the evidence of the active panel's finding."""
        active = self.active_panel
        self.dock.mark_keys(active.has_keys, active.list_next_keys())
        verdict_line = self.scopes.verdict_line
        is_low = self.cheatsheet_panel.size.height < WHY_MIN_HEIGHT  # then a few words that are cut cost too many lines
        self.cheatsheet_panel.set_verdict_above(verdict_line.display and (verdict_line.shows_all or is_low))
        checked = self.scopes.checked if verdict_line.visible else None  # else a case asks what they would answer
        is_shown = verdict_line.visible and not self.dock.is_shown(CheatsheetPanel.NAME)
        self.details_panel.show_findings(checked, is_shown)
        if active is not self.cheatsheet_panel:
            self.release_evidence()
        chain = self.chain_panel.chain if active.shows_chain else None
        finding = active.finding
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

    def release_evidence(self) -> None:
        """Let the scope follow the view again, and n N the cheatsheet when it is next shown: the user has left it."""
        self._view_state.search.is_last_question = False
        self.scopes.release()

    def toggle_labels(self) -> str:
        """Handle x: hide or show the labels on the lanes: reasons of GPU gaps, kernel classes, notes."""
        done = "labels shown" if self._timeline.toggle_labels() else "labels hidden (x shows them)"
        return f"{done}: why the GPU was idle, kernel classes, the profiler's own events"
