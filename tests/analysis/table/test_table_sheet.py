"""The time outside all ops: its window, what counts as work, and when the line appears."""

from __future__ import annotations

from tests.helpers.trace_builder import annotation, cpu, kernel, python, runtime, step, trace
from torchprof_tui.analysis.table.table_sheet import measure_outside_ops

US = 1000  # ns


def test_python_code_between_ops_is_measured_within_the_steps() -> None:
    shown = trace(step(1, 0, 100), python("f", 0, 100), cpu("aten::mm", 10, 20), cpu("aten::mul", 15, 5))
    assert measure_outside_ops(shown) == (80 * US, 100 * US)


def test_without_steps_from_the_first_op_to_the_last() -> None:
    shown = trace(cpu("aten::mm", 10, 20), cpu("aten::mul", 60, 10), cpu("aten::add", 0, 500, thread=7))
    assert measure_outside_ops(shown) == (30 * US, 60 * US)


def test_loading_data_is_work() -> None:
    loading = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20, 75)
    assert measure_outside_ops(trace(step(1, 0, 100), cpu("aten::mm", 0, 20), loading)) is None


def test_no_line_with_gpu_work_or_for_a_small_share() -> None:
    with_gpu = trace(cpu("aten::mm", 0, 10), runtime("cudaLaunchKernel", 2, 1, corr=1), kernel("k", 12, 5, corr=1))
    assert measure_outside_ops(with_gpu) is None
    assert measure_outside_ops(trace(step(1, 0, 100), cpu("aten::mm", 0, 90))) is None
    assert measure_outside_ops(trace(python("f", 0, 100))) is None
