"""Test the patterns of tensors that are copied or read without need: literal programs with and without the copies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis.patterns.rules.test_backward_pass import AUTOGRAD, EVALUATE
from tests.analysis.patterns.rules.test_debug_leftovers import op, run, steps
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case
from tests.helpers.pattern_traces import GPU_ONLY, check_pattern
from tests.helpers.trace_builder import Entry, cpu, memcpy, runtime, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.trace.loading.load_in_process import load_trace


def cats(count: int, growing: bool) -> list[Entry]:
    """Concatenations of rows of 8, each 11 µs, to what there is, or always of two blocks."""
    entries: list[Entry] = []
    for k in range(count):
        shapes = [[[4 * (k if growing else 1), 8], [4, 8]]]
        call, *rest = op("aten::cat", 100 + 11 * k)
        entries += [{**call, "args": {**call["args"], "Input Dims": shapes}}, *rest]
    return entries


def copy(direction: str, at: float, number: int, thread: int = 100, size: int = 1 << 20) -> list[Entry]:
    """A copy of 8 µs in an op of 10 µs."""
    return [
        cpu("aten::to", at, 10, thread),
        runtime("cudaMemcpyAsync", at + 1, 8, number, thread),
        memcpy(f"Memcpy {direction} (Pageable)", at + 1.5, 7, number, bytes=size),
    ]


def offloading(count: int, size_back: int = 1 << 20) -> list[Entry]:
    """Ops that copy what they save to the host, and nodes that copy it back."""
    entries: list[Entry] = []
    for k in range(count):
        entries += [cpu("aten::mul", 100 + 30 * k, 25), *copy("DtoH", 105 + 30 * k, 500 + k)]
        entries += [cpu(EVALUATE + "MulBackward0", 900 + 30 * k, 25, AUTOGRAD)]
        entries += copy("HtoD", 905 + 30 * k, 600 + k, AUTOGRAD, size_back)
    return entries


LAYER = ("aten::linear",)
STATISTIC = ("aten::detach", "aten::mean", "aten::std")
WRITTEN_NORM = ("aten::mean", "aten::var", "aten::sub", "aten::div")

CASES: Cases = {
    "growing-cat": {
        ABSENT: steps(run(("aten::cat",) * 4, 100)),
        CANNOT_TELL: steps(run(("aten::cat",) * 20, 100)),
    },
    "repeated-clones": {
        FIRED: steps(run(("aten::clone",) * 20, 100)),
        ABSENT: steps(run(("aten::clone", "aten::relu") * 20, 100)),
        CANNOT_TELL: GPU_ONLY,
    },
    "offloaded-activations": {
        FIRED: steps(offloading(6)),
        ABSENT: steps(offloading(6, size_back=4)),
        CANNOT_TELL: GPU_ONLY,
    },
    "activation-statistics": {
        FIRED: steps(run((LAYER + STATISTIC) * 10, 100)),
        ABSENT: steps(run((LAYER + WRITTEN_NORM) * 10, 100)),
        CANNOT_TELL: GPU_ONLY,
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


@pytest.mark.parametrize(("growing", "state"), [(True, FIRED), (False, ABSENT)])
def test_a_buffer_grows_where_each_result_is_the_next_first_tensor(tmp_path: Path, growing: bool, state: State) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": steps(cats(12, growing))}), "utf-8")
    finding = check_pattern(load_trace(str(path)), "growing-cat")
    assert finding.state is state
    if growing:
        assert finding.answer.seen == "2 loops of up to 12 concatenations"
        assert finding.answer.at_stake == 2 * 11 * 10_000  # the last one is left


def test_a_loop_is_known_by_its_first_concatenations(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*steps(run(("aten::relu",), 10)), *cats(300, True)]}), "utf-8")
    finding = check_pattern(load_trace(str(path)), "growing-cat")
    assert finding.state is FIRED
    assert finding.answer.seen == "2 loops of up to 172 concatenations"  # a step ends between them


def test_clones_cost_their_time() -> None:
    finding = check_pattern(trace(*CASES["repeated-clones"][FIRED]), "repeated-clones")
    assert finding.answer.seen == "40 clones (20 a step)"
    assert finding.answer.at_stake == 2 * (20 * 11 - 1) * 1000  # with the time between two


def test_offloading_costs_both_copies() -> None:
    finding = check_pattern(trace(*CASES["offloaded-activations"][FIRED]), "offloaded-activations")
    assert finding.answer.seen == "12 copies to the host and 12 back, 25.2 MB in all"
    assert finding.answer.at_stake == 24 * 10_000


@pytest.mark.parametrize("name", ["reads-one-by-one", "equal-copies"])
def test_copies_of_activations_are_no_results_and_no_inputs(name: str) -> None:
    assert check_pattern(trace(*steps(offloading(20))), name).state is ABSENT


def test_statistics_in_inference_mode_need_no_detach() -> None:
    entries = steps(run((*LAYER, "aten::mean", "aten::std", "aten::amax") * 10, 100))
    finding = check_pattern(trace(*entries), "activation-statistics")
    assert finding.answer.seen == "20 tensors (10 a step) reduced to statistics"
    assert finding.answer.at_stake == 20 * (3 * 11 - 1) * 1000


def test_a_mean_now_and_then_is_no_statistic_of_each_layer() -> None:
    assert check_pattern(trace(*steps(run(LAYER * 20 + STATISTIC, 100))), "activation-statistics").state is ABSENT
