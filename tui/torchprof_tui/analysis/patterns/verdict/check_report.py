"""Check a scope of a trace, of all its ranks: a report for outputs, and the latest scope that a screen asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.collectives.communication_waiting import Arrivals, compute_arrivals
from torchprof_tui.analysis.patterns.engine.check_scope import Scope, default_scope, whole_trace_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker, check_view, severity_sort_key
from torchprof_tui.analysis.patterns.engine.gpu_idle_causes import Gaps
from torchprof_tui.analysis.patterns.engine.launch_owners import LargestGap, list_largest_gaps_of_ranks
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State, merge_places
from torchprof_tui.analysis.patterns.engine.trace_tables import RankContext
from torchprof_tui.analysis.patterns.verdict.costs import CostBase, find_base, price_findings
from torchprof_tui.analysis.patterns.verdict.tree_model import EXPOSED, TimeTree, merge_trees
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict, decide_verdict
from torchprof_tui.analysis.patterns.verdict.wins import Wins, find_remedy, predict_wins, rank_by_wins
from torchprof_tui.analysis.what_if.scenario import Scenario, ScenarioError, ScenarioKind
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace

LISTED_GAPS = 10
"""Gaps that a report lists, longest first."""


@dataclass(frozen=True)
class CheckReport:
    """A checked scope: `findings`, worst first, one verdict per rank (one without ranks), the largest `gaps`.

    `base`: what costs are shares of; `wins`: what fixes save.
    """

    trace: Trace
    scope: Scope
    findings: list[Finding]
    verdicts: list[Verdict]
    base: CostBase
    gaps: Sequence[LargestGap] = ()
    wins: Wins = field(default_factory=Wins)

    @property
    def problems(self) -> list[Finding]:
        """The fired problems that cost enough time, worst first."""
        return [finding for finding in self.findings if finding.is_significant]

    @property
    def minor(self) -> list[Finding]:
        """What else fired: problems that cost next to nothing, and artefacts of the profiler."""
        return [found for found in self.findings if found.has_fired and not (found.is_significant or found.is_note)]

    @property
    def notes(self) -> list[Finding]:
        """The patterns that fired and only help to read the trace."""
        return [finding for finding in self.findings if finding.has_fired and finding.is_note]

    @property
    def undecidable(self) -> list[Finding]:
        return [found for found in self.findings if found.state is State.CANNOT_TELL and not found.is_note]

    @property
    def serving_range(self) -> tuple[int, int] | None:
        """The range whose serving steps belong to the scope; None for all."""
        return None if self.scope.is_whole_trace else (self.scope.t0, self.scope.t1)

    @cached_property
    def tree(self) -> TimeTree | None:
        """The time of the scope by cause, over all ranks; None where it is unknown."""
        return merge_trees([verdict.tree for verdict in self.verdicts if verdict.tree is not None])

    @cached_property
    def ranks_by_verdict(self) -> list[tuple[Verdict, list[int]]]:
        """The distinct verdicts, each with the numbers of its ranks; [] of numbers where all have the same."""
        if self.trace.merged_ranks is None:
            return [(self.verdicts[0], [])]
        numbers_by_text: dict[str, tuple[Verdict, list[int]]] = {}
        for rank, verdict in zip(self.trace.merged_ranks.all, self.verdicts, strict=True):
            numbers_by_text.setdefault(verdict.text, (verdict, []))[1].append(rank.number)
        distinct = list(numbers_by_text.values())
        return distinct if len(distinct) > 1 else [(distinct[0][0], [])]

    def format_counts(self) -> str:
        """Format how many patterns are found, not present and undetermined; notes do not count."""
        absent = sum(found.state is State.ABSENT and not found.is_note for found in self.findings)
        fired = len(self.problems) + len(self.minor)
        return f"{fired} found · {absent} not present · {len(self.undecidable)} undetermined"


def check_trace(trace: Trace, scope: Scope, *, with_wins: bool = True) -> CheckReport:
    """Check the scope: findings, worst first, a verdict per rank, and the largest gaps.

    Of problems of a whole trace it says what their fixes save, where that can be predicted and is asked for.
    """
    if trace.merged_ranks is not None:
        ranks = MultiRankChecker(trace)
        findings, verdicts = ranks.check(scope)
        base = ranks.find_base(scope)
        gaps = ranks.list_largest_gaps(scope, LISTED_GAPS)
    else:
        checker = Checker(trace)
        view = checker.view(scope)
        unpriced = check_view(view)
        verdicts = [decide_verdict(view, unpriced)]
        findings, base = price_findings(view, unpriced, verdicts[0]), find_base(view)
        gaps = checker.list_largest_gaps(scope, LISTED_GAPS)
    wins = predict_wins(trace, findings, base) if scope.is_whole_trace and with_wins else Wins()
    return CheckReport(trace, scope, rank_by_wins(findings, wins), verdicts, base, gaps, wins)


class RemedyFinder:
    """Finds the scenarios of a trace's patterns. The trace is checked once, when the first pattern is asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def expand(self, scenarios: Sequence[Scenario]) -> list[Scenario]:
        """Replace `pattern=ID` by the scenario of its remedy. Raises ScenarioError where it was not found."""
        return [
            self._find_remedy(scenario) if scenario.kind is ScenarioKind.PATTERN else scenario for scenario in scenarios
        ]

    @cached_property
    def _findings(self) -> dict[str, Finding]:
        report = check_trace(self._trace, default_scope(self._trace), with_wins=False)
        return {finding.id: finding for finding in report.findings}

    def _find_remedy(self, scenario: Scenario) -> Scenario:
        name = scenario.subject
        if name not in PATTERNS:
            raise ScenarioError(f"{scenario.text!r}: no pattern {name!r}; `check --list` names them")
        finding = self._findings.get(name)
        if finding is None or not finding.has_fired:
            raise ScenarioError(f"{scenario.text!r}: `check` did not find it in this trace")
        remedy = find_remedy(self._trace, finding)
        if remedy is None:
            raise ScenarioError(f"{scenario.text!r}: no scenario describes its remedy; change kernels or ops yourself")
        return remedy


