"""Queries for the panels that take longer than a frame: run on worker threads, answered by messages.

The analysis modules are imported inside the methods, on the worker thread: the first frame with lanes waits for none of
them, because until then the cores decode, and no key waits for an import.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from textual.message import Message

from torchprof_tui.analysis.repetition.step_list import keep_repeated_steps
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Step, Trace
from torchprof_tui.ui.common.debounced_worker import WorkResult
from torchprof_tui.ui.lanes.event_labels import EventNotes, GapLabels

if TYPE_CHECKING:
    from torchprof_tui.analysis.collectives.communication_waiting import Arrivals
    from torchprof_tui.analysis.dispatch.chain import ChainFinder
    from torchprof_tui.analysis.dispatch.event_context import EventContext
    from torchprof_tui.analysis.dispatch.source_line import SourceLineFinder
    from torchprof_tui.analysis.dispatch.step_rows import StepRows
    from torchprof_tui.analysis.doctor.read_problems import Diagnosis
    from torchprof_tui.analysis.graphs.captured_ops import CapturedChain
    from torchprof_tui.analysis.patterns.engine.check_scope import Scope
    from torchprof_tui.analysis.patterns.engine.largest_gaps import LargestGap
    from torchprof_tui.analysis.patterns.verdict.latest_check import CheckResult, LatestOnlyChecker, PrecomputedCheck
    from torchprof_tui.analysis.patterns.verdict.verdict import ScopeRegime, Verdict
    from torchprof_tui.analysis.time.range_statistics import RangeStatistics
    from torchprof_tui.ui.explorer.event_reading import ChainRead


@dataclass
class VerdictDecided(WorkResult):
    """The verdict on the whole trace (of the rank at `rank_index`), before its patterns have been checked."""

    verdict: Verdict
    rank_index: int = 0


@dataclass
class TraceChecked(WorkResult):
    """The cheatsheet of the whole trace (of the rank at `rank_index`) has been checked; `gaps`: its longest.

    What the labels of its lanes show besides names is known, too.
    """

    checked: CheckResult
    rank_index: int = 0
    gaps: Sequence[LargestGap] = ()


@dataclass
class ScopeChecked(WorkResult):
    """The cheatsheet of the current scope (of the rank at `rank_index`) has been checked."""

    checked: CheckResult
    rank_index: int = 0


@dataclass
class LateRankChecked(WorkResult):
    """The rank that others wait for has been checked: what its own verdict says is known."""


@dataclass
class DiagnosisReady(WorkResult):
    """The trace doctor has made its diagnosis."""

    diagnosis: Diagnosis


MAX_EVENTS_RANKED_FIRST = 200_000
"""Largest trace whose first verdict waits until what fixes save is known: some 10 to 200 ms. Of larger ones only the
cheatsheet of the whole trace is ranked by it."""


class BackgroundQueries:
    """Answer queries about a trace with messages.

    Call the methods on a worker thread, except `cancel`, `describe_limit`, `get_checker` and `explain_late_rank`,
    which belong to the UI thread.
    `report`: receives what is known before a query is answered; called on the worker thread.
    """

    def __init__(
        self, trace: Trace, gpu_busy: dict[int, Intervals], report: Callable[[Message], object] = lambda _: None
    ) -> None:
        self._trace, self._gpu_busy, self._report = trace, gpu_busy, report
        self._checkers: dict[int, LatestOnlyChecker] = {}  # by rank
        self._verdicts: dict[int, Verdict] = {}  # on whole traces, by rank
        self._annotation_lock = threading.Lock()
        self._notes: dict[int, str] = {}
        self._annotated_ranks: set[int] = set()  # ranks that `annotations` covers
        self.annotations: tuple[GapLabels, EventNotes] | None = None  # labels on the lanes, once they are known

    # deferred imports: see the module docstring

    def compute_event_context(self, event: int) -> tuple[EventContext, CapturedChain | str | None]:
        """Read what is slow to read about an event, such as its args, and of a replayed kernel its captured op."""
        from torchprof_tui.ui.explorer.event_reading import read_event

        return read_event(self._trace, event)

    def compute_chain(self, event: int) -> ChainRead:
        """Find the dispatch chain through an event and its line, and summarize the kernel at its end."""
        from torchprof_tui.ui.explorer.event_reading import read_chain

        return read_chain(self._trace, *self._finders, event)

    def compare_steps(self, event: int) -> StepRows | None:
        """Compare an event and its chain over the steps; None where it is in no step."""
        from torchprof_tui.ui.explorer.event_reading import read_step_rows

        return read_step_rows(self._trace, event)

    def compute_range_statistics(self, start: int, end: int, steps: list[Step]) -> RangeStatistics:
        """Compute the statistics of a range, ns; `steps`: those that it may overlap."""
        from torchprof_tui.analysis.time.range_statistics import compute_range_statistics

        return compute_range_statistics(self._trace, start, end, self._gpu_busy, candidate_steps=steps)

    def precompute(self, rank_index: int) -> TraceChecked:
        """Check the whole trace of one rank (0 without ranks). Afterwards any scope is checked quickly.

        Of a large trace the verdict is reported first: the patterns take several times as long.
        """
        checker = self.get_checker(rank_index)
        is_large = len(self._trace) > MAX_EVENTS_RANKED_FIRST
        if is_large and (verdict := checker.decide_first_verdict()) is not None:
            self._report(VerdictDecided(verdict, rank_index))
        precomputed = checker.precompute()
        self._annotate_lanes(rank_index, precomputed)
        rank = self._trace.all_ranks[rank_index]
        if not rank.trace.steps:
            search_repetitions(rank)
        self._verdicts[rank_index] = precomputed.result.verdict
        ranked = None if is_large else checker.check(checker.default_scope)
        return TraceChecked(ranked or precomputed.result, rank_index, precomputed.largest_gaps)

    def check_late_rank(self, rank_index: int) -> LateRankChecked:
        """Check the rank that others wait for: its verdict says why, and its lanes get their labels."""
        precomputed = self.get_checker(rank_index).precompute()
        self._annotate_lanes(rank_index, precomputed)
        self._verdicts[rank_index] = precomputed.result.verdict
        return LateRankChecked()

    def explain_late_rank(self, checked: CheckResult, rank_index: int) -> CheckResult:
        """Say in the result of a rank why another rank is late, as far as that is known. Cheap."""
        late = checked.late_rank
        return checked if late is None else checked.explain_late_rank(rank_index, self._verdicts.get(late.index))

    def _annotate_lanes(self, rank_index: int, precomputed: PrecomputedCheck) -> None:
        """Add the gap labels and event notes of a rank to `annotations`.

        On the worker thread, because sorting a million gaps takes longer than a frame.
        """
        with self._annotation_lock:
            if rank_index in self._annotated_ranks:
                return
            rank = self._trace.all_ranks[rank_index]
            self._notes |= precomputed.notes
            lines = {(gap.device, gap.start): gap.line.text for gap in precomputed.largest_gaps if gap.line is not None}
            other_ranks = self.annotations[0] if self.annotations is not None else None
            labels = GapLabels(rank.trace, precomputed.gaps, rank.first_lane, other_ranks, lines)
            self.annotations = labels, EventNotes(self._trace, self._notes)
            self._annotated_ranks.add(rank_index)

    def cancel(self, rank_index: int) -> None:
        """Cancel the check of a rank that is running. Called on the UI thread."""
        if rank_index in self._checkers:
            self._checkers[rank_index].cancel()

    def check_scope(self, rank_index: int, scope: Scope) -> ScopeChecked | None:
        """Check a scope of a rank; None where it was cancelled or another scope has been requested since."""
        checked = self.get_checker(rank_index).check(scope)
        return None if checked is None else ScopeChecked(checked, rank_index)

    def measure_regime(self, rank_index: int, scope: Scope | None) -> ScopeRegime:
        """Measure what limits a scope of a rank, None for its whole trace: what its verdict says."""
        return self.get_checker(rank_index).measure_regime(scope)

    def describe_limit(self, event: int) -> str:
        """Describe what limits a kernel, memory or arithmetic. Cheap; belongs to the UI thread."""
        ranks = self._trace.merged_ranks
        return self.get_checker(0 if ranks is None else ranks.index_of_event(event)).describe_limit(event)

    def diagnose_trace(self) -> DiagnosisReady:
        """Collect the remarks of the trace doctor."""
        from torchprof_tui.analysis.doctor.examination import diagnose_trace

        return DiagnosisReady(diagnose_trace(self._trace))

    def get_checker(self, rank_index: int) -> LatestOnlyChecker:
        """Return the checker of a rank; `default_scope`, all of the rank, is cheap once `precompute` has finished."""
        from torchprof_tui.analysis.patterns.verdict.latest_check import LatestOnlyChecker

        if rank_index not in self._checkers:  # setdefault is atomic: two threads get the same checker
            self._checkers.setdefault(rank_index, LatestOnlyChecker(self._trace, self._late_arrivals, rank_index))
        return self._checkers[rank_index]

    @cached_property
    def _late_arrivals(self) -> Arrivals | None:
        from torchprof_tui.analysis.collectives.communication_waiting import compute_arrivals

        return None if self._trace.merged_ranks is None else compute_arrivals(self._trace.merged_ranks)

    @cached_property
    def _finders(self) -> tuple[ChainFinder, SourceLineFinder]:
        from torchprof_tui.analysis.dispatch import chain, source_line

        return chain.ChainFinder(self._trace), source_line.SourceLineFinder(self._trace)


def search_repetitions(rank: Rank) -> None:
    """Find the repetitions of a rank; where no steps were recorded, `list_steps` returns them from then on."""
    from torchprof_tui.analysis.repetition.repetitions import find_repetitions

    found = find_repetitions(rank.trace)
    if not rank.trace.steps:
        keep_repeated_steps(rank, found.list_steps(rank.first))
