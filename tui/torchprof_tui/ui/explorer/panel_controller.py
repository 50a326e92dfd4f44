"""What is said about where somebody is: the panels under the lanes, and what they light on them. The explorer tells it
where that is, and threads find out what is said: `inquiries.py`."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from torchprof_tui.analysis.patterns import Finding
from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.ui.common.messages import (
    ChainRead,
    Diagnosed,
    FactsRead,
    RangeRead,
    ScopeChecked,
    TraceChecked,
)
from torchprof_tui.ui.explorer.background_queries import Inquiries
from torchprof_tui.ui.explorer.debounced_worker import Reading
from torchprof_tui.ui.explorer.lanes.lane_gutter import Gutter
from torchprof_tui.ui.explorer.lanes.timeline import Timeline
from torchprof_tui.ui.explorer.panels.chain_panel import ChainPanel
from torchprof_tui.ui.explorer.panels.cheatsheet_panel import Cheatsheet, CheatsheetBrief
from torchprof_tui.ui.explorer.panels.details_panel import Details
from torchprof_tui.ui.explorer.panels.doctor_panel import DoctorPanel
from torchprof_tui.ui.explorer.panels.kernel_panel import KernelPanel
from torchprof_tui.ui.explorer.panels.panel_dock import Dock
from torchprof_tui.ui.explorer.panels.range_panel import RangeStats
from torchprof_tui.ui.explorer.verdict_line import VerdictLine
from torchprof_tui.ui.explorer.view_state import Walk

if TYPE_CHECKING:
    from textual.screen import Screen

    from torchprof_tui.analysis.dispatch.chain import Chain
    from torchprof_tui.analysis.patterns.engine.check_scope import Scope
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import Checked

LINKED_AT_MOST = 8
"""From an event with more GPU work beneath it than this, no link is drawn: it would say little about the event."""

EVIDENCE_LIT = 5_000
"""Of a pattern's evidence so many events are marked: beyond that every cell would be."""


class Follows(Enum):
    """Which part of the trace the cheatsheet is about."""

    SCREEN = "on screen"
    SELECTION = "selection"
    TRACE = "whole trace"

    @property
    def next(self) -> Follows:
        every = list(Follows)
        return every[(every.index(self) + 1) % len(every)]


