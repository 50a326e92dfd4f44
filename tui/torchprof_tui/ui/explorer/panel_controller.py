"""What is said about where somebody is: the panels under the lanes, and what they light on them. The explorer tells it
where that is, and threads find out what is said: `inquiries.py`."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.ui.common.messages import (
    ChainRead,
    DiagnosisReady,
    EventContextRead,
    RangeRead,
    ScopeChecked,
    TraceChecked,
)
from torchprof_tui.ui.explorer.background_queries import BackgroundQueries
from torchprof_tui.ui.explorer.debounced_worker import DebouncedWorker
from torchprof_tui.ui.explorer.lanes.lane_gutter import Gutter
from torchprof_tui.ui.explorer.lanes.timeline import Timeline
from torchprof_tui.ui.explorer.panels.chain_panel import ChainPanel
from torchprof_tui.ui.explorer.panels.cheatsheet_panel import CheatsheetBrief, CheatsheetPanel
from torchprof_tui.ui.explorer.panels.details_panel import DetailsPanel
from torchprof_tui.ui.explorer.panels.doctor_panel import DoctorPanel
from torchprof_tui.ui.explorer.panels.kernel_panel import KernelPanel
from torchprof_tui.ui.explorer.panels.panel_dock import Dock
from torchprof_tui.ui.explorer.panels.range_panel import RangePanel
from torchprof_tui.ui.explorer.verdict_line import VerdictLine
from torchprof_tui.ui.explorer.view_state import ViewState

if TYPE_CHECKING:
    from textual.screen import Screen

    from torchprof_tui.analysis.dispatch.chain import Chain
    from torchprof_tui.analysis.patterns.engine.check_scope import Scope
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import CheckResult

MAX_LINKED_WORK = 8
"""From an event with more GPU work beneath it than this, no link is drawn: it would say little about the event."""

MAX_HIGHLIGHTED_EVIDENCE = 5_000
"""Of a pattern's evidence so many events are marked: beyond that every cell would be."""


class ScopeMode(Enum):
    """Which part of the trace the cheatsheet is about."""

    SCREEN = "on screen"
    SELECTION = "selection"
    TRACE = "whole trace"

    @property
    def next(self) -> ScopeMode:
        every = list(ScopeMode)
        return every[(every.index(self) + 1) % len(every)]


