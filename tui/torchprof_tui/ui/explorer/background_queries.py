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
    DiagnosisReady,
    EventContextRead,
    RangeRead,
    ScopeChecked,
    TraceChecked,
)
from torchprof_tui.ui.explorer.lanes.event_labels import EventNotes
from torchprof_tui.ui.explorer.lanes.gap_labels import GapLabels

if TYPE_CHECKING:
    from torchprof_tui.analysis.collectives.late_arrivals import Arrivals
    from torchprof_tui.analysis.dispatch.chain import ChainFinder
    from torchprof_tui.analysis.patterns.engine.check_scope import Scope
    from torchprof_tui.analysis.patterns.engine.gpu_gaps import Gaps
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import LatestOnlyChecker


class BackgroundQueries:
    """Each method answers with a message, and is called in a thread, but for `whole` and `drop`."""

    def __init__(self, trace: Trace, gpu_busy: dict[int, Intervals]) -> None:
        self._trace, self._gpu_busy = trace, gpu_busy
        self._checkers: dict[int, LatestOnlyChecker] = {}  # by rank
        self._annotation_lock = threading.Lock()
        self._notes: dict[int, str] = {}
        self._annotated_ranks: set[int] = set()  # ranks whose gaps and notes these are
        self.annotations: tuple[GapLabels, EventNotes] | None = None  # what lanes say beside names, once it is known

    def compute_event_context(self, event: int) -> EventContextRead:
        from torchprof_tui.analysis.dispatch.event_context import read_event_context

        if self._trace.ranks is not None:  # alike are the events of its own process
            rank = self._trace.ranks.rank_of_event(event)
            return EventContextRead(event, read_event_context(rank.trace, event - rank.first))
        return EventContextRead(event, read_event_context(self._trace, event))

    def compute_chain(self, event: int) -> ChainRead:
        from torchprof_tui.analysis.kernel.kernel_summary import summarize_kernel

        chain = self._dispatch.find_chain(event)
        return ChainRead(chain, summarize_kernel(self._trace, chain.work[0].event if chain.work else -1))

    def compute_range_statistics(self, start: int, end: int, steps: list[Step]) -> RangeRead:
        from torchprof_tui.analysis.time.range_statistics import compute_range_statistics

        return RangeRead(compute_range_statistics(self._trace, start, end, self._gpu_busy, candidate_steps=steps))

    def precompute(self, rank_index: int) -> TraceChecked:
        """Look through the whole trace, of several ranks that at `place`: from then on any scope is answered soon."""
        checked, gaps, notes = self._get_checker(rank_index).precompute()
        self._annotate_lanes(rank_index, gaps, notes)
        return TraceChecked(checked, rank_index)

    def _annotate_lanes(self, place: int, gaps: Gaps, notes: dict[int, str]) -> None:
        """What the lanes of a rank say beside names, put together with that of the others. Here, because to sort a
        million gaps takes longer than a frame."""
        with self._annotation_lock:
            if place in self._annotated_ranks:
                return
            trace, first = self._trace, 0
            if self._trace.ranks is not None:
                rank = self._trace.ranks.all[place]
                trace, first = rank.trace, rank.first_lane
            self._notes |= notes
            others = self.annotations[0] if self.annotations is not None else None
            self.annotations = GapLabels(trace, gaps, first, others), EventNotes(self._trace, self._notes)
            self._annotated_ranks.add(place)

    def cancel(self, rank_index: int) -> None:
        """What is being checked there is not wanted any more. From the screen's own thread."""
        if rank_index in self._checkers:
            self._checkers[rank_index].cancel()

    def check_scope(self, rank_index: int, scope: Scope) -> ScopeChecked | None:
        """None where it was dropped, or another scope has been asked about since."""
        checked = self._get_checker(rank_index).check(scope)
        return None if checked is None else ScopeChecked(checked, rank_index)

    def diagnose_trace(self) -> DiagnosisReady:
        from torchprof_tui.analysis.doctor.examination import diagnose_trace

        return DiagnosisReady(diagnose_trace(self._trace))

    def whole_trace_scope(self, rank_index: int) -> Scope:
        """All of the trace, or of that rank. Cheap once one has been looked through: `warm`."""
        return self._get_checker(rank_index).default_scope

    def _get_checker(self, place: int) -> LatestOnlyChecker:
        from torchprof_tui.analysis.patterns.engine.latest_only_checker import LatestOnlyChecker

        if place not in self._checkers:  # of two threads that come at once, both take the first one's
            self._checkers.setdefault(place, LatestOnlyChecker(self._trace, self._late_arrivals, place))
        return self._checkers[place]

    @cached_property
    def _late_arrivals(self) -> Arrivals | None:
        from torchprof_tui.analysis.collectives.late_arrivals import compute_arrivals

        return None if self._trace.ranks is None else compute_arrivals(self._trace.ranks)

    @cached_property
    def _dispatch(self) -> ChainFinder:
        from torchprof_tui.analysis.dispatch.chain import ChainFinder

        return ChainFinder(self._trace)
