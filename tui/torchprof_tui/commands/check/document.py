"""Build the JSON documents of `check --json` and `check --list --json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.code_location import find_code_location
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Pattern, State
from torchprof_tui.analysis.patterns.verdict.own_time import NO_TIME
from torchprof_tui.analysis.patterns.verdict.tree_model import GENERAL_PATTERN_IDS
from torchprof_tui.analysis.patterns.verdict.verdict import Regime, Verdict
from torchprof_tui.commands.check.gaps import build_gap
from torchprof_tui.commands.check.records import (
    SUMMARY,
    CheckDocument,
    EventRecord,
    FindingRecord,
    OwnCauseRecord,
    PatternListDocument,
    PatternRecord,
    RankVerdictRecord,
    ScopeRecord,
    ThresholdRecord,
    VerdictRecord,
)
from torchprof_tui.commands.check.report import CheckReport
from torchprof_tui.commands.common.partial_input import build_partial
from torchprof_tui.commands.common.serving_document import list_serving
from torchprof_tui.commands.common.time_tree import build_time_records
from torchprof_tui.trace.model.trace import Trace

MAX_EVIDENCE = 50
"""Events listed as evidence of a pattern; `evidence_count` has the total."""

OwnTimeFields = tuple[float | None, float | None, list[OwnCauseRecord] | Literal["summary"]]


def build_document(
    report: CheckReport, failed_on: Sequence[str] | None = None, undetermined: Sequence[str] = ()
) -> CheckDocument:
    """Build the document of a check. With several ranks `verdict` is that of the first, and `ranks` has all.

    `failed_on`, `undetermined`: ids of the patterns of `--fail-on` that fired or cannot be checked; None without it.
    """
    trace, scope = report.trace, report.scope
    return CheckDocument(
        scope=ScopeRecord(label=scope.label, start_ns=scope.t0, duration_ns=scope.length),
        verdict=_build_verdict(report.verdicts[0]),
        patterns=[_build_finding(report, found) for found in report.findings],
        not_predicted=report.wins.problem or None,
        gaps=[build_gap(gap) for gap in report.gaps],
        serving=list_serving(trace, report.serving_range),
        partial=build_partial(trace),
        ranks=UNSET
        if trace.merged_ranks is None
        else [
            RankVerdictRecord(rank=rank.number, verdict=_build_verdict(verdict))
            for rank, verdict in zip(trace.merged_ranks.all, report.verdicts, strict=True)
        ],
        failed_on=UNSET if failed_on is None else list(failed_on),
        undetermined=UNSET if failed_on is None else list(undetermined),
    )


def build_pattern_list() -> PatternListDocument:
    """Build the document of all patterns, by section."""
    return PatternListDocument(
        patterns=[
            PatternRecord(
                id=pattern.id,
                section=pattern.section,
                weight=pattern.severity,
                title=pattern.title,
                meaning=pattern.meaning,
                action=pattern.action,
                code=pattern.code,
                decided=pattern.decided,
                thresholds=_build_thresholds(pattern),
            )
            for pattern in PATTERNS.values()
        ]
    )


def _build_verdict(verdict: Verdict) -> VerdictRecord:
    return VerdictRecord(
        regime=verdict.regime,
        cannot_tell=verdict.first if verdict.regime is Regime.UNKNOWN else UNSET,
        gpu_busy=verdict.busy,
        first=verdict.first,
        cause=verdict.cause or None,
        what=verdict.what,
        action=verdict.remedy,
        why=verdict.why,
        line=find_code_location(verdict),
        causes=build_time_records(verdict.tree),
        representative=verdict.recording_fault or True,
    )


def _build_finding(report: CheckReport, found: Finding) -> FindingRecord:
    pattern, said = found.pattern, found.answer
    own: tuple[UnsetType, UnsetType, UnsetType] | OwnTimeFields = (UNSET, UNSET, UNSET)
    if found.has_fired:
        own = _measure_own_time(report, found)
    return FindingRecord(
        id=pattern.id,
        section=pattern.section,
        state=said.state,
        weight=pattern.severity,
        significant=found.is_significant,
        title=pattern.title,
        seen=said.seen,
        meaning=pattern.meaning,
        action=found.remedy.action,
        code=found.remedy.code,
        line=find_code_location(found),
        reason=said.reason,
        cannot_tell=said.reason if said.state is State.CANNOT_TELL else UNSET,
        at_stake_us=said.at_stake / 1000,
        share=round(found.share, 6),
        won_share=UNSET if found.won is None else round(found.won, 6),
        own_us=own[0],
        own_share=own[1],
        within=own[2],
        decided=pattern.decided,
        thresholds=_build_thresholds(pattern),
        evidence_count=len(said.events),
        evidence=[_build_event(report.trace, row) for row in said.events[:MAX_EVIDENCE].tolist()],
    )


def _measure_own_time(report: CheckReport, found: Finding) -> OwnTimeFields:
    """Measure the time that a pattern alone explains: (µs, share, parts); None where time is not divided by pattern."""
    tree = report.divided_tree
    if tree is None:
        return None, None, []
    own, unit = report.own_times.get(found.id, NO_TIME), 1000 * tree.device_count
    within = [OwnCauseRecord(cause=part.id, us=part.time / unit) for part in own.within]
    return own.time / unit, round(own.share, 6), SUMMARY if found.id in GENERAL_PATTERN_IDS else within


def _build_thresholds(pattern: Pattern) -> list[ThresholdRecord]:
    return [
        ThresholdRecord(name=limit.name, value=limit.value, unit=limit.unit, reason=limit.reason)
        for limit in pattern.thresholds
    ]


def _build_event(trace: Trace, row: int) -> EventRecord:
    event = trace.event(row)
    whose = "" if event.lane.rank is None else f"rank {event.lane.rank} "
    return EventRecord(
        name=event.name,
        start_ns=event.start,
        duration_ns=event.duration,
        lane=whose + event.lane.label,
        event=row,
    )
