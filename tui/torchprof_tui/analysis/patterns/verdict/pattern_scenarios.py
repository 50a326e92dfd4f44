"""Turn `pattern=ID` into the scenario of the pattern's remedy."""

from __future__ import annotations

from collections.abc import Sequence

from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.analysis.patterns.verdict.wins import find_remedy
from torchprof_tui.analysis.what_if.scenario import Scenario, ScenarioError, ScenarioKind
from torchprof_tui.trace.model.trace import Trace


def expand_patterns(trace: Trace, scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Replace `pattern=ID` by the scenario of its remedy. Raises ScenarioError where it was not found."""
    if not any(scenario.kind is ScenarioKind.PATTERN for scenario in scenarios):
        return list(scenarios)
    found = {finding.id: finding for finding in check_trace(trace, default_scope(trace), with_wins=False).findings}
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
