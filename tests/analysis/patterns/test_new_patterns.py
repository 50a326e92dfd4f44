"""Compare the patterns added later with what was read from the trace files first (`expectations/new_patterns.md`)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.helpers.expectation_checks import assert_consistent, choose_scopes
from tests.helpers.expectations import FOLDER
from tests.helpers.long_run import keep_some, scale_examples
from tests.helpers.merged_ranks import load_shared_ranks
from tests.helpers.paths import FIXTURES, SHARED_TRACES
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Severity, State
from torchprof_tui.analysis.patterns.verdict.rank_checks import MultiRankChecker
from torchprof_tui.trace.loading.load_in_process import load_trace

RECORDED = FIXTURES / "recorded_patterns"
_LINE = re.compile(r"\| (?P<id>[a-z-]+) \| (?P<trace>\S+) \| (?P<state>fired|absent|cannot tell) \|(?P<numbers>.*)\|")


class Expected(NamedTuple):
    """One line of the table."""

    id: str
    trace: str
    state: State
    numbers: tuple[str, ...]


def read_expectations() -> list[Expected]:
    """Read the lines of the table; raises ValueError for one that cannot be parsed."""
    lines = (FOLDER / "new_patterns.md").read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("| ") and not line.startswith("| pattern ")]
    expected = []
    for line in table:
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(line)
        numbers = tuple(part for part in match["numbers"].strip().split("; ") if part)
        expected.append(Expected(match["id"], match["trace"], State(match["state"].replace(" ", "_")), numbers))
    return expected


EXPECTED = read_expectations()


def find_trace(name: str) -> Path:
    """Return the path of a trace of the table; skips where it is missing."""
    folder, _, file = name.partition("/")
    path = {"recorded": RECORDED, "faults": FIXTURES / "faults"}.get(folder, SHARED_TRACES / folder) / file
    if not path.exists():
        pytest.skip("the shared traces are not available")
    return path


@cache
def build_checker(path: Path) -> Checker:
    return Checker(load_trace(str(path), cache=False))


def check_expected(expected: Expected) -> Finding:
    """Check one pattern on its trace, or on the ranks of a folder."""
    if expected.trace.endswith("_4ranks"):
        _, merged = load_shared_ranks(expected.trace.removesuffix("_4ranks"))
        checker = MultiRankChecker(merged)
        return checker.check(checker.default_scope, [expected.id])[0][0]
    return build_checker(find_trace(expected.trace)).check(ids=[expected.id])[0]


def _make_case(expected: Expected) -> Any:
    """Make a parameter of a line; those of whole runs, which other tests load, are left to the long run."""
    marks = pytest.mark.long if expected.trace.endswith("_4ranks") else ()
    return pytest.param(expected, id=f"{expected.id}-{Path(expected.trace).name}", marks=marks)


@pytest.mark.parametrize("expected", keep_some(map(_make_case, EXPECTED), 5))
def test_answers_equal_what_was_read_from_the_file(expected: Expected) -> None:
    answer = check_expected(expected).answer
    assert answer.state is expected.state, answer
    text = answer.seen or answer.reason
    assert [number for number in expected.numbers if number not in text] == [], text
    if answer.state is State.FIRED and PATTERNS[expected.id].severity is Severity.PROBLEM:
        assert answer.at_stake > 0


def test_each_pattern_fires_on_a_real_trace_and_is_absent_on_another() -> None:
    reached: dict[str, set[State]] = {}
    for expected in EXPECTED:
        reached.setdefault(expected.id, set()).add(expected.state)
    without = {name for name, states in reached.items() if not {State.FIRED, State.ABSENT} <= states}
    assert without == {"clock-variation", "fsdp-prefetch"}  # steady clocks; all-gathers that only wait


@pytest.mark.parametrize(
    "path", keep_some(sorted(RECORDED.glob("*.gz")), 4), ids=lambda path: path.name.partition(".")[0]
)
def test_recordings_are_checked_consistently(path: Path) -> None:
    checker = build_checker(path)
    for scope in choose_scopes(checker, path.name, min(scale_examples(0.2), 16)):
        assert_consistent(checker, scope)
