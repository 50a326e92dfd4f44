"""Check a trace for the patterns of the cheatsheet: `torchprof-tui check`."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from itertools import groupby

from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Severity, State
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.answers.check import build_check, build_pattern_list
from torchprof_tui.commands.check import CheckOptions
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, use_captures
from torchprof_tui.commands.common.options import choose_undecided_status, parse_time_range
from torchprof_tui.commands.common.output import import_text, print_answer
from torchprof_tui.program.terminal_progress import show_work
from torchprof_tui.trace.core.printable import clean

ANY_FIRED = "fired"


def run(options: CheckOptions) -> int:
    wanted = _parse_fail_on(options.fail_on)
    times = None if options.range is None else parse_time_range(options.range)
    if options.list:
        print_patterns(options.json)
        return 0

    trace = use_captures(
        load_specs(options.trace, cache=not options.no_cache).trace, options.capture, not options.no_cache
    )
    scope = scopes.default_scope(trace) if times is None else scopes.range_scope(*times)
    with show_work("checking the trace"):
        report = check_trace(trace, scope)
    if options.json:
        fired = [found.id for found in report.findings if matches_fail_on(found, wanted)]
        undecided = [found.id for found in _find_undecidable(report.findings, wanted)]
        print_answer(build_check(report, fired if wanted else None, undecided))
    elif options.markdown:
        print(import_text("check", "markdown").format_report(report, options.trace, options.range))
    else:
        import_text("check").print_report(report, options.problems, options.notes)
    failed = any(matches_fail_on(found, wanted) for found in report.findings)
    if failed or not wanted:
        return int(failed)
    told: dict[str, list[str]] = {}
    for found in _find_undecidable(report.findings, wanted):
        told.setdefault(found.answer.reason, []).append(found.id)
    for reason, ids in told.items():
        print(f"torchprof-tui: --fail-on: undetermined: {', '.join(ids)}: {clean(reason)}", file=sys.stderr)
    return choose_undecided_status(options.undecided) if _is_undecided(report.findings, wanted) else 0


def _find_undecidable(findings: list[Finding], wanted: frozenset[str]) -> list[Finding]:
    any_problem = ANY_FIRED in wanted
    return [
        found
        for found in findings
        if found.state is State.CANNOT_TELL
        and (found.id in wanted or (any_problem and found.pattern.severity is Severity.PROBLEM))
    ]


def _is_undecided(findings: list[Finding], wanted: frozenset[str]) -> bool:
    """Return whether a pattern that `--fail-on` names cannot be checked, or with `fired` all that cost time cannot.

    Some patterns need what most recordings do not have, such as several ranks: `fired` is about the others.
    """
    states = {found.id: found.state for found in findings}
    problems = {found.state for found in findings if found.pattern.severity is Severity.PROBLEM}
    is_named = any(states.get(word) is State.CANNOT_TELL for word in wanted)
    return is_named or (ANY_FIRED in wanted and problems == {State.CANNOT_TELL})


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
    return found.has_fired and (found.id in wanted or (ANY_FIRED in wanted and found.is_problem))


def print_patterns(as_json: bool) -> None:
    """Print every pattern with its title by section, or as JSON with how it is decided."""
    if as_json:
        print_answer(build_pattern_list(PATTERNS.values()))
        return
    cells = max(map(len, PATTERNS))
    for section, patterns in groupby(PATTERNS.values(), key=lambda pattern: pattern.section):
        print(section.value)
        for pattern in patterns:
            print(f"  {pattern.id:<{cells}}  {pattern.severity.value:<8}  {pattern.title}")
