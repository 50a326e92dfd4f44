"""Test the critical paths of ranges of time and of repetitions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.critical_path.test_against_simulation import assert_tiled
from tests.analysis.critical_path.test_critical_path import AUTOGRAD, list_pieces
from tests.helpers.paths import SAMPLES
from tests.helpers.trace_builder import cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.critical_path.critical_path import find_critical_path
from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.api.trace import open as open_trace

STEP = (
    step(1, 0, 200),
    cpu("aten::mm", 10, 30),
    runtime("cudaLaunchKernel", 20, 10, 1),
    kernel("gemm", 32, 100, 1),
    cpu("aten::add", 45, 30),
    runtime("cudaLaunchKernel", 50, 10, 2),
    kernel("add", 133, 20, 2),
)


def follow_range(entries: tuple[Any, ...], start: int, end: int) -> list[tuple[str, str, float]]:
    """Return the pieces of the path of a range, µs."""
    model = trace(*entries)
    path = find_critical_path(model, time_range=(start * 1000, end * 1000))
    assert_tiled(path)
    assert (path.window.start, path.window.end) == (start * 1000, end * 1000)
    assert path.window.step is None
    return list_pieces(model, path)


def test_a_range_ends_at_the_work_that_runs_at_its_end() -> None:
    pieces = follow_range(STEP, 15, 140)
    assert [each for each in pieces if each[0] == "kernel"] == [("kernel", "gemm", 100), ("kernel", "add", 7)]
    assert pieces[0] == ("dispatch", "aten::mm", 5)


def test_a_range_inside_a_kernel_is_that_kernel() -> None:
    assert follow_range(STEP, 90, 100) == [("kernel", "gemm", 10)]


def test_a_range_without_gpu_work_at_its_end_is_the_threads() -> None:
    assert follow_range(STEP, 0, 20) == [("host code", "ProfilerStep#1", 10), ("dispatch", "aten::mm", 10)]


def test_a_range_that_ends_during_the_backward_pass_ends_on_autograds_thread() -> None:
    pieces = follow_range(
        (
            step(1, 0, 100),
            cpu("aten::mse_loss", 5, 10),
            cpu("autograd::engine::evaluate_function: MulBackward0", 20, 60, thread=AUTOGRAD),
            cpu("aten::mul", 30, 10, thread=AUTOGRAD),
            cpu("aten::add_", 85, 5),
        ),
        0, 50,
    )  # fmt: skip
    assert [name for kind, name, _ in pieces if kind == "dispatch"] == [
        "aten::mse_loss",
        "autograd::engine::evaluate_function: MulBackward0",
        "aten::mul",
        "autograd::engine::evaluate_function: MulBackward0",
    ]


@pytest.mark.parametrize("bounds", [(300_000, 400_000), (50_000, 50_000)])
def test_a_range_with_nothing_in_it_is_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(WindowError, match="nothing was recorded in this range"):
        find_critical_path(trace(*STEP), time_range=bounds)


def test_a_trace_without_steps_has_paths_of_its_repetitions() -> None:
    entries: list[Any] = []
    for number in range(6):
        begin = number * 100
        for index, name in enumerate(("gemm", "norm", "add")):
            launch = number * 10 + index + 1
            entries.append(runtime("cudaLaunchKernel", begin + 10 * index, 5, launch))
            entries.append(kernel(name, begin + 30 + 20 * index, 19, launch))
    model = trace(*entries)
    path = find_critical_path(model, 2)
    assert_tiled(path)
    assert path.window.is_range
    assert [name for kind, name, _ in list_pieces(model, path) if kind == "kernel"] == ["gemm", "norm", "add"]
    assert find_critical_path(model, 0).window.start == 30_000  # the first gemm
    with pytest.raises(WindowError, match="no step 99: the trace has repetitions 0 to 5"):
        find_critical_path(model, 99)
    with pytest.raises(WindowError, match="neither steps nor repetitions"):
        find_critical_path(trace(cpu("a", 0, 5)), 1)


@pytest.mark.parametrize("sample", ["train_gpt_eager", "generate_graph", "multi_stream_overlap", "cuda_graph_replay"])
def test_ranges_of_samples_are_tiled(sample: str) -> None:
    with open_trace(str(SAMPLES / f"{sample}.pt.trace.json.gz")) as opened:
        model = opened._model.all_ranks[0].numbered_trace
        first, last = model.span
        for part in range(7):
            start, end = (first + (last - first) * (part + k) // 7 for k in (0, 1))
            path = find_critical_path(model, time_range=(start, end))
            assert_tiled(path)
            assert path.replayed <= path.duration
