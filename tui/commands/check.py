"""`torchprof-tui check TRACE`: the cheatsheet without a screen, for people, scripts and CI."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from tui.commands import UsageError
from tui.commands.time_range import times_of
from tui.specs import check as check_spec
from tui.specs import resolve

if TYPE_CHECKING:
    from tui.analysis.patterns import Finding, Scope, Verdict
    from tui.trace.trace import Trace

EVIDENCE = 50
"""Events listed for a pattern; `evidence_count` has how many there are."""

ANY = "fired"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="a trace, sample:NAME, or - for stdin")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument(
        "--fail-on",
        metavar="PATTERN[,…]|fired",
        help="exit status 1 if one of these fired; `fired`: any that costs time (notices and artefacts do not count)",
    )
    parser.add_argument("--range", metavar="T0:T1", help="only this time: 12.5ms:30ms; a bare number is µs")
    parser.add_argument("--no-cache", action="store_true", help="neither use nor keep what was decoded")


def run(options: argparse.Namespace) -> int:
    wanted = _wanted(options.fail_on)
    times = None if options.range is None else times_of(options.range)
    path = resolve(options.trace)
    check_spec(path)
    from tui.analysis.patterns import Checker, scopes
    from tui.commands.progress_line import ProgressLine
    from tui.trace import cache
    from tui.trace.loader import load_place

    told = ProgressLine(sys.stderr)
    try:
        loaded = load_place(path, told, cache=not options.no_cache)
    finally:
        told.clear()
    checker = Checker(loaded.trace)
    scope = checker.whole if times is None else scopes.time_range(*times)
    findings = checker.check(scope)
    verdict = checker.verdict(scope, findings)
    if not loaded.cached:
        cache.prune()
    if options.json:
        print(json.dumps(answer(loaded.trace, scope, findings, verdict)))
    else:
        from tui.commands.check_table import show

        show(options.trace, scope, findings, verdict)
    return int(any(fails(found, wanted) for found in findings))


def _wanted(fail_on: str | None) -> frozenset[str]:
    """The ids asked for, or {"fired"}. Raises UsageError for one that is no pattern."""
    from tui.analysis.patterns import PATTERNS

    wanted = frozenset(word.strip() for word in (fail_on or "").split(",") if word.strip())
    if fail_on is not None and not wanted:
        raise UsageError("--fail-on needs a pattern's name, or: fired")
    for word in sorted(wanted - {ANY}):
        if word not in PATTERNS:
            from difflib import get_close_matches

            near = get_close_matches(word, PATTERNS, 1)
            raise UsageError(f"--fail-on {word}: no such pattern" + (f" (did you mean {near[0]}?)" if near else ""))
    return wanted


def fails(found: Finding, wanted: frozenset[str]) -> bool:
    """Whether this finding is one that `--fail-on` asked for."""
    return found.fired and (found.id in wanted or (ANY in wanted and found.is_problem))


def answer(trace: Trace, scope: Scope, findings: list[Finding], verdict: Verdict) -> dict[str, Any]:
    """What `check --json` prints."""
    return {
        "scope": {"label": scope.label, "start_ns": scope.t0, "duration_ns": scope.length},
        "verdict": {"regime": verdict.regime.value, "gpu_busy": verdict.busy, "first": verdict.first},
        "patterns": [_entry(trace, found) for found in findings],
    }


def _entry(trace: Trace, found: Finding) -> dict[str, Any]:
    pattern, said = found.pattern, found.answer
    return {
        "id": pattern.id,
        "section": pattern.section.value,
        "state": said.state.value,
        "weight": pattern.weight.value,
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
        "evidence": [_event(trace, row) for row in said.events[:EVIDENCE].tolist()],
    }


def _event(trace: Trace, row: int) -> dict[str, Any]:
    event = trace.event(row)
    return {
        "name": event.name,
        "start_ns": event.start,
        "duration_ns": event.duration,
        "lane": event.lane.label,
        "event": row,
    }