class PanelController:
    """Owns the panels; `show` after every move. Messages from its threads come back through the screen."""

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
        self.dock = Dock(
            [
                ("details", "details", self.details_panel),
                ("chain", "chain", self.chain_panel),
                ("kernel", "kernel", self.kernel_panel),
                ("cheatsheet", "cheatsheet", self.cheatsheet_panel),
                ("range", "range", self.range_panel),
                ("doctor", "doctor", self.doctor_panel),
            ],
            id="dock",
        )
        self.cheatsheet_brief = CheatsheetBrief(id="brief")
        self.verdict_line = VerdictLine(id="verdict")
        self.scope_mode = ScopeMode.SCREEN
        self.precomputed = False
        self._background_queries = BackgroundQueries(trace, gpu_busy)
        self._rank_index = 0  # the rank that is told of, among several
        self._debounced_worker = DebouncedWorker(screen)
        self._highlighted: Chain | Finding | None = None
        self._last_queried: tuple[int, tuple[int, int] | None] = (-1, None)
        self._requested_scope: Scope | None = None

    # -- where one is --------------------------------------------------------------------------------------

    def start_checks(self) -> None:
        """Look through the whole trace, once the first frame is out."""
        if len(self._trace):
            self._rank_index = self._current_rank_index()
            self._debounced_worker.submit("warm", partial(self._background_queries.precompute, self._rank_index))
        self._debounced_worker.submit("doctor", self._background_queries.diagnose_trace)

    def _current_rank_index(self) -> int:
        rank = self._view_state.current_rank()
        return 0 if rank is None or self._trace.ranks is None else self._trace.ranks.index_of_lane(rank.header_lane)

    @property
    def _rank_label(self) -> str:
        return "" if self._trace.ranks is None else self._trace.ranks.all[self._rank_index].label

    def update_panels(self) -> None:
        """Somebody moved. Cheap; what costs more than a frame is asked for and comes later."""
        walk = self._view_state
        marked = (walk.mark.start, walk.mark.end) if walk.mark is not None else None
        self.details_panel.show_event(walk.selected)
        self.chain_panel.show_event(walk.selected)
        self.kernel_panel.show_event(walk.selected)
        self.range_panel.show_range(marked, walk.mark is not None and walk.mark.live)
        before, self._last_queried = self._last_queried, (walk.selected, marked)
        if before[0] != walk.selected and walk.selected >= 0:
            self._debounced_worker.submit(
                "facts", partial(self._background_queries.compute_event_context, walk.selected)
            )
            self._debounced_worker.submit("chain", partial(self._background_queries.compute_chain, walk.selected))
        if before[1] != marked:
            if marked is not None:
                self._debounced_worker.submit(
                    "range", partial(self._background_queries.compute_range_statistics, *marked, walk.current_steps())
                )
                self.dock.show_panel("range")
            elif self.dock.active_name == "range":
                self.dock.show_panel("details")
        self._check_if_scope_changed()
        self.highlight()

    def highlight(self) -> None:
        """On every lane: what belongs to the selected event's chain and its link, or a pattern's evidence."""
        chain = self.chain_panel.chain
        finding = self.cheatsheet_panel.finding if self.dock.active_name == "cheatsheet" else None
        shown = finding if finding is not None else chain
        if shown is not self._highlighted:
            self._highlighted = shown
            if finding is not None:
                events = finding.answer.events[:MAX_HIGHLIGHTED_EVIDENCE].tolist()
                self._timeline.highlighted = events
                self._gutter.flag_lanes({int(self._trace.lane[event]) for event in events})
            else:
                self._timeline.highlighted = chain.events if chain is not None else ()
                self._gutter.flag_lanes(())
        if chain is None or finding is not None:
            self._timeline.show_link(-1, -1)
            return
        work = self._view_state.selected
        launch = int(self._trace.links.launch_of[work])
        if launch < 0 and 0 < len(chain.work) <= MAX_LINKED_WORK:
            work, launch = chain.work[0].event, chain.work[0].launch
        self._timeline.show_link(launch, work)

    # -- keys that depend on the panel ---------------------------------------------------------------------

    def move_in_panel(self, distance: int, is_open: bool) -> str | None:
        """↑ ↓ in a panel that one walks: a line to say, None where the keys are the lanes'."""
        if not is_open:
            return None
        if self.dock.active_name == "chain" and self.chain_panel.chain is not None:
            event = self.chain_panel.find_neighbour(distance)
            if event < 0:
                return f"the {'end' if distance > 0 else 'beginning'} of the chain; tab leaves it"
            self._view_state.select(event)
            return ""
        if self.dock.active_name == "cheatsheet" and self.cheatsheet_panel.finding is not None:
            return (
                ""
                if self.cheatsheet_panel.move_cursor(distance)
                else "no other pattern fires here; tab leaves the cheatsheet"
            )
        if self.dock.active_name == "doctor" and self.doctor_panel.remark is not None:
            return "" if self.doctor_panel.move_cursor(distance) else "the doctor says no more; tab leaves the panel"
        return None

    def select_evidence(self, distance: int, is_open: bool) -> str | None:
        """n N in the cheatsheet: to a pattern's next event; None where the keys are the search's."""
        if not is_open or self.dock.active_name != "cheatsheet" or self.cheatsheet_panel.finding is None:
            return None
        event, place, count = self.cheatsheet_panel.next_evidence(distance)
        if event < 0:
            return "this pattern has no single event to show"
        self._view_state.select(event)
        return f"{self.cheatsheet_panel.finding.id}: {place:,} of {count:,}"

    def fit_panel_target(self, is_open: bool) -> str:
        """enter: fit what the panel points at."""
        remark = self.doctor_panel.remark if is_open and self.dock.active_name == "doctor" else None
        if remark is not None and remark.event >= 0:
            self._view_state.select(remark.event)
        said = self.select_evidence(1, is_open)
        if said is not None and self._view_state.selected < 0:
            return said
        return self._view_state.fit_selection() or (said or "")

    def cycle_scope_mode(self) -> str:
        """v: the cheatsheet is about another part of the trace."""
        self.scope_mode = self.scope_mode.next
        self._requested_scope = None
        self.dock.show_panel("cheatsheet")
        return f"the cheatsheet is about: {self.scope_mode.value}"

    def toggle_labels(self) -> str:
        """x: what is written on the lanes beside names: reasons in the GPU's gaps, classes, notes."""
        shown = self._timeline.toggle_labels()
        return "gaps, kernels and the profiler's own events say what they are" if shown else "names only"

    # -- what threads find out -----------------------------------------------------------------------------

    def update_doctor(self, message: DiagnosisReady) -> None:
        self.doctor_panel.set_diagnosis(message.diagnosis)

    def update_details(self, message: EventContextRead) -> None:
        self.details_panel.set_event_context(message.event, message.context)

    def update_chain(self, message: ChainRead) -> None:
        if message.chain.event != self._view_state.selected:
            return
        if self.chain_panel.needs_chain(message.chain.event):
            self.chain_panel.set_chain(message.chain, message.kernel)
        else:
            self.chain_panel.set_end(message.chain, message.kernel)
        self.kernel_panel.set_chain(message.chain, message.kernel)
        if self.scope_mode is ScopeMode.SELECTION:
            self._check_if_scope_changed()
        self.highlight()

    def update_range(self, message: RangeRead) -> None:
        self.range_panel.set_statistics(message.range)

    def update_trace_findings(self, message: TraceChecked) -> None:
        """The whole trace has been looked through: the verdict, the gaps' reasons, and from now on any scope."""
        self.precomputed = True
        if self._background_queries.annotations is not None:
            self._timeline.set_annotations(*self._background_queries.annotations)
        if message.rank_index != self._rank_index:
            return
        self.verdict_line.set_verdict(message.checked.verdict, self._rank_label)
        self._update_cheatsheet(message.checked)
        self._check_if_scope_changed()

    def update_scope_findings(self, message: ScopeChecked) -> None:
        if message.rank_index != self._rank_index:
            return
        if self._requested_scope is not None and (message.checked.scope.t0, message.checked.scope.t1) == (
            self._requested_scope.t0,
            self._requested_scope.t1,
        ):
            self._update_cheatsheet(message.checked)

    def _update_cheatsheet(self, checked: CheckResult) -> None:
        words = checked.scope.label if checked.scope.is_whole_trace else self.scope_mode.value
        words = f"{self._rank_label} {words}".lstrip()
        self.cheatsheet_panel.set_checked(checked, words)
        self.cheatsheet_brief.set_checked(checked, words)
        self.highlight()

    def _check_if_scope_changed(self) -> None:
        """Ask again where the scope is another one."""
        if not self.precomputed:
            return
        place = self._current_rank_index()
        if place != self._rank_index:  # another rank: its verdict and its gaps as well
            self._rank_index, self._requested_scope = place, None
            self._debounced_worker.submit("warm", partial(self._background_queries.precompute, place))
        scope = self._current_scope()
        if self._requested_scope is None or (scope.t0, scope.t1) != (
            self._requested_scope.t0,
            self._requested_scope.t1,
        ):
            self._requested_scope = scope
            self._background_queries.cancel(place)
            self._debounced_worker.submit("check", partial(self._background_queries.check_scope, place, scope))

    def _current_scope(self) -> Scope:
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
