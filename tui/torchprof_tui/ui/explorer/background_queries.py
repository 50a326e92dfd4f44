"""What is asked about a trace and takes more than a frame to answer: here threads find it out, for the panels.

What answers is imported by the thread that asks: the first frame with lanes waits for none of it, because until then
its cores decode, and no key ever does.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING

from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.model.trace import Step, Trace
from torchprof_tui.ui.common.messages import (
    ChainRead,
    Diagnosed,
    FactsRead,
    RangeRead,
    ScopeChecked,
    TraceChecked,
)
from torchprof_tui.ui.explorer.lanes.event_labels import EventNotes
from torchprof_tui.ui.explorer.lanes.gap_labels import GapLabels

if TYPE_CHECKING:
    from torchprof_tui.analysis.collectives.late_arrivals import Arrivals
    from torchprof_tui.analysis.dispatch.chain import Dispatch
    from torchprof_tui.analysis.patterns.engine.check_scope import Scope
    from torchprof_tui.analysis.patterns.engine.gpu_gaps import Gaps
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import Asking


class Inquiries:
    """Each method answers with a message, and is called in a thread, but for `whole` and `drop`."""

    def __init__(self, trace: Trace, busy: dict[int, Intervals]) -> None:
        self._trace, self._busy = trace, busy
        self._asked_of: dict[int, Asking] = {}  # by rank
        self._annotating = threading.Lock()
        self._notes: dict[int, str] = {}
        self._annotated: set[int] = set()  # ranks whose gaps and notes these are
        self.annotations: tuple[GapLabels, EventNotes] | None = None  # what lanes say beside names, once it is known

    def facts(self, event: int) -> FactsRead:
        from torchprof_tui.analysis.dispatch.event_context import facts

        if self._trace.ranks is not None:  # alike are the events of its own process
            rank = self._trace.ranks.of_event(event)
            return FactsRead(event, facts(rank.trace, event - rank.first))
        return FactsRead(event, facts(self._trace, event))

    def chain(self, event: int) -> ChainRead:
        from torchprof_tui.analysis.kernel.kernel_summary import kernel_facts

        chain = self._dispatch.chain(event)
        return ChainRead(chain, kernel_facts(self._trace, chain.work[0].event if chain.work else -1))

    def statistics(self, start: int, end: int, steps: list[Step]) -> RangeRead:
        from torchprof_tui.analysis.time.range_statistics import range_time

        return RangeRead(range_time(self._trace, start, end, self._busy, of_steps=steps))

    def warm(self, place: int) -> TraceChecked:
        """Look through the whole trace, of several ranks that at `place`: from then on any scope is answered soon."""
        checked, gaps, notes = self._asking(place).warm()
        self._annotate(place, gaps, notes)
        return TraceChecked(checked, place)

    def _annotate(self, place: int, gaps: Gaps, notes: dict[int, str]) -> None:
        """What the lanes of a rank say beside names, put together with that of the others. Here, because to sort a
        million gaps takes longer than a frame."""
        with self._annotating:
            if place in self._annotated:
                return
            trace, first = self._trace, 0
            if self._trace.ranks is not None:
                rank = self._trace.ranks.all[place]
                trace, first = rank.trace, rank.first_lane
            self._notes |= notes
            others = self.annotations[0] if self.annotations is not None else None
            self.annotations = GapLabels(trace, gaps, first, others), EventNotes(self._trace, self._notes)
            self._annotated.add(place)

    def drop(self, place: int) -> None:
        """What is being checked there is not wanted any more. From the screen's own thread."""
        if place in self._asked_of:
            self._asked_of[place].drop()

    def check(self, place: int, scope: Scope) -> ScopeChecked | None:
        """None where it was dropped, or another scope has been asked about since."""
        checked = self._asking(place).check(scope)
        return None if checked is None else ScopeChecked(checked, place)

    def diagnose(self) -> Diagnosed:
        from torchprof_tui.analysis.doctor.examination import examined

        return Diagnosed(examined(self._trace))

    def whole(self, place: int) -> Scope:
        """All of the trace, or of that rank. Cheap once one has been looked through: `warm`."""
        return self._asking(place).whole

    def _asking(self, place: int) -> Asking:
        from torchprof_tui.analysis.patterns.engine.latest_only_checker import Asking

        if place not in self._asked_of:  # of two threads that come at once, both take the first one's
            self._asked_of.setdefault(place, Asking(self._trace, self._met, place))
        return self._asked_of[place]

    @cached_property
    def _met(self) -> Arrivals | None:
        from torchprof_tui.analysis.collectives.late_arrivals import arrivals

        return None if self._trace.ranks is None else arrivals(self._trace.ranks)

    @cached_property
    def _dispatch(self) -> Dispatch:
        from torchprof_tui.analysis.dispatch.chain import Dispatch

        return Dispatch(self._trace)