class Inspection:
    """Owns the panels; `show` after every move. Messages from its threads come back through the screen."""

    def __init__(
        self, screen: Screen[None], walk: Walk, busy: dict[int, Intervals], timeline: Timeline, gutter: Gutter
    ) -> None:
        trace = walk.trace
        self._walk, self._trace = walk, trace
        self._timeline, self._gutter = timeline, gutter
        self.details = Details(trace, id="details")
        self.chain = ChainPanel(trace, id="chain")
        self.kernel = KernelPanel(trace, id="kernel")
        self.cheatsheet = Cheatsheet(id="cheatsheet")
        self.range_stats = RangeStats(trace, id="range")
        self.doctor = DoctorPanel(id="doctor")
        self.dock = Dock(
            [
                ("details", "details", self.details),
                ("chain", "chain", self.chain),
                ("kernel", "kernel", self.kernel),
                ("cheatsheet", "cheatsheet", self.cheatsheet),
                ("range", "range", self.range_stats),
                ("doctor", "doctor", self.doctor),
            ],
            id="dock",
        )
        self.brief = CheatsheetBrief(id="brief")
        self.verdict = VerdictLine(id="verdict")
        self.follows = Follows.SCREEN
        self.warmed = False
        self._inquiries = Inquiries(trace, busy)
        self._place = 0  # the rank that is told of, among several
        self._reading = Reading(screen)
        self._lit: Chain | Finding | None = None
        self._asked: tuple[int, tuple[int, int] | None] = (-1, None)
        self._scope: Scope | None = None

    # -- where one is --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Look through the whole trace, once the first frame is out."""
        if len(self._trace):
            self._place = self._place_now()
            self._reading.ask("warm", partial(self._inquiries.warm, self._place))
        self._reading.ask("doctor", self._inquiries.diagnose)

    def _place_now(self) -> int:
        rank = self._walk.rank()
        return 0 if rank is None or self._trace.ranks is None else self._trace.ranks.place_of_lane(rank.own_lane)

    @property
    def _whose(self) -> str:
        return "" if self._trace.ranks is None else self._trace.ranks.all[self._place].label

    def show(self) -> None:
        """Somebody moved. Cheap; what costs more than a frame is asked for and comes later."""
        walk = self._walk
        marked = (walk.mark.start, walk.mark.end) if walk.mark is not None else None
        self.details.show(walk.selected)
        self.chain.show(walk.selected)
        self.kernel.show(walk.selected)
        self.range_stats.show(marked, walk.mark is not None and walk.mark.live)
        before, self._asked = self._asked, (walk.selected, marked)
        if before[0] != walk.selected and walk.selected >= 0:
            self._reading.ask("facts", partial(self._inquiries.facts, walk.selected))
            self._reading.ask("chain", partial(self._inquiries.chain, walk.selected))
        if before[1] != marked:
            if marked is not None:
                self._reading.ask("range", partial(self._inquiries.statistics, *marked, walk.steps()))
                self.dock.show("range")
            elif self.dock.active == "range":
                self.dock.show("details")
        self._recheck()
        self.light()

    def light(self) -> None:
        """On every lane: what belongs to the selected event's chain and its link, or a pattern's evidence."""
        chain = self.chain.chain
        finding = self.cheatsheet.finding if self.dock.active == "cheatsheet" else None
        shown = finding if finding is not None else chain
        if shown is not self._lit:
            self._lit = shown
            if finding is not None:
                events = finding.answer.events[:EVIDENCE_LIT].tolist()
                self._timeline.lit = events
                self._gutter.flag({int(self._trace.lane[event]) for event in events})
            else:
                self._timeline.lit = chain.events if chain is not None else ()
                self._gutter.flag(())
        if chain is None or finding is not None:
            self._timeline.link(-1, -1)
            return
        work = self._walk.selected
        launch = int(self._trace.links.launch_of[work])
        if launch < 0 and 0 < len(chain.work) <= LINKED_AT_MOST:
            work, launch = chain.work[0].event, chain.work[0].launch
        self._timeline.link(launch, work)

    # -- keys that depend on the panel ---------------------------------------------------------------------

    def along(self, distance: int, is_open: bool) -> str | None:
        """↑ ↓ in a panel that one walks: a line to say, None where the keys are the lanes'."""
        if not is_open:
            return None
        if self.dock.active == "chain" and self.chain.chain is not None:
            event = self.chain.neighbour(distance)
            if event < 0:
                return f"the {'end' if distance > 0 else 'beginning'} of the chain; tab leaves it"
            self._walk.select(event)
            return ""
        if self.dock.active == "cheatsheet" and self.cheatsheet.finding is not None:
            return "" if self.cheatsheet.move(distance) else "no other pattern fires here; tab leaves the cheatsheet"
        if self.dock.active == "doctor" and self.doctor.remark is not None:
            return "" if self.doctor.move(distance) else "the doctor says no more; tab leaves the panel"
        return None

    def evidence(self, distance: int, is_open: bool) -> str | None:
        """n N in the cheatsheet: to a pattern's next event; None where the keys are the search's."""
        if not is_open or self.dock.active != "cheatsheet" or self.cheatsheet.finding is None:
            return None
        event, place, count = self.cheatsheet.instance(distance)
        if event < 0:
            return "this pattern has no single event to show"
        self._walk.select(event)
        return f"{self.cheatsheet.finding.id}: {place:,} of {count:,}"

    def jump(self, is_open: bool) -> str:
        """enter: fit what the panel points at."""
        remark = self.doctor.remark if is_open and self.dock.active == "doctor" else None
        if remark is not None and remark.event >= 0:
            self._walk.select(remark.event)
        said = self.evidence(1, is_open)
        if said is not None and self._walk.selected < 0:
            return said
        return self._walk.fit() or (said or "")

    def follow_next(self) -> str:
        """v: the cheatsheet is about another part of the trace."""
        self.follows = self.follows.next
        self._scope = None
        self.dock.show("cheatsheet")
        return f"the cheatsheet is about: {self.follows.value}"

    def toggle_labels(self) -> str:
        """x: what is written on the lanes beside names: reasons in the GPU's gaps, classes, notes."""
        shown = self._timeline.toggle_labels()
        return "gaps, kernels and the profiler's own events say what they are" if shown else "names only"

    # -- what threads find out -----------------------------------------------------------------------------

    def diagnosed(self, message: Diagnosed) -> None:
        self.doctor.learn(message.diagnosis)

    def facts_read(self, message: FactsRead) -> None:
        self.details.learn(message.event, message.facts)

    def chain_read(self, message: ChainRead) -> None:
        if message.chain.event != self._walk.selected:
            return
        if self.chain.wants(message.chain.event):
            self.chain.learn(message.chain, message.kernel)
        else:
            self.chain.learn_end(message.chain, message.kernel)
        self.kernel.learn(message.chain, message.kernel)
        if self.follows is Follows.SELECTION:
            self._recheck()
        self.light()

    def range_read(self, message: RangeRead) -> None:
        self.range_stats.learn(message.range)

    def trace_checked(self, message: TraceChecked) -> None:
        """The whole trace has been looked through: the verdict, the gaps' reasons, and from now on any scope."""
        self.warmed = True
        if self._inquiries.annotations is not None:
            self._timeline.annotate(*self._inquiries.annotations)
        if message.place != self._place:
            return
        self.verdict.learn(message.checked.verdict, self._whose)
        self._learn(message.checked)
        self._recheck()

    def scope_checked(self, message: ScopeChecked) -> None:
        if message.place != self._place:
            return
        if self._scope is not None and (message.checked.scope.t0, message.checked.scope.t1) == (
            self._scope.t0,
            self._scope.t1,
        ):
            self._learn(message.checked)

    def _learn(self, checked: Checked) -> None:
        words = checked.scope.label if checked.scope.whole else self.follows.value
        words = f"{self._whose} {words}".lstrip()
        self.cheatsheet.learn(checked, words)
        self.brief.learn(checked, words)
        self.light()

    def _recheck(self) -> None:
        """Ask again where the scope is another one."""
        if not self.warmed:
            return
        place = self._place_now()
        if place != self._place:  # another rank: its verdict and its gaps as well
            self._place, self._scope = place, None
            self._reading.ask("warm", partial(self._inquiries.warm, place))
        scope = self._wanted()
        if self._scope is None or (scope.t0, scope.t1) != (self._scope.t0, self._scope.t1):
            self._scope = scope
            self._inquiries.drop(place)
            self._reading.ask("check", partial(self._inquiries.check, place, scope))

    def _wanted(self) -> Scope:
        whole = self._inquiries.whole(self._place)
        if self.follows is Follows.TRACE:
            return whole
        chain = self.chain.chain
        if self.follows is Follows.SELECTION and self._walk.selected >= 0:
            events = chain.events.tolist() if chain is not None else [self._walk.selected]
            return scopes.of_events(self._trace, events)
        view = self._walk.viewport
        if view.t0 <= whole.t0 and view.t1 >= whole.t1:
            return whole
        t0, t1 = max(view.t0, whole.t0), min(view.t1, whole.t1)
        return scopes.time_range(t0, t1) if t1 > t0 else whole
