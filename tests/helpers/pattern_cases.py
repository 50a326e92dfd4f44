"""Run a pattern on its case traces: one for each answer that it can give."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from tests.helpers.pattern_traces import check_pattern
from tests.helpers.trace_builder import Entry, trace
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import State

FIRED, ABSENT, CANNOT_TELL = State.FIRED, State.ABSENT, State.CANNOT_TELL

Cases = dict[str, dict[State, list[Entry]]]
"""Pattern id -> expected answer -> entries of a trace that must get it."""


def case_params(cases: Cases) -> list[tuple[str, State]]:
    """Parameters (pattern id, expected answer) of all cases."""
    return [(name, state) for name, states in cases.items() for state in states]


def check_case(cases: Cases, name: str, state: State) -> None:
    """Assert that a case gets its answer, with the fields that the answer needs."""
    finding = check_pattern(trace(*cases[name][state]), name)
    assert finding.state is state, finding.answer
    if state is FIRED:
        assert finding.answer.seen
        assert len(finding.answer.events)
    if state is CANNOT_TELL:
        assert finding.answer.reason


def find_missing_answers(
    rules: ModuleType, cases: Cases, other_cases: Mapping[str, set[State]] | None = None
) -> dict[str, set[State]]:
    """Patterns of a rule module -> answers that no case expects; also ids of cases that are not in the module.

    `other_cases`: pattern id -> answers that are tested outside `cases`.
    """
    reached = {name: set(states) for name, states in cases.items()} | dict(other_cases or {})
    registered = {pattern.id for pattern in PATTERNS.values() if pattern.check.__module__ == rules.__name__}
    missing = {name: set(State) - reached.get(name, set()) for name in registered}
    unknown: dict[str, set[State]] = {name: set() for name in reached.keys() - registered}
    return {name: states for name, states in missing.items() if states} | unknown
