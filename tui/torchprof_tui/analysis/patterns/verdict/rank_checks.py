"""Check several ranks, merge what was found on each, and name the one that the others wait for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from torchprof_tui.analysis.collectives.communication_waiting import Arrivals, compute_arrivals
from torchprof_tui.analysis.patterns.engine.check_scope import Scope, whole_trace_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker, check_view, severity_sort_key
from torchprof_tui.analysis.patterns.engine.largest_gaps import LargestGap, list_largest_gaps_of_ranks
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Remedy, State, merge_places
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import RankContext
from torchprof_tui.analysis.patterns.rules.multi_gpu import find_late_rank, find_latest_collective
from torchprof_tui.analysis.patterns.verdict.costs import CostBase, find_base, price_findings
from torchprof_tui.analysis.patterns.verdict.tree_model import EXPOSED
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict, decide_verdict, tell_costs
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace


@record
class LateRank:
    """The rank that the others wait for. `event`: where it is late the longest, numbered as in the merged trace.

    `index`: in `Ranks.all`. `cause`: one line, "" where only the rank's own verdict can tell.
    """

    FINDING: ClassVar[str] = "straggler"
    """The pattern that says which rank is late."""

    index: int
    label: str
    event: int
    cause: str


def find_late_place(view: ScopeView, findings: Sequence[Finding]) -> LateRank | None:
    """Find the rank that `straggler` is about; None where it is about none, or about several in turn."""
    context = view.tables.rank_context
    if context is None or not any(each.id == LateRank.FINDING and each.has_fired for each in findings):
        return None
    late, _ = find_late_rank(view)
    if late is None:
        return None
    arrivals, rank = context.arrivals, context.arrivals.ranks.all[late]
    stall = next((stall for stall in arrivals.host_stalls if stall.rank_index == late), None)
    cause = f"it {stall.text}" if stall else ""
    if any(each.id == "slow-host" and each.has_fired for each in findings) and arrivals.host_speed.slowest == late:
        cause = "its host is slow (see slow-host)"
    event = find_latest_collective(view, late) if stall is None else stall.event
    return LateRank(late, rank.label, event + rank.first, cause)


def explain_straggler(
    findings: Sequence[Finding], late: LateRank | None, verdict: Verdict | None, is_own: bool = False
) -> list[Finding]:
    """Say in `straggler` which rank to open, and why it is late. `verdict`: the late rank's; None: not known yet.

    `is_own`: the findings are those of the late rank.
    """
    if late is None:
        return list(findings)
    cause = late.cause or (verdict.what if verdict is not None and _tells_cause(verdict) else "")
    advice = "check what it does before the collective: its data, its clocks, its code"
    where = "this is the late rank" if is_own else f"open {late.label}"
    remedy = Remedy(f"{where}: {cause or advice}")
    return [
        replace(each, answer=replace(each.answer, remedy=remedy)) if each.id == LateRank.FINDING else each
        for each in findings
    ]


def _tells_cause(verdict: Verdict) -> bool:
    """Return whether a late rank's own verdict says why it is late: talking to others is no reason."""
    return bool(verdict.what) and verdict.late_rank is None and verdict.cause != EXPOSED


def explain_late_rank(verdict: Verdict, rank_index: int, late_verdict: Verdict) -> Verdict:
    """Add to the verdict of a rank that waits what the late rank's own verdict says; its remedy is there."""
    if verdict.late_rank in (None, rank_index) or not _tells_cause(late_verdict):
        return verdict
    return replace(verdict, first=f"{verdict.what}: there {late_verdict.what}", remedy=late_verdict.remedy)


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
        views = [checker.view(scope) for checker in self._checkers]
        for view in views:
            findings = check_view(view, pattern_ids)
            verdict = decide_verdict(view, findings)
            findings_by_rank.append(price_findings(view, findings, verdict, with_cause=ids is None))
            verdicts.append(tell_costs(verdict, findings_by_rank[-1]))
        verdicts = [
            verdict if verdict.late_rank is None else explain_late_rank(verdict, index, verdicts[verdict.late_rank])
            for index, verdict in enumerate(verdicts)
        ]
        by_id: dict[str, list[tuple[Rank, Finding]]] = {}
        for rank, findings in zip(self.ranks, findings_by_rank, strict=True):
            for finding in findings:
                by_id.setdefault(finding.id, []).append((rank, finding.with_event_offset(rank.first)))
        merged = [merge_findings(rank_findings) for rank_findings in by_id.values()]
        late = find_late_place(views[0], merged)
        merged = explain_straggler(merged, late, None if late is None else verdicts[late.index])
        # Of the findings that ranks' verdicts are about, only the one that costs most stays what a verdict is about.
        leading = max((each for each in merged if each.is_leading), key=lambda each: each.share, default=None)
        merged = [replace(each, is_leading=each is leading) for each in merged]
        return sorted(merged, key=severity_sort_key), verdicts

    def find_base(self, scope: Scope) -> CostBase:
        """Find what the costs of a scope are shares of, each of its own rank: that of the rank that takes longest."""
        bases = [find_base(checker.view(scope)) for checker in self._checkers]
        return replace(max(bases, key=lambda base: base.time), least=min(base.unit for base in bases))

    def list_largest_gaps(self, scope: Scope, count: int) -> list[LargestGap]:
        """List the longest idle gaps of all ranks, each with the line of its rank, longest first."""
        gaps = []
        for index, gap in list_largest_gaps_of_ranks([checker.view(scope) for checker in self._checkers], count):
            rank = self.ranks[index]
            next_event = gap.next_event + rank.first if gap.next_event >= 0 else -1
            gaps.append(replace(gap, rank=rank.number, next_event=next_event))
        return gaps


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


def _format_other_ranks(rank: Rank, fired: Sequence[Rank], rank_count: int) -> str:
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
