"""Test the pattern of a profiler that slows what it measures."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case
from tests.helpers.pattern_traces import GPU_ONLY, check_pattern, healthy, waiting
from tests.helpers.trace_builder import Entry, python, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import State


def frames(count: int) -> list[Entry]:
    """Python frames in a row, 4 µs apart."""
    return [python(f"model.py({number}): forward", 4 * number + 0.5, 3) for number in range(count)]


CASES: Cases = {
    "profiler-inflation": {FIRED: [*waiting(), *frames(800)], ABSENT: waiting(), CANNOT_TELL: GPU_ONLY},
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


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


def test_frames_cost_at_most_what_the_gpu_waits_for_the_cpu() -> None:
    dense = [python(f"model.py({number}): forward", number + 0.2, 0.6) for number in range(3900)]
    finding = check_pattern(trace(*waiting(), *dense), "profiler-inflation")
    assert finding.answer.seen.startswith(
        "3,900 Python frames of 2 to 4 µs each cost up to 2.95 ms"
    )  # 7.80 ms by number
    assert finding.answer.seen.endswith(": 74 % of the time")  # the GPU computes, or is held up, in the others


def test_a_gpu_that_is_busy_most_of_the_time_hides_the_stacks() -> None:
    entries = waiting(kernel_us=80)
    checker = Checker(trace(*entries, *frames(800)))
    verdict = checker.decide_verdict(findings=checker.check())
    assert verdict.busy is not None
    assert 0.7 <= verdict.busy < 0.85
    assert "Python stacks" not in verdict.first
    assert verdict.pattern == "memory-bound-elementwise"
