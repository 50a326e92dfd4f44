"""Test the patterns of the profiler table on traces made for them."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import (
    ABSENT,
    CANNOT_TELL,
    FIRED,
    Cases,
    case_params,
    check_case,
    find_missing_answers,
)
from tests.helpers.pattern_traces import (
    CPU_ONLY,
    GPU_ONLY,
    check_pattern,
    healthy,
    kernel_runs,
    op_with_work,
    waiting,
)
from tests.helpers.trace_builder import annotation, cpu, overhead, runtime, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import table_sums

TINY_CALLS = [
    entry for index in range(120) for entry in op_with_work("aten::add_", 10 * index, 10 * index + 9, 8, cost=6)
]


KERNEL_NAMES = [f"void my_kernel_{index}(float*)" for index in range(6)]


EVEN_KERNELS = [
    entry
    for index, name in enumerate(KERNEL_NAMES)
    for entry in op_with_work(f"x::y_{index}", 20 * index, 20 * index + 9, 5, name)
]


CASES: Cases = {
    "overhead-bound": {FIRED: waiting(), ABSENT: healthy(), CANNOT_TELL: CPU_ONLY},
    "compute-bound": {FIRED: healthy(), ABSENT: waiting(), CANNOT_TELL: CPU_ONLY},
    "hotspot": {FIRED: kernel_runs(10, 10), ABSENT: EVEN_KERNELS, CANNOT_TELL: CPU_ONLY},
    "call-count": {FIRED: TINY_CALLS, ABSENT: healthy(), CANNOT_TELL: GPU_ONLY},
    "cost-in-children": {
        FIRED: [cpu("aten::linear", 0, 100), cpu("aten::addmm", 2, 96)],
        ABSENT: [cpu("aten::linear", 0, 100), cpu("aten::t", 2, 5)],
        CANNOT_TELL: GPU_ONLY,
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(table_sums, CASES)


def test_the_busy_share_is_of_the_printed_time() -> None:
    """The GPU works for 36 times 5 µs of four steps in 3,990 µs, in which the profiler writes for 410 µs."""
    assert check_pattern(trace(*waiting()), "overhead-bound").answer.seen.startswith(
        "GPU busy 4.5 % of the steps (3.99 ms)"
    )
    flushes = [overhead("Buffer Flush", start, 82) for start in range(101, 600, 105)]
    assert check_pattern(trace(*waiting(), *flushes), "overhead-bound").answer.seen.startswith(
        "GPU busy 5.0 % of the steps (3.58 ms without the profiler's own time)"
    )


BACKWARD = "aten::convolution_backward"


def test_an_op_of_many_kernels_can_be_the_hotspot() -> None:
    """Six kernels, none above a fifth of the time, but one operator launches five of them."""
    entries = [
        entry
        for index, name in enumerate(KERNEL_NAMES)
        for entry in op_with_work(BACKWARD if index else "aten::add", 20 * index, 20 * index + 9, 5, name)
    ]
    finding = check_pattern(trace(*entries), "hotspot")
    assert finding.answer.seen == (
        "aten::convolution_backward takes 83 % of GPU time: 25.0 µs in 5 pieces of work, of several kernels"
    )
    assert finding.answer.at_stake == 25_000
    wrapped = [{**entry, "name": entry["name"].replace(BACKWARD, "CompiledFunctionBackward")} for entry in entries]
    assert check_pattern(trace(*wrapped), "hotspot").state is ABSENT


def test_ranges_without_ops_have_costs_in_children() -> None:
    """The replay of a graph has ranges and calls, but no ops."""
    calls = [runtime("cudaGraphLaunch", 10 + 40 * index, 2, 50 + index) for index in range(2)]
    nested = trace(annotation("epoch", 0, 100), annotation("replay", 5, 90), *calls)
    assert check_pattern(nested, "cost-in-children").answer.seen.startswith("epoch: total 100.0 µs, self 10.0 µs")
    assert check_pattern(trace(annotation("replay", 5, 90), *calls), "cost-in-children").state is ABSENT


def test_without_a_gpu_the_loop_around_many_calls_is_at_stake() -> None:
    loop = [
        entry
        for k in range(120)
        for entry in (
            cpu("aten::add", 20.0 * k, 8),
            cpu("aten::mm", 20.0 * k + 9, 5),
            cpu("aten::relu", 20.0 * k + 15, 2),
        )
    ]
    finding = check_pattern(trace(*loop, cpu("aten::sum", 2400, 100)), "call-count")
    assert finding.answer.seen == (
        "aten::add runs 120 times: 960.0 µs of self time, 8.00 µs each; the loop around them: 2.40 ms"
    )
    assert finding.answer.at_stake == 2_397_000
    assert finding.answer.spans is not None
    assert finding.answer.spans.total == 2_397_000


def test_calls_that_repeat_in_no_order_have_their_own_time_at_stake() -> None:
    """As the layers of a model, whose ops differ from one to the next."""
    calls = [
        entry
        for k in range(120)
        for entry in (cpu("aten::add", 20.0 * k, 8), *(cpu(f"aten::op{k}_{j}", 20.0 * k + 9 + j, 1) for j in range(2)))
    ]
    finding = check_pattern(trace(*calls), "call-count")
    assert finding.answer.at_stake == 960_000
    assert "loop" not in finding.answer.seen