_MAX_LISTED_RANKS = 4
"""Other ranks that are listed by number where a pattern fires on several; above it only their count is."""


def build_rank_checker(rank_arrivals: Arrivals, rank_index: int) -> Checker:
    """Build the checker of one of several ranks, with the arrivals of all ranks at its collectives."""
    return Checker(rank_arrivals.ranks.all[rank_index].trace, RankContext(rank_arrivals, rank_index))


class MultiRankChecker:
    """Checks the patterns over all ranks of a trace. Events are numbered as in the merged trace."""

    def __init__(self, trace: Trace) -> None:
        assert trace.merged_ranks is not None
        self.trace = trace
        self.ranks = trace.merged_ranks.all
        arrivals = compute_arrivals(trace.merged_ranks)
        self._checkers = [build_rank_checker(arrivals, rank_index) for rank_index in range(len(self.ranks))]

    @cached_property
    def default_scope(self) -> Scope:
        return whole_trace_scope(self.trace)

    def check(self, scope: Scope, ids: Iterable[str] | None = None) -> tuple[list[Finding], list[Verdict]]:
        """Check a scope on all ranks: (findings, worst first; one verdict per rank).

        The text of each finding is that of the rank where it costs most.
        """
        pattern_ids = None if ids is None else list(ids)
        findings_by_rank, verdicts = [], []
        for checker in self._checkers:
            view = checker.view(scope)
            findings = check_view(view, pattern_ids)
            verdicts.append(decide_verdict(view, findings))
            findings_by_rank.append(price_findings(view, findings, verdicts[-1], with_cause=ids is None))
        verdicts = [_explain_late_rank(verdict, index, verdicts) for index, verdict in enumerate(verdicts)]
        by_id: dict[str, list[tuple[Rank, Finding]]] = {}
        for rank, findings in zip(self.ranks, findings_by_rank, strict=True):
            for finding in findings:
                by_id.setdefault(finding.id, []).append((rank, finding.with_event_offset(rank.first)))
        merged = [merge_findings(rank_findings) for rank_findings in by_id.values()]
        return sorted(keep_one_leading(merged), key=severity_sort_key), verdicts

    def find_base(self, scope: Scope) -> CostBase:
        """Find what the costs of a scope are shares of: on the rank that takes longest."""
        return max((find_base(checker.view(scope)) for checker in self._checkers), key=lambda base: base.time)

    def list_largest_gaps(self, scope: Scope, count: int) -> list[LargestGap]:
        """List the longest idle gaps of all ranks, each with the line of its rank, longest first."""
        found = list_largest_gaps_of_ranks([checker.view(scope) for checker in self._checkers], count)
        return [gap.for_rank(self.ranks[index].number, self.ranks[index].first) for index, gap in found]


