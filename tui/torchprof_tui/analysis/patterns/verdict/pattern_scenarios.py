"""Turn `pattern=ID` into the scenario of the pattern's remedy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.analysis.patterns.verdict.wins import find_remedy
from torchprof_tui.analysis.what_if.scenario import Scenario, ScenarioError, ScenarioKind
from torchprof_tui.trace.model.trace import Trace


class RemedyFinder:
    """Finds the scenarios of a trace's patterns. The trace is checked once, when the first pattern is asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def expand(self, scenarios: Sequence[Scenario]) -> list[Scenario]:
        """Replace `pattern=ID` by the scenario of its remedy. Raises ScenarioError where it was not found."""
        return [
            self._find_remedy(scenario) if scenario.kind is ScenarioKind.PATTERN else scenario for scenario in scenarios
        ]

    @cached_property
    def _findings(self) -> dict[str, Finding]:
        report = check_trace(self._trace, default_scope(self._trace), with_wins=False)
        return {finding.id: finding for finding in report.findings}

    def _find_remedy(self, scenario: Scenario) -> Scenario:
        name = scenario.subject
        if name not in PATTERNS:
            raise ScenarioError(f"{scenario.text!r}: no pattern {name!r}; `check --list` names them")
        finding = self._findings.get(name)
        if finding is None or not finding.has_fired:
            raise ScenarioError(f"{scenario.text!r}: `check` did not find it in this trace")
        remedy = find_remedy(finding)
        if remedy is None:
            raise ScenarioError(f"{scenario.text!r}: no scenario describes its remedy; change kernels or ops yourself")
        return remedy
