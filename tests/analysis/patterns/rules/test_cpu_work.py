"""Test the pattern of ops that compute on the CPU while the GPU waits."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case
from tests.helpers.pattern_traces import GEMM, check_pattern, op_with_work
from tests.helpers.trace_builder import Entry, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.pattern import State


def drawn_each_step(name: str, inner: str) -> list[Entry]:
    """Three steps: an op of 3 ms on the CPU with another inside, then a product of 1 ms on the GPU."""
    program: list[Entry] = []
    for k, at in enumerate((0, 5000, 10000)):
        program += [step(k, at, 4800), cpu(name, at + 10, 3000), cpu(inner, at + 20, 2900)]
        program += op_with_work("aten::mm", at + 3020, at + 3050, 1000, GEMM)
    return program


RANDN = drawn_each_step("aten::randn", "aten::normal_")
SHORT = drawn_each_step("aten::randn", "aten::normal_")[:1] + op_with_work("aten::mm", 60, 90, 1000, GEMM)

CASES: Cases = {
    "cpu-work": {
        FIRED: RANDN,
        ABSENT: [*SHORT, cpu("aten::view", 10, 30)],
        CANNOT_TELL: [cpu("aten::randn", 0, 3000), kernel("k", 4000, 10, 1)],
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_random_numbers_from_the_cpu_are_no_dispatch() -> None:
    checker = Checker(trace(*RANDN))
    time = checker.gap_finder.clip(0, 15_000_000).time_by_cause()
    assert time[IdleCause.CPU_COMPUTE] == 9_000_000
    assert time.get(IdleCause.DISPATCH, 0) < 100_000
    findings = checker.check()
    finding = next(finding for finding in findings if finding.id == "cpu-work")
    assert finding.answer.seen.startswith("aten::randn 9.00 ms; the GPU was idle 9.00 ms")
    assert finding.answer.at_stake == 9_000_000
    assert finding.remedy.action.startswith("create these tensors on the GPU")
    verdict = checker.decide_verdict(findings=findings)
    assert "for ops that compute on the CPU (aten::randn 9.00 ms): create these tensors on the GPU" in verdict.first
    assert "dispatch and launch" not in verdict.first
    tree = verdict.tree
    assert tree is not None
    part = tree.find("cpu_compute")
    assert part is not None
    assert (part.label, [inside.id for inside in part.parts]) == ("idle: CPU compute", ["cpu-work"])


def test_set_up_before_the_first_kernel_is_not_what_was_to_be_measured() -> None:
    program = [cpu("aten::uniform_", 0, 8000), *op_with_work("aten::mm", 9000, 9050, 500, GEMM)]
    verdict = Checker(trace(*program)).decide_verdict(findings=Checker(trace(*program)).check())
    assert "(aten::uniform_ 8.00 ms), before its first kernel: set-up was recorded" in verdict.first


def test_work_that_creates_nothing_belongs_to_the_loader() -> None:
    finding = check_pattern(trace(*drawn_each_step("torchvision::resize", "aten::upsample_bilinear2d")), "cpu-work")
    assert finding.remedy.action == "move these ops to the GPU, or into the workers of the data loader"


def test_an_op_that_waits_or_allocates_does_not_compute() -> None:
    waiting = [
        entry for at in (0, 5000, 10000) for entry in (runtime("cudaStreamSynchronize", at + 30, 2800, 500 + at),)
    ]
    assert check_pattern(trace(*RANDN, *waiting), "cpu-work").state is State.ABSENT
