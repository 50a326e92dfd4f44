"""Test the pattern of a profiler that slows what it measures."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import GPU_ONLY, check_pattern, healthy, waiting
from tests.helpers.trace_builder import Entry, python, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import profiler_cost


def frames(count: int) -> list[Entry]:
    """Python frames in a row, 4 µs apart."""
    return [python(f"model.py({number}): forward", 4 * number + 0.5, 3) for number in range(count)]


CASES: Cases = {
    "profiler-inflation": {FIRED: [*waiting(), *frames(800)], ABSENT: waiting(), CANNOT_TELL: GPU_ONLY},
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(profiler_cost, CASES)


def test_the_estimate_is_the_number_of_frames_times_the_cost_of_one() -> None:
    finding = check_pattern(trace(*waiting(), *frames(800)), "profiler-inflation")
    assert "800 Python frames" in finding.answer.seen
    assert "1.60 ms" in finding.answer.seen
    assert finding.answer.at_stake == 0  # nothing to win in the program


@pytest.mark.parametrize(
    "entries",
    [[*waiting(), *frames(50)], [*healthy(), *frames(800)]],
    ids=["few frames", "the GPU is the limit"],
)
def test_frames_that_cost_nothing_are_no_inflation(entries: list[Entry]) -> None:
    assert check_pattern(trace(*entries), "profiler-inflation").state is ABSENT
