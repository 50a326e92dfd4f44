"""Test the pattern of a program without a GPU that spends its time outside any op."""

from __future__ import annotations

import pytest

from tests.analysis.patterns.rules import test_cpu_work, test_host_pauses
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import check_pattern, healthy
from tests.helpers.trace_builder import TID, Entry, annotation, cpu, python, step, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import host_code


def steps(op: float, *more: Entry) -> list[Entry]:
    """Three steps of 1000 µs that begin with an op of so many µs."""
    return [
        *more,
        *(entry for at in (0, 1000, 2000) for entry in (step(at // 1000, at, 1000), cpu("aten::mm", at, op))),
    ]


def log(at: float) -> list[Entry]:
    """A function of 600 µs that sleeps for 200 and writes for 150."""
    return [
        python("run.py(4): log", at, 600),
        python("<built-in function sleep>", at + 10, 200),
        python("<built-in method write of _io.TextIOWrapper object at 0x7f00>", at + 300, 150),
    ]


LOGGING = steps(300, python("run.py(20): main", 0, 3000), *log(350), *log(1350), *log(2350))

CASES: Cases = {
    "host-code": {
        FIRED: LOGGING,
        ABSENT: steps(950),
        CANNOT_TELL: [annotation("build", 0, 100)],
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(host_code, CASES | test_host_pauses.CASES | test_cpu_work.CASES)


def test_its_time_and_its_frame_are_named() -> None:
    finding = check_pattern(trace(*LOGGING), "host-code")
    assert finding.answer.seen == (
        "70 % of the CPU's time (2.10 ms) is code outside any op, "
        "1.80 of 2.10 ms of it in run.py(4): log (sleep 600.0 µs, write 450.0 µs)"
    )
    assert finding.answer.at_stake == 2_100_000
    assert finding.is_significant
    assert finding.remedy.action == "move it out of the loop, or into another process"
    assert finding.line is not None
    assert finding.line.location == "run.py:4"


def test_without_stacks_the_ops_beside_the_gaps_are_the_evidence() -> None:
    built = trace(*steps(300))
    finding = check_pattern(built, "host-code")
    assert [built.names[built.name[row]] for row in finding.answer.events] == ["aten::mm"] * 3
    assert finding.remedy.action.startswith("record with stacks")
    assert not finding.remedy.code


def test_the_frame_of_the_loop_is_not_to_be_moved_out_of_it() -> None:
    finding = check_pattern(trace(*steps(300, python("run.py(20): main", 0, 3000))), "host-code")
    assert "2.10 of 2.10 ms of it in run.py(20): main" in finding.answer.seen
    assert finding.remedy.action == "run it less often, outside the loop, or in another process"


def summing(at: int) -> list[Entry]:
    """One step of a recorded loop that sums gradients in Python: six `tolist`, 115 µs without a call after each."""
    return [
        step(at // 1000, at, 1000),
        *(
            entry
            for start in range(at + 10, at + 900, 150)
            for entry in (
                python(f"<built-in method flatten of Tensor object at 0x7f{start:x}>", start, 10),
                cpu("aten::flatten", start + 1, 8),
                python(f"<built-in method tolist of Tensor object at 0x7f{start:x}>", start + 15, 20),
            )
        ),
    ]


def test_code_of_a_frame_without_a_line_is_placed_by_the_call_before_it() -> None:
    opened = python("train.py(20): <module>", 0, 3000, TID, **{"Python id": 16, "Python parent id": None})
    finding = check_pattern(trace(opened, *summing(0), *summing(1000), *summing(2000)), "host-code")
    # Steps are annotations, not places; the line of a frame that was open at the start is where it was then.
    assert finding.answer.seen.endswith("of it in train.py: <module> (2.36 ms after 18 calls of tolist)")
    assert finding.line is not None
    assert finding.line.text == "train.py: <module> (line unknown: this frame began before the recording)"
    assert finding.line.line is None


def recurrent(at: int) -> list[Entry]:
    """A step whose forward pass calls many short ops from a Python loop."""
    return [
        step(at // 1000, at, 1000),
        python("nn.Module: Forecaster_0", at + 5, 900),
        python("train.py(15): forward", at + 10, 890),
        *(cpu("aten::mm", start, 20) for start in range(at + 20, at + 880, 60)),
    ]


def test_code_within_a_forward_pass_is_not_to_be_moved_out_of_the_loop() -> None:
    opened = python("train.py(32): <module>", 0, 3000, TID, **{"Python id": 16, "Python parent id": None})
    finding = check_pattern(trace(opened, *recurrent(0), *recurrent(1000), *recurrent(2000)), "host-code")
    assert "in train.py(15): forward" in finding.answer.seen
    assert finding.remedy.action == "call ops on whole tensors, compile the model, or do less in Python per op"
    assert finding.remedy.code == "model = torch.compile(model)"


def test_code_within_a_backward_pass_is_not_to_be_moved_out_of_the_loop() -> None:
    own = [python("train.py(40): backward", at + 350, 600) for at in (0, 1000, 2000)]
    finding = check_pattern(trace(*steps(300, *own)), "host-code")
    assert finding.remedy.action == "call ops on whole tensors, compile the model, or do less in Python per op"


def test_what_another_thread_computes_meanwhile_is_no_host_code() -> None:
    other = [cpu("aten::mul", at + 320, 670, thread=7) for at in (0, 1000, 2000)]
    finding = check_pattern(trace(*steps(300), *other), "host-code")
    assert finding.state is ABSENT
    assert finding.answer.seen.startswith("3.0 % of the CPU's time (90.0 µs)")


def test_with_a_gpu_it_is_a_cause_of_idle_time() -> None:
    finding = check_pattern(trace(*healthy()), "host-code")
    assert finding.state is ABSENT
    assert finding.answer.seen == "no place at which the GPU waits for it is what costs most"


def test_it_is_the_first_finding_of_a_program_that_writes_logs() -> None:
    assert Checker(trace(*LOGGING)).check()[0].id == "host-code"
