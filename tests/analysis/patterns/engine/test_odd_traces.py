"""Test that traces that no healthy recording contains are checked without an exception."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pattern_traces import GEMM, H200, check_pattern, op_with_work
from tests.helpers.trace_builder import Entry, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.trace.loading.load_in_process import load_trace


def run(name: str, start: float, duration: float, corr: int, device: int = 0) -> list[Entry]:
    return [
        cpu("aten::mm", start, 20),
        runtime("cudaLaunchKernel", start + 5, 5, corr),
        kernel(name, start + 30, duration, corr, device=device),
    ]


STEPS_ON_THE_IDLER_DEVICE = [
    *(step(number, 1000 * number, 500) for number in range(3)),
    *(entry for number in range(3) for entry in run(GEMM, 1000 * number, 100, number + 1, device=1)),
    *(entry for number in range(5) for entry in run(GEMM, 1000 * number + 600, 100, number + 10)),
]
STEPS_WITHOUT_A_DURATION = [step(0, 0, 500), *(step(number, 1000, 0) for number in range(1, 4)), cpu("aten::mm", 0, 9)]
RUNS_WITHOUT_A_DURATION = [
    entry
    for number, duration in enumerate([0.0] * 6 + [50.0] * 10)
    for entry in run(GEMM, 100 * number, duration, number + 1)
]
COMPILATION_WITHOUT_A_GPU = [cpu("aten::mm", 0, 900), runtime("AscendCL@aclopCompileAndExecute", 10, 800, 1)]


DEVICE_BEYOND_32_BITS = [entry for device in (0, 1 << 40) for entry in run(GEMM, 0, 100, 1 + device, device=device)]


@pytest.mark.parametrize(
    "entries",
    [
        DEVICE_BEYOND_32_BITS,
        STEPS_ON_THE_IDLER_DEVICE,
        STEPS_WITHOUT_A_DURATION,
        RUNS_WITHOUT_A_DURATION,
        COMPILATION_WITHOUT_A_GPU,
    ],
)
def test_odd_traces_are_checked(entries: list[Entry]) -> None:
    checker = Checker(trace(*entries))
    findings = checker.check()
    assert checker.decide_verdict(findings=findings).text


def test_without_gpu_work_nobody_knows_what_compilation_costs() -> None:
    assert check_pattern(trace(*COMPILATION_WITHOUT_A_GPU), "op-compilation").state is State.CANNOT_TELL


def test_steps_without_a_duration_are_not_compared() -> None:
    assert check_pattern(trace(*STEPS_WITHOUT_A_DURATION), "first-step-wide").state is State.CANNOT_TELL


@pytest.mark.parametrize("dims", [[[10**200, 10**200]] * 2, [[True, 2]] * 2, "x", [None, {}]])
@pytest.mark.parametrize("types", [["float", "float"], [[], {}], [None], 3])
def test_damaged_shapes_are_unknown(tmp_path: Path, dims: Any, types: Any) -> None:
    entries = op_with_work("aten::mm", 0, 20, 300, GEMM)
    args = {"Input Dims": dims, "Input type": types, "Input Strides": dims, "Concrete Inputs": types}
    entries[0]["args"] = args
    path = tmp_path / "odd.pt.trace.json"
    path.write_text(json.dumps({"deviceProperties": [H200], "traceEvents": entries}))
    found = Checker(load_trace(str(path))).check(ids=["gemm-efficiency"])[0]
    assert found.state is not State.FIRED
