"""Test the table of GPU work on literal traces."""

from __future__ import annotations

import numpy as np

from tests.helpers.trace_builder import cpu, kernel, memcpy, memset, runtime, trace
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine.event_tables import (
    build_gpu_work_table,
    factorize_launches,
    intervals_by_device,
    launch_shapes,
    transfer_sizes,
)

US = 1000


def test_all_streams_by_start_with_what_launched_each() -> None:
    shown = trace(
        runtime("cudaLaunchKernel", 0, 2, corr=1),
        kernel("late", 30, 5, corr=1, stream=7),
        kernel("early", 10, 5, stream=20, device=1),
        memset("Memset (Device)", 20, 1, stream=7),
    )
    work = build_gpu_work_table(shown)
    assert [shown.names[number] for number in work.events.name] == ["early", "Memset (Device)", "late"]
    assert work.device.tolist() == [1, 0, 0]
    assert [int(launch) for launch in work.launch[:2]] == [-1, -1]
    assert shown.event(int(work.launch[2])).name == "cudaLaunchKernel"
    assert work.class_mask(KernelClass.MEMORY).tolist() == [False, True, False]


def test_when_each_device_worked_is_the_union_over_its_streams() -> None:
    shown = trace(
        kernel("a", 0, 10, stream=7),
        kernel("b", 5, 10, stream=8),
        kernel("c", 40, 5, stream=7),
        kernel("elsewhere", 3, 4, device=2, stream=7),
        kernel("left out", 100, 4, device=5, stream=7),
    )
    times = intervals_by_device(build_gpu_work_table(shown), [0, 1, 2])
    assert {device: intervals.total for device, intervals in times.items()} == {0: 20 * US, 1: 0, 2: 4 * US}
    assert (times[0].starts.tolist(), times[0].ends.tolist()) == ([0, 40 * US], [15 * US, 45 * US])


def test_runs_of_one_kernel_on_one_shape_are_alike() -> None:
    shapes = [([4, 1, 1], [128, 1, 1]), ([4, 1, 1], [128, 1, 1]), ([1, 4, 1], [128, 1, 1]), ([4, 1, 1], [256, 1, 1])]
    shown = trace(
        *(kernel("k", 10 * index, 5, grid=grid, block=block) for index, (grid, block) in enumerate(shapes)),
        kernel("other", 50, 5, grid=[4, 1, 1], block=[128, 1, 1]),
        kernel("k", 60, 5),
        kernel("k", 70, 5),
    )
    rows = build_gpu_work_table(shown).events
    shape = launch_shapes(shown, rows.row)
    assert shape[2].tolist() == [1, 4, 1, 128, 1, 1]
    assert shape[5].tolist() == [-1] * 6
    group = factorize_launches(rows.name, shape).tolist()
    assert [group.index(number) for number in group] == [0, 0, 2, 3, 4, 5, 5]


def test_what_a_trace_does_not_tell_is_minus_one() -> None:
    silent = trace(cpu("a", 0, 5), kernel("k", 10, 5))
    assert launch_shapes(silent, np.array([0, 1])).tolist() == [[-1] * 6] * 2
    assert transfer_sizes(silent, np.array([0, 1])).tolist() == [-1, -1]
    telling = trace(memcpy("Memcpy HtoD", 0, 5, bytes=4096), kernel("k", 10, 5), memcpy("Memcpy HtoD", 20, 5, bytes=0))
    assert transfer_sizes(telling, np.array([2, 1, 0])).tolist() == [0, -1, 4096]
