"""Test the patterns of Ascend NPUs on traces made for them and on a real one."""

from __future__ import annotations

import pytest

from tests.helpers.npu_traces import compiled_op, npu_op, npu_program
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import CPU_ONLY, GPU_ONLY, check_pattern, healthy
from tests.helpers.trace_builder import trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import npu
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.trace.loading.load_in_process import load_trace

COMPILING, AI_CPU = "op-compilation", "ai-cpu-ops"
MSTT = SHARED_TRACES / "public" / "xiaobingling93-pixel+Ascend-mstt" / "trace_view.json.gz"

CASES: Cases = {
    COMPILING: {
        FIRED: npu_program(compiled_op(10, 700), npu_op(800, 900)),
        ABSENT: npu_program(npu_op(10, 40), npu_op(800, 900)),
        CANNOT_TELL: GPU_ONLY,
    },
    AI_CPU: {
        FIRED: npu_program(npu_op(10, 40, "aclnnReduceSum_CastAiCpu_Cast", 100)),
        ABSENT: npu_program(npu_op(10, 40)),
        CANNOT_TELL: CPU_ONLY,
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(npu, CASES)


def test_neither_fires_on_a_gpu() -> None:
    made = trace(*healthy())
    assert [check_pattern(made, name).state for name in (COMPILING, AI_CPU)] == [ABSENT, ABSENT]


def test_a_call_that_finds_the_op_compiled_runs_it_each_time() -> None:
    finding = check_pattern(trace(*CASES[COMPILING][FIRED]), COMPILING)
    # The call takes 20 to 720 µs; its kernel runs from 600 to 650 µs.
    assert finding.answer.seen == (
        "1 call (1 a step) of AscendCL@aclopCompileAndExecute take 700.0 µs, 700.0 µs in the median, for aten::conv2d; "
        "the NPU was idle 650.0 µs meanwhile; compiling alone is 10.0 µs of it"
    )
    assert finding.answer.at_stake == 650_000
    assert finding.remedy.code == "torch_npu.npu.set_compile_mode(jit_compile=False)"
    assert "new" not in finding.remedy.action


def test_a_call_that_does_compile_has_new_shapes() -> None:
    finding = check_pattern(trace(*npu_program(compiled_op(10, 700, compiling=500), npu_op(800, 900))), COMPILING)
    assert "new shapes" in finding.remedy.action


def test_the_verdict_is_the_compilation_and_not_the_warm_up() -> None:
    checker = Checker(trace(*CASES[COMPILING][FIRED]))
    findings = checker.check()
    verdict = checker.decide_verdict(findings=findings)
    assert verdict.regime is Regime.OVERHEAD
    assert verdict.first.startswith("ops are compiled as they run")
    assert verdict.recording_fault == ""
    assert next(finding for finding in findings if finding.id == "cold-call").state is ABSENT


def test_short_ops_on_the_ai_cpu_are_not_worth_a_word() -> None:
    assert check_pattern(trace(*npu_program(npu_op(10, 40, "aclnnCast_CastAiCpu_Cast", 5))), AI_CPU).state is ABSENT


@pytest.mark.skipif(not MSTT.exists(), reason="the shared traces are not available")
def test_a_training_step_of_a_small_network() -> None:
    """Read from the file: 11 calls, 6.64 ms; two kernels of task type AI_CPU, 188.1 and 139.4 of 1790.4 µs."""
    findings = {finding.id: finding for finding in Checker(load_trace(str(MSTT), cache=False)).check()}
    compiling, on_cpu, layout = (findings[name].answer for name in (COMPILING, AI_CPU, "layout-conversion"))
    assert compiling.seen.startswith("11 calls (11 a step) of AscendCL@aclopCompileAndExecute take 6.64 ms")
    assert on_cpu.seen.startswith("18 % of NPU time in 2 kernels (2 a step) on the AI CPU, the longest 188.1 µs")
    assert "TransData" in layout.seen
    assert "allow_internal_format" in findings["layout-conversion"].remedy.code
    assert "(AscendCL@aclrtMemcpy; aten::to)" in findings["sync-in-step"].answer.seen
