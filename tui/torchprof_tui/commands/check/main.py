"""`torchprof-tui check TRACE`: the cheatsheet without a screen, for people, scripts and CI."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from torchprof_tui.commands import UsageError
from torchprof_tui.commands.common.load import add_trace_arguments, load_specs
from torchprof_tui.commands.common.partial_input import partial_as_json
from torchprof_tui.commands.common.time_range import parse_time_range

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.check_scope import Scope
    from torchprof_tui.analysis.patterns.engine.pattern import Finding
    from torchprof_tui.analysis.patterns.engine.verdict import Verdict
    from torchprof_tui.trace.model.trace import Trace

MAX_EVIDENCE = 50
"""Events listed for a pattern; `evidence_count` has how many there are."""

ANY_FIRED = "fired"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_trace_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument(
        "--fail-on",
        metavar="PATTERN[,…]|fired",
        help="exit status 1 if one of these fired; `fired`: any that costs time (notices and artefacts do not count)",
    )
    parser.add_argument("--range", metavar="T0:T1", help="only this time: 12.5ms:30ms; a bare number is µs")


def run(options: argparse.Namespace) -> int:
    wanted = _parse_fail_on(options.fail_on)
    times = None if options.range is None else parse_time_range(options.range)

    loaded = load_specs(options.trace, cache=not options.no_cache)
    trace = loaded.trace
    from torchprof_tui.analysis.patterns.engine import check_scope as scopes

    scope = scopes.default_scope(trace) if times is None else scopes.range_scope(*times)
    findings, verdicts = _check_trace(trace, scope)
    if options.json:
        print(json.dumps(build_document(trace, scope, findings, verdicts)))
    else:
        from torchprof_tui.commands.check.text import print_findings

        ranks = [rank.number for rank in trace.ranks.all] if trace.ranks is not None else []
        print_findings(trace.label, scope, findings, verdicts, ranks)
    failed = any(matches_fail_on(found, wanted) for found in findings)
    if wanted and not failed:
        _report_undecidable(findings, wanted)
    return int(failed)


def _report_undecidable(findings: list[Finding], wanted: frozenset[str]) -> None:
    """On stderr, why what `--fail-on` asked for did not fire, where that is because nobody can tell."""
    from torchprof_tui.analysis.patterns.engine.pattern import Severity, State
    from torchprof_tui.ui.common.name_display import clean

    told: dict[str, list[str]] = {}
    for found in findings:
        asked = found.id in wanted or (ANY_FIRED in wanted and found.pattern.severity is Severity.PROBLEM)
        if asked and found.state is State.CANNOT_TELL:
            told.setdefault(found.answer.reason, []).append(found.id)
    for reason, ids in told.items():
        print(f"torchprof-tui: --fail-on: cannot be told: {', '.join(ids)}: {clean(reason)}", file=sys.stderr)


def _check_trace(trace: Trace, scope: Scope) -> tuple[list[Finding], list[Verdict]]:
    """Findings, worst first, and the verdict: of several ranks those of all, and each one's verdict."""
    if trace.ranks is not None:
        from torchprof_tui.analysis.patterns.engine.multi_rank_check import MultiRankChecker

        return MultiRankChecker(trace).check(scope)
    from torchprof_tui.analysis.patterns.engine.checker import Checker

    checker = Checker(trace)
    findings = checker.check(scope)
    return findings, [checker.decide_verdict(scope, findings)]


def _parse_fail_on(fail_on: str | None) -> frozenset[str]:
    """The ids asked for, or {"fired"}. Raises UsageError for one that is no pattern."""
    from torchprof_tui.analysis.patterns.engine.checker import PATTERNS

    wanted = frozenset(word.strip() for word in (fail_on or "").split(",") if word.strip())
    if fail_on is not None and not wanted:
        raise UsageError("--fail-on needs a pattern's name, or: fired")
    for word in sorted(wanted - {ANY_FIRED}):
        if word not in PATTERNS:
            from difflib import get_close_matches

            near = get_close_matches(word, PATTERNS, 1)
            raise UsageError(f"--fail-on {word}: no such pattern" + (f" (did you mean {near[0]}?)" if near else ""))
    return wanted


def matches_fail_on(found: Finding, wanted: frozenset[str]) -> bool:
    """Whether this finding is one that `--fail-on` asked for."""
    return found.has_fired and (found.id in wanted or (ANY_FIRED in wanted and found.is_problem))


def build_document(trace: Trace, scope: Scope, findings: list[Finding], verdicts: list[Verdict]) -> dict[str, Any]:
    """What `check --json` prints. Of several ranks `verdict` is the first one's, and `ranks` has all."""
    document = {
        "scope": {"label": scope.label, "start_ns": scope.t0, "duration_ns": scope.length},
        "verdict": _verdict_as_json(verdicts[0]),
        "patterns": [_finding_as_json(trace, found) for found in findings],
        "partial": partial_as_json(trace),
    }
    if trace.ranks is not None:
        document["ranks"] = [
            {"rank": rank.number, "verdict": _verdict_as_json(verdict)}
            for rank, verdict in zip(trace.ranks.all, verdicts, strict=True)
        ]
    return document


def _verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    return {"regime": verdict.regime.value, "gpu_busy": verdict.busy, "first": verdict.advice}


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
        "action": pattern.action,
        "code": pattern.code,
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