def _explain_late_rank(verdict: Verdict, rank_index: int, verdicts: Sequence[Verdict]) -> Verdict:
    """Add to the verdict of a rank that waits what the late rank's own verdict says; its remedy is there."""
    late = verdict.late_rank
    if late is None or late == rank_index or not verdicts[late].what or verdicts[late].late_rank is not None:
        return verdict
    if verdicts[late].cause == EXPOSED:
        return verdict  # talking to others is no reason for being late to them
    return replace(verdict, first=f"{verdict.what}: there {verdicts[late].what}", remedy=verdicts[late].remedy)


def merge_findings(rank_findings: Sequence[tuple[Rank, Finding]]) -> Finding:
    """Merge one pattern's findings on several ranks into one.

    It fired if it fired on any rank, and is absent if it is absent on all ranks that can decide it. The cost is the
    largest of any rank, because the ranks run at the same time; the evidence is that of all ranks.
    """
    fired = [(rank, finding) for rank, finding in rank_findings if finding.has_fired]
    if not fired:
        absent = [finding for _, finding in rank_findings if finding.state is State.ABSENT]
        return absent[0] if absent else rank_findings[0][1]
    rank, worst = max(fired, key=lambda item: (item[1].share, item[1].answer.at_stake))
    if worst.pattern.applies_to_all_ranks:
        prefix = ""
    elif len({finding.answer.seen for _, finding in fired}) == 1 and len(fired) == len(rank_findings):
        prefix = "" if len(fired) > 1 else f"{rank.label}: "
    else:
        prefix = (
            f"{rank.label}{_format_other_ranks(rank, [fired_rank for fired_rank, _ in fired], len(rank_findings))}: "
        )
    events = np.concatenate([finding.answer.events for _, finding in fired])
    places = [finding.answer.places for _, finding in fired if finding.answer.places is not None]
    merged = merge_places(places) if places else None
    is_leading = any(finding.is_leading for _, finding in fired)
    worst = replace(worst, is_leading=is_leading)
    return replace(worst, answer=replace(worst.answer, seen=prefix + worst.answer.seen, events=events, places=merged))


def keep_one_leading(findings: Sequence[Finding]) -> list[Finding]:
    """Let only one finding be what a verdict is about: of those that ranks' verdicts name, the one that costs most."""
    leading = max((each for each in findings if each.is_leading), key=lambda each: each.share, default=None)
    return [replace(each, is_leading=each is leading) for each in findings]


def _format_other_ranks(rank: Rank, fired: Sequence[Rank], rank_count: int) -> str:
    """Format on which other ranks the pattern fired, "" for none."""
    other_ranks = [other for other in fired if other is not rank]
    if not other_ranks:
        return ""
    if len(fired) == rank_count:
        return " (the same on all ranks)"
    if len(other_ranks) > _MAX_LISTED_RANKS:
        return f" (also on {len(other_ranks)} more ranks)"
    return (
        f" (also on rank{'s' if len(other_ranks) > 1 else ''} {', '.join(str(other.number) for other in other_ranks)})"
    )


