"""What mending a pattern would win: its remedy as a scenario of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.analysis.what_if.scenario import Scenario, ScenarioError, ScenarioKind, parse_scenario
from torchprof_tui.trace.model.trace import Trace

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
