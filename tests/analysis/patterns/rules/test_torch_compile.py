"""Test the patterns of torch.compile on traces made for them."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import GEMM, GPU_ONLY, check_pattern, healthy, op_with_work
from tests.helpers.trace_builder import Entry, annotation, cpu, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import torch_compile


def compiled_steps(*regions: str, wrapper: float = 5, step_us: float = 500, graph: bool = True) -> list[Entry]:
    """One step per region, with cache lookup, region, prologue, graph and op."""
    entries = []
    for number, region in enumerate(regions):
        start = 1000 * number
        entries += [step(number, start, step_us), cpu("TorchDynamo Cache Lookup", start + 1, wrapper)]
        region_start = start + 10 + wrapper
        region_length = step_us - 20 - wrapper
        entries.append(cpu(f"Torch-Compiled Region{region}", region_start, region_length))
        entries.append(cpu("AOTDispatcher Runtime Wrapper Prologue", region_start + 1, wrapper))
        if graph:
            name = f"## Call CompiledFxGraph f{region.strip(': ').replace('/', 'x')} ##"
            entries.append(cpu(name, region_start + 2 + wrapper, region_length - 4 - wrapper))
        entries += op_with_work("aten::mm", region_start + 10 + wrapper, region_start + 30 + wrapper, 60, GEMM)
    return entries


CASES: Cases = {
    "compiled-region": {FIRED: compiled_steps(": 0/0"), ABSENT: healthy(), CANNOT_TELL: GPU_ONLY},
    "cache-lookup": {FIRED: compiled_steps(": 0/0"), ABSENT: healthy(), CANNOT_TELL: GPU_ONLY},
    "aot-prologue": {FIRED: compiled_steps(": 0/0"), ABSENT: healthy(), CANNOT_TELL: GPU_ONLY},
    "fxgraph-hash": {FIRED: compiled_steps(": 0/0", ": 0/0"), ABSENT: healthy(), CANNOT_TELL: GPU_ONLY},
    "compile-tax": {
        FIRED: compiled_steps(": 0/0", ": 0/0", wrapper=60),
        ABSENT: compiled_steps(": 0/0", ": 0/0", wrapper=4),
        CANNOT_TELL: compiled_steps("", "", graph=False),
    },
    "recompiles": {
        FIRED: compiled_steps(": 0/0", ": 0/1", ": 0/2"),
        ABSENT: compiled_steps(": 0/0", ": 1/0", ": 0/0"),
        CANNOT_TELL: compiled_steps("", "", graph=False),
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(torch_compile, CASES)


def test_compile_work_of_a_recompilation_is_the_time_at_stake() -> None:
    entries_outside = compiled_steps(": 0/1", ": 0/2")
    entries_outside += [annotation("_compile.compile_inner (dynamo_timed)", 1500, 400)]
    finding = check_pattern(trace(*entries_outside), "recompiles")
    assert finding.has_fired
    assert finding.answer.at_stake == 0  # outside of all steps
    entries_in_step = [
        *compiled_steps(": 0/1", ": 0/2"),
        annotation("_compile.compile_inner (dynamo_timed)", 1005, 300),
    ]
    assert check_pattern(trace(*entries_in_step), "recompiles").answer.at_stake == 300_000
