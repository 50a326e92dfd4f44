"""The cheatsheet of several ranks: each is checked as a run of its own, and what all of them say is put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.collectives.late_arrivals import Arrivals, compute_arrivals
from torchprof_tui.analysis.patterns import Finding, State
from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.checker import Checker, severity_sort_key
from torchprof_tui.analysis.patterns.engine.trace_tables import RankContext
from torchprof_tui.analysis.patterns.engine.verdict import Verdict
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace

_MAX_LISTED_RANKS = 4
"""Ranks that are named where a pattern fires on several; of more their number is told."""


def build_rank_checker(rank_arrivals: Arrivals, rank_index: int) -> Checker:
    """The checker of one of several ranks, which knows when the others came to its collectives."""
    return Checker(rank_arrivals.ranks.all[rank_index].trace, RankContext(rank_arrivals, rank_index))


class MultiRankChecker:
    """Answers the cheatsheet for all ranks of a trace. Events are numbered as in the whole."""

    def __init__(self, trace: Trace) -> None:
        assert trace.ranks is not None
        self.trace = trace
        self.ranks = trace.ranks.all
        met = compute_arrivals(trace.ranks)
        self._checkers = [build_rank_checker(met, place) for place in range(len(self.ranks))]

    @cached_property
    def default_scope(self) -> Scope:
        return scopes.whole_trace_scope(self.trace)

    def check(self, scope: Scope, ids: Iterable[str] | None = None) -> tuple[list[Finding], list[Verdict]]:
        """(findings, worst first, as the rank with most at stake says it; each rank's verdict)."""
        chosen = None if ids is None else list(ids)
        found = [checker.check(scope, chosen) for checker in self._checkers]
        verdicts = [checker.decide_verdict(scope, its) for checker, its in zip(self._checkers, found, strict=True)]
        by_id: dict[str, list[tuple[Rank, Finding]]] = {}
        for rank, its in zip(self.ranks, found, strict=True):
            for finding in its:
                by_id.setdefault(finding.id, []).append((rank, finding.with_event_offset(rank.first)))
        return sorted((merge_findings(each) for each in by_id.values()), key=severity_sort_key), verdicts


def merge_findings(said: Sequence[tuple[Rank, Finding]]) -> Finding:
    """One pattern on several ranks as one finding: fired where it fires on any, absent where it is so on all that can
    tell. What is at stake is the most of any rank, because they run at the same time; evidence is of all."""
    fired = [(rank, finding) for rank, finding in said if finding.has_fired]
    if not fired:
        absent = [finding for _, finding in said if finding.state is State.ABSENT]
        return absent[0] if absent else said[0][1]
    rank, worst = max(fired, key=lambda each: each[1].answer.at_stake)
    if worst.pattern.applies_to_all_ranks:
        where = ""
    elif len({finding.answer.seen for _, finding in fired}) == 1 and len(fired) == len(said):
        where = "" if len(fired) > 1 else f"{rank.label}: "
    else:
        where = f"{rank.label}{_format_other_ranks(rank, [each for each, _ in fired], len(said))}: "
    events = np.concatenate([finding.answer.events for _, finding in fired])
    return replace(worst, answer=replace(worst.answer, seen=where + worst.answer.seen, events=events))


def _format_other_ranks(rank: Rank, fired: Sequence[Rank], of: int) -> str:
    others = [each for each in fired if each is not rank]
    if not others:
        return ""
    if len(fired) == of:
        return " (so on all ranks)"
    if len(others) > _MAX_LISTED_RANKS:
        return f" (so on {len(others)} more)"
    return f" (so on {', '.join(str(each.number) for each in others)})"
