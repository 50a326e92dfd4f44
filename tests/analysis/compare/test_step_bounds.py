"""The bounds of steps: when the CPU and the GPU work that was launched have both ended."""

from __future__ import annotations

from tests.helpers.pattern_traces import GEMM, op_with_work
from tests.helpers.trace_builder import cpu, step, trace
from torchprof_tui.analysis.compare.step_bounds import find_step_bounds
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables


def test_steps_that_queue_work_are_as_long_as_the_work() -> None:
    """The CPU takes 20 µs for a step, the GPU 100: it runs ahead."""
    entries = []
    for number in range(3):
        entries += [step(number, 20.0 * number, 20)]
        entries += op_with_work("aten::mm", 20.0 * number + 2, 20 + 100.0 * number, 100, GEMM)
    assert find_step_bounds(TraceTables(trace(*entries))).tolist() == [0, 120_000, 220_000, 320_000]


def test_steps_that_wait_for_the_gpu_end_with_the_cpu() -> None:
    entries = [step(0, 0, 50), step(1, 60, 50), *op_with_work("aten::mm", 2, 12, 20), cpu("aten::add", 70, 5)]
    assert find_step_bounds(TraceTables(trace(*entries))).tolist() == [0, 50_000, 110_000]


def test_no_steps_have_no_bounds() -> None:
    assert not len(find_step_bounds(TraceTables(trace(cpu("aten::mm", 0, 10)))))
