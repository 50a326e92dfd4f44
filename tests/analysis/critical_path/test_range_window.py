"""Test the critical paths of ranges of time and of repetitions."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.analysis.critical_path.test_against_simulation import assert_tiled
from tests.analysis.critical_path.test_critical_path import AUTOGRAD, list_pieces
from tests.helpers.paths import SAMPLES
from tests.helpers.trace_builder import TID, cpu, kernel, python, runtime, step, trace
from torchprof_tui.analysis.critical_path.critical_path import find_critical_path
from torchprof_tui.analysis.critical_path.range_window import select_range
from torchprof_tui.analysis.critical_path.step_window import WindowError, find_main_lane
from torchprof_tui.api.trace import open as open_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

BACKWARD = "autograd::engine::evaluate_function: MulBackward0"

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


def find_thread(model: Trace, start: int, end: int) -> int:
    """Find the thread that runs a range, in loops over the steps, the events and the launches."""
    times = [min(each.start + each.duration, end) - max(each.start, start) for each in model.steps]
    if any(time > 0 for time in times):
        return int(model.lane[model.steps[times.index(max(times))].event])
    launches = {event for event in model.links.launch_of.tolist() if event >= 0 and start <= model.start[event] < end}
    threads = [int(model.lane[event]) for event in sorted(launches)]
    backward = {
        int(model.lane[event])
        for event in range(len(model))
        if model.names[model.name[event]] == BACKWARD and model.kind[event] == Kind.OP
        if start <= model.start[event] < end
    }
    threads = [lane for lane in threads if lane not in backward] or threads
    return min(threads, key=lambda lane: (-threads.count(lane), lane)) if threads else find_main_lane(model)


@pytest.mark.parametrize("seed", range(4))
def test_the_thread_of_a_range_has_its_steps_or_most_launches(seed: int) -> None:
    random, entries = Random(seed), []
    for number in range(12):
        thread, time = (TID, AUTOGRAD, 201)[int(random.random() * 3)], 10 * number
        entries += [runtime("cudaLaunchKernel", time, 4, number + 1, thread), kernel("k", time + 5, 3, number + 1)]
        if random.random() < 0.5:
            make = cpu if random.random() < 0.7 else python
            entries.append(make(BACKWARD, time, 9, thread))
        if seed < 2 and number in (4, 5, 9):
            entries.append(step(number, time, 10 + number % 2, thread))
    model = trace(*entries, ns=True)
    for start in range(0, 110, 5):
        for length in (1, 6, 40):
            window = select_range(model, start, start + length)
            assert window.lane == find_thread(model, start, min(start + length, model.span[1])), (start, length)


@pytest.mark.parametrize(
    ("start", "end", "bounds", "cpu_end", "works"),
    [
        (0, 100, (0, 100), 100, [(10, 20), (20, 60), (70, 80)]),
        (-5, 999, (0, 100), 100, [(10, 20), (20, 60), (70, 80)]),
        (0, 20, (0, 20), 19, [(10, 20)]),  # the GPU works at the end
        (0, 21, (0, 21), 20, [(10, 20), (20, 21)]),
        (0, 60, (0, 60), 59, [(10, 20), (20, 60)]),
        (30, 61, (30, 61), 61, [(30, 60)]),
        (60, 70, (60, 70), 70, []),
        (59, 60, (59, 60), 60, [(59, 60)]),  # a range of 1 ns has no time before its end
        (58, 60, (58, 60), 59, [(58, 60)]),
    ],
)
def test_a_range_has_the_work_that_runs_in_it(
    start: int, end: int, bounds: tuple[int, int], cpu_end: int, works: list[tuple[int, int]]
) -> None:
    entries = [cpu("aten::mm", 0, 100)]
    for corr, (begin, duration) in enumerate([(10, 10), (20, 40), (70, 10)], start=1):
        entries += [runtime("cudaLaunchKernel", corr, 1, corr), kernel("k", begin, duration, corr)]
    window = select_range(trace(*entries, ns=True), start, end)
    assert (window.start, window.end, window.cpu_end, window.is_range) == (*bounds, cpu_end, True)
    assert list(zip(window.work.start.tolist(), window.work.end.tolist(), strict=True)) == works


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
    assert find_critical_path(model, 5).window.start > find_critical_path(model, 4).window.start
    for number in (99, 6, -1):
        with pytest.raises(WindowError, match=f"no step {number}: the trace has repetitions 0 to 5"):
            find_critical_path(model, number)
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
