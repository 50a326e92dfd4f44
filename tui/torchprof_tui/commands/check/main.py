"""Check a trace for the patterns of the cheatsheet: `torchprof-tui check`."""

from __future__ import annotations

import argparse
import json
import sys
from difflib import get_close_matches
from typing import Any

from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker
from torchprof_tui.analysis.patterns.engine.multi_rank_check import MultiRankChecker
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Severity, State
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.commands.common.partial_input import partial_as_json
from torchprof_tui.commands.common.time_range import parse_time_range
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.model.trace import Trace

MAX_EVIDENCE = 50
"""Events listed as evidence of a pattern; `evidence_count` has the total."""

ANY_FIRED = "fired"


def run(options: argparse.Namespace) -> int:
    wanted = _parse_fail_on(options.fail_on)
    times = None if options.range is None else parse_time_range(options.range)

    loaded = load_specs(options.trace, cache=not options.no_cache)
    trace = loaded.trace

    scope = scopes.default_scope(trace) if times is None else scopes.range_scope(*times)
    findings, verdicts = _check_trace(trace, scope)
    if options.json:
        print(json.dumps(build_document(trace, scope, findings, verdicts)))
    else:
        ranks = [rank.number for rank in trace.merged_ranks.all] if trace.merged_ranks is not None else []
        from torchprof_tui.commands.check.text import print_findings  # deferred: JSON needs no rich

        print_findings(trace.label, scope, findings, verdicts, ranks)
    failed = any(matches_fail_on(found, wanted) for found in findings)
    if wanted and not failed:
        _report_undecidable(findings, wanted)
    return int(failed)


def _report_undecidable(findings: list[Finding], wanted: frozenset[str]) -> None:
    """Report on stderr which patterns of `--fail-on` are undecidable, and why."""
    told: dict[str, list[str]] = {}
    for found in findings:
        asked = found.id in wanted or (ANY_FIRED in wanted and found.pattern.severity is Severity.PROBLEM)
        if asked and found.state is State.CANNOT_TELL:
            told.setdefault(found.answer.reason, []).append(found.id)
    for reason, ids in told.items():
        print(f"torchprof-tui: --fail-on: cannot be told: {', '.join(ids)}: {clean(reason)}", file=sys.stderr)


def _check_trace(trace: Trace, scope: Scope) -> tuple[list[Finding], list[Verdict]]:
    """Check the scope; return the findings, worst first, and a verdict per rank."""
    if trace.merged_ranks is not None:
        return MultiRankChecker(trace).check(scope)

    checker = Checker(trace)
    findings = checker.check(scope)
    return findings, [checker.decide_verdict(scope, findings)]


def _parse_fail_on(fail_on: str | None) -> frozenset[str]:
    """Parse `--fail-on` into pattern ids, or {"fired"}. Raises UsageError for an unknown id."""
    wanted = frozenset(word.strip() for word in (fail_on or "").split(",") if word.strip())
    if fail_on is not None and not wanted:
        raise UsageError("--fail-on needs a pattern's name, or: fired")
    for word in sorted(wanted - {ANY_FIRED}):
        if word not in PATTERNS:
            near = get_close_matches(word, PATTERNS, 1)
            raise UsageError(f"--fail-on {word}: no such pattern" + (f" (did you mean {near[0]}?)" if near else ""))
    return wanted


def matches_fail_on(found: Finding, wanted: frozenset[str]) -> bool:
    """Return whether `--fail-on` names this finding and it fired."""
    return found.has_fired and (found.id in wanted or (ANY_FIRED in wanted and found.is_problem))


def build_document(trace: Trace, scope: Scope, findings: list[Finding], verdicts: list[Verdict]) -> dict[str, Any]:
    """Build the JSON of a check. With several ranks `verdict` is that of the first, and `ranks` has all."""
    document = {
        "scope": {"label": scope.label, "start_ns": scope.t0, "duration_ns": scope.length},
        "verdict": _verdict_as_json(verdicts[0]),
        "patterns": [_finding_as_json(trace, found) for found in findings],
        "partial": partial_as_json(trace),
    }
    if trace.merged_ranks is not None:
        document["ranks"] = [
            {"rank": rank.number, "verdict": _verdict_as_json(verdict)}
            for rank, verdict in zip(trace.merged_ranks.all, verdicts, strict=True)
        ]
    return document


def _verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    return {"regime": verdict.regime.value, "gpu_busy": verdict.busy, "first": verdict.first}


def _finding_as_json(trace: Trace, found: Finding) -> dict[str, Any]:
    pattern, said = found.pattern, found.answer
    return {
        "id": pattern.id,
        "section": pattern.section.value,
        "state": said.state.value,
        "weight": pattern.severity.value,
        "title": pattern.title,
        "seen": said.seen,
        "meaning": pattern.meaning,
        "action": found.remedy.action,
        "code": found.remedy.code,
        "reason": said.reason,
        "at_stake_us": said.at_stake / 1000,
        "share": round(found.share, 6),
        "decided": pattern.decided,
        "thresholds": [
            {"name": limit.name, "value": limit.value, "unit": limit.unit, "reason": limit.reason}
            for limit in pattern.thresholds
        ],
        "evidence_count": len(said.events),
        "evidence": [_event_as_json(trace, row) for row in said.events[:MAX_EVIDENCE].tolist()],
    }


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
