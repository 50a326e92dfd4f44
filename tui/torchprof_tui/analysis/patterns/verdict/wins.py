"""What mending a pattern would win: its remedy as a scenario of a step."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.verdict.check_report import CheckReport, check_trace
from torchprof_tui.analysis.what_if.forecast import Forecaster
from torchprof_tui.analysis.what_if.rank_join import build_step_model
from torchprof_tui.analysis.what_if.scenario import Scenario, ScenarioError, ScenarioKind, parse_scenario
from torchprof_tui.trace.model.trace import Trace

MAX_EVENTS = 200_000
"""Largest trace of which a check predicts what fixes win."""

_REMEDIES = {
    "overhead-bound": "launch=graph",
    "tiny-kernels": "launch=graph",
    "decode-without-graphs": "launch=graph",
    "eager-fallback": "launch=graph",
    "host-code": "launch=graph",
    "op-loop": "launch=graph",
    "memory-bound-elementwise": "compile",
    "sync-in-step": "sync=0",
    "token-sync": "sync=0",
    "trailing-sync": "sync=0",
    "input-starved": "dataloader=0",
    "optimizer-loop": "optimizer=fused",
    "exposed-comm": "collectives=overlapped",
    "straggler": "late-rank=0",
}
"""id -> the scenario that its remedy comes to."""

_GONE_EVENTS = frozenset(
    (
        "hidden-copy",
        "pageable-copy",
        "copy-before-gemm",
        "layout-conversion",
        "autocast-casts",
        "gqa-expand-copy",
        "kv-cache-cat",
        "graph-input-copies",
        "buffer-request",
        "alloc-in-step",
    )
)
"""Patterns whose evidence would be gone."""


def find_remedy(finding: Finding) -> Scenario | None:
    """Find the scenario that mends a finding; None where none describes it."""
    remedy = _REMEDIES.get(finding.id)
    text = f"pattern={finding.id}"
    if remedy is not None:
        return replace(parse_scenario(remedy), text=text)
    if finding.id in _GONE_EVENTS and len(finding.answer.events):
        return Scenario(text, ScenarioKind.EVENT, factor=0.0, rows=tuple(finding.answer.events.tolist()))
    return None


def estimate_win(trace: Trace, finding: Finding) -> float | None:
    """Estimate the share of a step that mending a finding wins, 0..1; None where it cannot be predicted."""
    return _estimate_all(trace, [finding]).get(finding.id)


def estimate_wins(report: CheckReport) -> dict[str, float]:
    """Estimate what mending each significant problem of a report wins, as a share of a step, 0..1, by id.

    Of whole traces of up to MAX_EVENTS events: a prediction is one replay, but its graph takes time to build.
    """
    if not report.scope.is_whole_trace or len(report.trace) > MAX_EVENTS:
        return {}
    return _estimate_all(report.trace, report.problems)


def _estimate_all(trace: Trace, findings: Sequence[Finding]) -> dict[str, float]:
    remedies = {finding.id: find_remedy(finding) for finding in findings}
    scenarios = {name: remedy for name, remedy in remedies.items() if remedy is not None}
    wins: dict[str, float] = {}
    if not scenarios:
        return wins
    try:
        forecaster = Forecaster(build_step_model(trace))
    except WindowError:
        return wins
    for name, scenario in scenarios.items():
        with contextlib.suppress(ScenarioError):  # not in the step that is replayed
            forecast = forecaster.predict([scenario])
            if forecast.is_trusted and forecast.before:
                wins[name] = max(1 - forecast.after / forecast.before, 0.0)
    return wins


def expand_patterns(trace: Trace, scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Replace `pattern=ID` by the scenario of its remedy. Raises ScenarioError where it was not found."""
    if not any(scenario.kind is ScenarioKind.PATTERN for scenario in scenarios):
        return list(scenarios)
    found = {finding.id: finding for finding in check_trace(trace, default_scope(trace)).findings}
    return [_expand(scenario, found) for scenario in scenarios]


def _expand(scenario: Scenario, found: dict[str, Finding]) -> Scenario:
    if scenario.kind is not ScenarioKind.PATTERN:
        return scenario
    name = scenario.subject
    if name not in PATTERNS:
        raise ScenarioError(f"{scenario.text!r}: no pattern {name!r}; `check --list` names them")
    if name not in found or not found[name].has_fired:
        raise ScenarioError(f"{scenario.text!r}: `check` did not find it in this trace")
    remedy = find_remedy(found[name])
    if remedy is None:
        raise ScenarioError(f"{scenario.text!r}: no scenario describes its remedy; change kernels or ops yourself")
    return remedy
