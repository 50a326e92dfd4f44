"""Name the rank that the others wait for: where it is late, and why, as far as the other ranks or its verdict tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torchprof_tui.analysis.collectives.communication_waiting import Arrivals
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Remedy
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.rules.multi_gpu import find_late_rank, find_latest_collective
from torchprof_tui.analysis.patterns.verdict.tree_model import EXPOSED
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.trace.core.time_format import format_duration


@dataclass(frozen=True, slots=True)
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
    cause = _name_cause(arrivals, late, findings)
    event = find_latest_collective(view, late) if stall is None else stall.event
    return LateRank(late, rank.label, event + rank.first, cause)


def _name_cause(arrivals: Arrivals, late: int, findings: Sequence[Finding]) -> str:
    """Name why a rank is late as far as a comparison of the ranks tells: a slow host, or a pause."""
    is_host_slow = any(each.id == "slow-host" and each.has_fired for each in findings)
    if is_host_slow and arrivals.host_speed.slowest == late:
        return "its host is slow (see slow-host)"
    for stall in arrivals.host_stalls:
        if stall.rank_index == late:
            return f"it pauses {format_duration(stall.excess)} before {stall.operator} in each step"
    return ""


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
