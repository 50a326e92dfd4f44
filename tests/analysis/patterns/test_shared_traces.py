"""Check the shared traces against their expectations, and public traces for consistency."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.expectation_checks import (
    TRACE_SUFFIX,
    ExpectationTests,
    RealTrace,
    assert_consistent,
    choose_scopes,
    ids_in_state,
)
from tests.helpers.expectations import SHARED
from tests.helpers.long_run import keep_some, scale_examples
from tests.helpers.paths import SHARED_TRACES, find_shared_trace, mark_long_traces
from tests.helpers.public_traces import PUBLIC_EXPECTATIONS
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.trace.loading.load_in_process import load_trace

TRACES = SHARED_TRACES
SMALL = 500_000
"""Bytes of a file that is checked in all kinds of scopes: a test must not take a minute."""

_NOT_TRACES = (".md", ".tsv", ".txt", ".key_averages.json", ".xz")
PUBLIC = sorted(
    path for path in (TRACES / "public").rglob("*") if path.is_file() and not path.name.endswith(_NOT_TRACES)
)


_LATER_RANKS = re.compile("fsdp_4ranks/rank[1-3]")  # 11 MB each, with the answers of rank 0


@pytest.fixture(
    scope="module",  # all tests of one trace run in a row
    params=keep_some(
        [pytest.param(name, marks=pytest.mark.long if _LATER_RANKS.match(name) else ()) for name in SHARED], 6
    ),
)
def real(request: pytest.FixtureRequest) -> RealTrace:
    path = find_shared_trace(f"{request.param}{TRACE_SUFFIX}")
    if not path.exists():
        pytest.skip("this trace is not here")
    return RealTrace(request.param, path, SHARED[request.param])


class TestShared(ExpectationTests):
    """The tests of each shared trace."""


def test_every_trace_has_its_expectation_and_every_expectation_all_patterns() -> None:
    expected = set.union(*(set(expectation.states) for expectation in SHARED.values()))
    assert expected <= set(PATTERNS)
    assert all(set(expectation.states) == expected for expectation in SHARED.values())
    if TRACES.exists():
        files = [*TRACES.glob(f"*{TRACE_SUFFIX}"), *TRACES.glob(f"*_4ranks/*{TRACE_SUFFIX}")]
        assert {str(path.relative_to(TRACES)).removesuffix(TRACE_SUFFIX) for path in files} == set(SHARED)


@pytest.mark.parametrize("path", keep_some(mark_long_traces(PUBLIC), 1))
def test_public_traces_are_checked_consistently(path: Path) -> None:
    """And with the expected answers, where there are any."""
    checker = Checker(load_trace(str(path), cache=False))
    for scope in choose_scopes(checker, path.name, min(scale_examples(0.2), 16 if path.stat().st_size < SMALL else 3)):
        assert_consistent(checker, scope)
    expected = PUBLIC_EXPECTATIONS.get(str(path.relative_to(TRACES / "public")))
    if expected:
        findings = checker.check()
        assert set(expected.fired.split()) <= ids_in_state(findings, State.FIRED)
        assert set(expected.cannot_tell.split()) <= ids_in_state(findings, State.CANNOT_TELL)
        assert not set(expected.not_fired.split()) & ids_in_state(findings, State.FIRED)


def test_public_expectations_are_of_existing_traces() -> None:
    if not PUBLIC:
        pytest.skip("the shared traces are not available")
    assert set(PUBLIC_EXPECTATIONS) <= {str(path.relative_to(TRACES / "public")) for path in PUBLIC}
