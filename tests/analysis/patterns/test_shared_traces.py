"""The shared traces: what each must say (expectations/), and other people's, where no answer may stumble."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.expectation_checks import (
    ENDING,
    HeldToItsReading,
    Real,
    holds_together,
    named,
    random_scopes,
    scopes_of,
)
from tests.helpers.expectations import SHARED
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.public_traces import OTHERS
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.trace.loading.load import load_trace

TRACES = SHARED_TRACES
SMALL = 500_000
"""Bytes of a file that is looked at in all kinds of scopes: a test must not take a minute."""

_NOT_TRACES = (".md", ".tsv", ".txt", ".key_averages.json", ".xz")
PUBLIC = sorted(
    path for path in (TRACES / "public").rglob("*") if path.is_file() and not path.name.endswith(_NOT_TRACES)
)


@pytest.fixture(scope="module", params=SHARED)  # of a module: all that is asked of one trace is asked in a row
def real(request: pytest.FixtureRequest) -> Real:
    path = TRACES / f"{request.param}{ENDING}"
    if not path.exists():
        pytest.skip("the shared traces are not here")
    return Real(request.param, path, SHARED[request.param])


class TestShared(HeldToItsReading):
    """Each trace of ours."""


def test_every_trace_has_its_expectation_and_every_expectation_all_patterns() -> None:
    assert all(set(one.states) == set(PATTERNS) for one in SHARED.values())
    if TRACES.exists():
        files = [*TRACES.glob(f"*{ENDING}"), *TRACES.glob(f"*_4ranks/*{ENDING}")]
        assert {str(path.relative_to(TRACES)).removesuffix(ENDING) for path in files} == set(SHARED)


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.name)
def test_no_pattern_stumbles_over_other_peoples_traces(path: Path) -> None:
    """Of some, what reading them says, too."""
    checker = Checker(load_trace(str(path), cache=False))
    small = path.stat().st_size < SMALL
    fixed = scopes_of(checker) if small else [checker.default_scope]
    for scope in [*fixed, *random_scopes(checker, path.name, 8 if small else 3)]:
        holds_together(checker, scope)
    says = OTHERS.get(str(path.relative_to(TRACES / "public")))
    if says:
        findings = checker.check()
        assert set(says.fired.split()) <= named(findings, State.FIRED)
        assert set(says.cannot_tell.split()) <= named(findings, State.CANNOT_TELL)
        assert not set(says.not_fired.split()) & named(findings, State.FIRED)


def test_other_peoples_traces_that_were_read_are_among_them() -> None:
    if not PUBLIC:
        pytest.skip("the shared traces are not here")
    assert set(OTHERS) <= {str(path.relative_to(TRACES / "public")) for path in PUBLIC}
