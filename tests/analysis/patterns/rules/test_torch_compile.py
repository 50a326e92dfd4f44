"""Test the patterns of torch.compile on traces made for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import GEMM, GPU_ONLY, check_pattern, healthy, op_with_work
from tests.helpers.trace_builder import Entry, annotation, cpu, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import torch_compile
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.model.trace_metadata import DeviceProperties


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


def broken(pieces: int, reads: bool = False, kernels: int = 1) -> list[Entry]:
    """A compiled function of 990 µs in pieces, each inside the one before and 100 µs later: lookup, graph, read."""
    entries: list[Entry] = [step(1, 0, 1_200)]
    for k in range(pieces):
        at = 100.0 * k
        entries += [cpu("TorchDynamo Cache Lookup", at, 5)]
        entries += [cpu(f"Torch-Compiled Region: {k}/0", at + 10, 990 - at - k)]
        entries += [annotation("## Call CompiledFxGraph abc ##", at + 20, 30)]
        for number in range(kernels):
            entries += op_with_work("triton_poi", at + 21 + number, at + 55, 10, cost=1)
        entries += [cpu("aten::is_nonzero", at + 70, 20)] if reads else []
    return entries


CASES: Cases = {
    "graph-breaks": {FIRED: broken(4), ABSENT: broken(1), CANNOT_TELL: GPU_ONLY},
    "compiled-region": {FIRED: compiled_steps(": 0/0"), ABSENT: healthy(), CANNOT_TELL: GPU_ONLY},
    "cache-lookup": {FIRED: compiled_steps(": 0/0"), ABSENT: healthy(), CANNOT_TELL: GPU_ONLY},
    "aot-prologue": {FIRED: compiled_steps(": 0/0"), ABSENT: healthy(), CANNOT_TELL: GPU_ONLY},
    "fxgraph-hash": {FIRED: compiled_steps(": 0/0", ": 0/0"), ABSENT: healthy(), CANNOT_TELL: GPU_ONLY},
    "beside-eager": {ABSENT: healthy(), CANNOT_TELL: compiled_steps(": 0/0")},
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
    beside = {"beside-eager": {FIRED, ABSENT, CANNOT_TELL}}
    assert not find_missing_answers(torch_compile, {**CASES, "beside-eager": {}}, beside)


class Beside:
    """Recordings of the same program that are at hand."""

    spec = "there/compiled.json"

    def __init__(self, *traces: Trace) -> None:
        self.traces = traces

    def open_traces(self) -> Sequence[Trace]:
        return self.traces


def eager_steps(count: int, name: str = "eager run.json", ranges: Sequence[str] = ()) -> Trace:
    """Steps of a GEMM and an add each, 700 µs long."""
    entries: list[Entry] = []
    for number in range(count):
        start = 1000 * number
        entries.append(step(number, start, 700))
        entries += op_with_work("aten::mm", start + 10, start + 40, 60, GEMM)
        entries += op_with_work("aten::add", start + 200, start + 240, 30, "add_kernel")
        entries += [annotation(each, start + 500, 10) for each in ranges]
    return replace(trace(*entries), label=name)


def test_a_compiled_step_is_compared_with_that_of_the_eager_recording() -> None:
    compiled = trace(*compiled_steps(": 0/0", ": 0/0", ": 0/0"))
    beside = Beside(compiled, eager_steps(3, ranges=["validate"]), eager_steps(3))
    finding = check_pattern(replace(compiled, same_program=beside), "beside-eager")
    assert finding.answer.seen == (
        "launches a step: 2 → 1 (-50 %, down by half); kernels 2 → 1; a step 900.0 µs → 833.3 µs "
        "(diff 'eager run.json' there/compiled.json)"
    )
    assert finding.remedy.code == "torchprof-tui diff 'eager run.json' there/compiled.json"
    assert finding.is_note


def test_a_recording_of_something_else_is_no_eager_one() -> None:
    """Compiled as well, with annotations that this program has not, or on another GPU."""
    compiled = trace(*compiled_steps(": 0/0", ": 0/0"))
    elsewhere = eager_steps(3)
    gpu = replace(elsewhere.metadata, devices=(DeviceProperties(0, "another GPU"),))
    for other in (compiled, eager_steps(3, ranges=["validate"]), replace(elsewhere, metadata=gpu)):
        finding = check_pattern(replace(compiled, same_program=Beside(other)), "beside-eager")
        assert finding.state is CANNOT_TELL
        assert "without torch.compile" in finding.answer.reason


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


def test_small_pieces_but_the_last_are_at_stake_with_the_time_between() -> None:
    finding = check_pattern(trace(*broken(4)), "graph-breaks")
    assert finding.answer.seen == "4 pieces of 1 call, 4 kernels, 0 values read between them"
    # The function of 990 µs, without the last piece's graph of 30 and kernel of 10.
    assert finding.answer.at_stake == (990 - 30 - 10) * 1000
    assert "TORCH_LOGS" in finding.remedy.action


def test_the_work_of_large_pieces_is_not_at_stake() -> None:
    finding = check_pattern(trace(*broken(4, kernels=20)), "graph-breaks")
    assert finding.answer.at_stake == (990 - 4 * 30 - 4 * 10) * 1000


def test_a_read_between_pieces_is_a_branch() -> None:
    assert "torch.where" in check_pattern(trace(*broken(4, reads=True)), "graph-breaks").remedy.action