FIRST_VERDICT_NOTE = "checking the patterns …"
"""What a verdict says instead of its advice until the patterns have been checked."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """All findings in a scope, worst first, and its verdict; `base`: what costs are shares of."""

    scope: Scope
    findings: Sequence[Finding]
    verdict: Verdict
    base: CostBase


@dataclass(frozen=True, slots=True)
class PrecomputedCheck:
    """The result of the whole trace and what the lanes show of it: all idle gaps and the notes on single events.

    Notes are by event of the merged trace; the gaps, and the longest of them with their lines, are one rank's own.
    """

    result: CheckResult
    gaps: Gaps
    notes: dict[int, str]
    largest_gaps: Sequence[LargestGap]


class _CancelledError(Exception):
    """Raised inside a check that was cancelled or superseded."""


class LatestOnlyChecker:
    """A checker shared by the threads of one screen.

    For a trace of several ranks each rank has its own, made from `rank_arrivals` and its `rank_index`; events are
    numbered as in the merged trace.
    """

    def __init__(self, trace: Trace, rank_arrivals: Arrivals | None = None, rank_index: int = 0) -> None:
        self._checker = Checker(trace) if rank_arrivals is None else build_rank_checker(rank_arrivals, rank_index)
        self._offset = 0 if rank_arrivals is None else rank_arrivals.ranks.all[rank_index].first
        self._lock = threading.Lock()
        self._latest: Scope | None = None
        self._precomputed: PrecomputedCheck | None = None
        self._default_result: CheckResult | None = None  # kept: the whole trace is requested again and again
        self._ranked_result: CheckResult | None = None
        self._trace = trace

    @property
    def default_scope(self) -> Scope:
        return self._checker.default_scope

    def precompute(self) -> PrecomputedCheck:
        """Check the whole trace; return the result and what the lanes show of it.

        Fills the tables that later checks share.
        """
        with self._lock:
            if self._precomputed is None:
                self._default_result = self._check(self._checker.default_scope)
                notes = {event + self._offset: note for event, note in self._checker.find_event_notes().items()}
                gaps, largest = self._checker.gap_finder.gaps, self._checker.list_largest_gaps()
                self._precomputed = PrecomputedCheck(self._default_result, gaps, notes, largest)
            return self._precomputed

    def decide_first_verdict(self) -> Verdict | None:
        """Decide the verdict on the whole trace before its patterns are checked; None once they have been.

        Regime and busy share are those of the whole check. What costs most is said in general: a pattern may name its
        cause. What to do is left to the whole check.
        """
        with self._lock:
            if self._default_result is not None:
                return None
            verdict = self._checker.decide_verdict()
            return replace(verdict, first=f"{verdict.what or verdict.first} · {FIRST_VERDICT_NOTE}", remedy="")

    def cancel(self) -> None:
        """Cancel the running check before its next step of some milliseconds, so that it does not delay drawing."""
        self._latest = None

    def check(self, scope: Scope) -> CheckResult | None:
        """Check a scope. None if it was cancelled, or if another scope has been requested since."""
        self._latest = scope
        if scope.is_whole_trace and self._default_result is not None:
            return self._rank_default_result()

        def raise_if_superseded() -> None:
            if self._latest is not scope:
                raise _CancelledError

        with self._lock, suppress(_CancelledError):
            return self._check(scope, raise_if_superseded)
        return None

    def _rank_default_result(self) -> CheckResult:
        """Rank the problems of the whole trace by what their fixes save; predicted once."""
        with self._lock:
            if self._ranked_result is None:
                assert self._default_result is not None
                result = self._default_result
                wins = predict_wins(self._trace, result.findings, result.base)
                self._ranked_result = replace(result, findings=rank_by_wins(result.findings, wins))
            return self._ranked_result

    def _check(self, scope: Scope, raise_if_cancelled: Callable[[], object] = lambda: None) -> CheckResult:
        view = self._checker.view(scope, raise_if_cancelled)
        findings = check_view(view)
        view.raise_if_cancelled()
        verdict = decide_verdict(view, findings)
        priced = price_findings(view, findings, verdict)
        return CheckResult(scope, [each.with_event_offset(self._offset) for each in priced], verdict, find_base(view))
