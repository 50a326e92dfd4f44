"""Test the pattern of plain Python in each step: literal programs that pause at one place, or for a thread's turn."""

from __future__ import annotations

import pytest

from tests.analysis.patterns.rules.test_host_pauses import steps_with_pauses
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import GPU_ONLY, check_pattern
from tests.helpers.trace_builder import trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import python_in_step

CASES: Cases = {
    "python-in-step": {
        FIRED: steps_with_pauses((5, 2000), (5, 3000), (5, 2000)),
        ABSENT: steps_with_pauses((5, 2000), (3, 0), (7, 2000)),
        CANNOT_TELL: GPU_ONLY,
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(python_in_step, CASES)


def test_pauses_cost_what_the_gpu_waits() -> None:
    finding = check_pattern(trace(*CASES["python-in-step"][FIRED]), "python-in-step")
    assert finding.answer.seen == "7.02 ms in all, 3 times (1 a step), the longest after aten::add"
    assert finding.answer.at_stake == 7_015_000  # each op ends 5 µs before the next would begin
    assert "less often" in finding.remedy.action


def test_what_comes_before_the_first_op_of_a_step_is_input() -> None:
    entries = steps_with_pauses((0, 9000), (0, 9000), (0, 9000))
    assert check_pattern(trace(*entries), "python-in-step").state is ABSENT


def test_pauses_of_one_turn_at_several_places_are_another_thread() -> None:
    entries = steps_with_pauses((2, 5100), (4, 5200), (7, 5050), (5, 0))
    finding = check_pattern(trace(*entries), "python-in-step")
    assert "interpreter lock (GIL)" in finding.remedy.action
    assert finding.answer.seen.startswith("15.4 ms in all, 3 times")


def test_pauses_of_other_lengths_at_several_places_are_not() -> None:
    entries = steps_with_pauses((2, 6100), (4, 7200), (7, 9050), (5, 0))
    assert check_pattern(trace(*entries), "python-in-step").state is ABSENT
