"""Build the JSON document of a check."""

from __future__ import annotations

from typing import Any

from torchprof_tui.analysis.patterns.engine.code_location import find_code_location
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Pattern
from torchprof_tui.analysis.patterns.verdict.own_time import GENERAL_PATTERN_IDS, NO_TIME
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.commands.check.gaps import gap_as_json
from torchprof_tui.commands.check.report import CheckReport
from torchprof_tui.commands.common.partial_input import partial_as_json
from torchprof_tui.commands.common.time_tree import time_tree_as_json
from torchprof_tui.trace.model.trace import Trace

SCHEMA = "torchprof-tui/check/1"

SUMMARY = "summary"
"""Stands for the causes of a pattern that sums up what others explain: no time is its own."""

MAX_EVIDENCE = 50
"""Events listed as evidence of a pattern; `evidence_count` has the total."""


def build_document(report: CheckReport) -> dict[str, Any]:
    """Build the JSON of a check. With several ranks `verdict` is that of the first, and `ranks` has all."""
    trace, scope = report.trace, report.scope
    document = {
        "schema": SCHEMA,
        "scope": {"label": scope.label, "start_ns": scope.t0, "duration_ns": scope.length},
        "verdict": _verdict_as_json(report.verdicts[0]),
        "patterns": [_finding_as_json(report, found) for found in report.findings],
        "gaps": [gap_as_json(gap) for gap in report.gaps],
        "partial": partial_as_json(trace),
    }
    if trace.merged_ranks is not None:
        document["ranks"] = [
            {"rank": rank.number, "verdict": _verdict_as_json(verdict)}
            for rank, verdict in zip(trace.merged_ranks.all, report.verdicts, strict=True)
        ]
    return document


def _verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "regime": verdict.regime.value,
        "gpu_busy": verdict.busy,
        "first": verdict.first,
        "cause": verdict.cause or None,
        "what": verdict.what,
        "action": verdict.remedy,
        "why": verdict.why,
        "line": find_code_location(verdict),
        "causes": time_tree_as_json(verdict.tree),
        "representative": verdict.recording_fault or True,
    }


def _finding_as_json(report: CheckReport, found: Finding) -> dict[str, Any]:
    pattern, said = found.pattern, found.answer
    return {
        "id": pattern.id,
        "section": pattern.section.value,
        "state": said.state.value,
        "weight": pattern.severity.value,
        "significant": found.is_significant,
        "title": pattern.title,
        "seen": said.seen,
        "meaning": pattern.meaning,
        "action": found.remedy.action,
        "code": found.remedy.code,
        "line": find_code_location(found),
        "reason": said.reason,
        "at_stake_us": said.at_stake / 1000,
        "share": round(found.share, 6),
        **(_own_time_as_json(report, found) if found.has_fired else {}),
        "decided": pattern.decided,
        "thresholds": thresholds_as_json(pattern),
        "evidence_count": len(said.events),
        "evidence": [_event_as_json(report.trace, row) for row in said.events[:MAX_EVIDENCE].tolist()],
    }


def _own_time_as_json(report: CheckReport, found: Finding) -> dict[str, Any]:
    """Build the time that a pattern alone explains; null where the time is not divided by pattern."""
    tree = report.divided_tree
    if tree is None:
        return {"own_us": None, "own_share": None, "within": []}
    own, unit = report.own_times.get(found.id, NO_TIME), 1000 * tree.device_count
    within = [{"cause": part.id, "us": part.time / unit} for part in own.within]
    return {
        "own_us": own.time / unit,
        "own_share": round(own.share, 6),
        "within": SUMMARY if found.id in GENERAL_PATTERN_IDS else within,
    }


def thresholds_as_json(pattern: Pattern) -> list[dict[str, Any]]:
    return [
        {"name": limit.name, "value": limit.value, "unit": limit.unit, "reason": limit.reason}
        for limit in pattern.thresholds
    ]


def _event_as_json(trace: Trace, row: int) -> dict[str, Any]:
    event = trace.event(row)
    whose = "" if event.lane.rank is None else f"rank {event.lane.rank} "
    return {
        "name": event.name,
        "start_ns": event.start,
        "duration_ns": event.duration,
        "lane": whose + event.lane.label,
        "event": row,
    }
