"""Test which calls are cold: slow, and slow because something happened for the first time; and which copies block."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.trace_builder import cpu, kernel, memcpy, runtime, step, trace
from torchprof_tui.analysis.patterns.engine import host_activity
from torchprof_tui.analysis.patterns.engine.host_activity import HostActivities
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.intervals import Intervals, union, unite


@pytest.mark.parametrize(
    ("durations", "cold"),
    [
        ([5000, 1001, 1001, 1001], []),  # less than five times the median of its name
        ([5005, 1001, 1001, 1001], [0]),
        ([9000, 1500, 1500, 1500, 1500], [0]),
        ([2000, 2000, 2000], []),  # as slow whenever it is made
        ([2000, 1000, 1000], []),
        ([1001, 9], [0]),  # of two calls nothing says which one is usual
        ([1001, 1001], [0, 1]),
        ([1000, 9], []),  # not long
        ([1001, 9, 9], [0]),
    ],
)
def test_a_cold_call_takes_much_longer_than_the_others_of_its_name(durations: list[int], cold: list[int]) -> None:
    calls = [runtime("cudaFuncGetAttributes", 20_000 * k, time, k + 1) for k, time in enumerate(durations)]
    shown = trace(step(1, 0, 200_000), cpu("aten::mm", 0, 19_000), *calls)
    found = HostActivities(TraceTables(shown)).cold_calls
    assert [start // 20_000_000 for start in found.start.tolist()] == cold


@pytest.mark.parametrize(("call", "blocks"), [("cudaMemcpyAsync", False), ("cudaMemcpy", True)])
def test_an_asynchronous_copy_of_pinned_memory_does_not_block(call: str, blocks: bool) -> None:
    """Each call returns when its copy has ended; one that ends later, or began before its call, says nothing."""
    times = [(0, 50, 5, 45), (100, 50, 105, 46), (200, 50, 200, 50), (300, 50, 299, 20)]
    shown = trace(
        *(runtime(call, start, time, k) for k, (start, time, _, _) in enumerate(times, start=1)),
        *(memcpy("Memcpy HtoD (Pinned -> Device)", at, size, k) for k, (_, _, at, size) in enumerate(times, start=1)),
    )
    found = HostActivities(TraceTables(shown)).blocking_copies
    assert [start // 100_000 for start in found.start.tolist()] == ([0, 2] if blocks else [])


@pytest.mark.parametrize(
    ("waits", "found"),
    [
        ((500, 500, 1, 1), [0, 1]),
        ((500, 499, 1, 1), []),  # in less than half of the steps
        ((700, 800, 900, 950), [0, 1, 2, 3]),
        ((500, 500, 500, None), [0, 1, 2, 3]),  # a step without ops: all of it
    ],
)
def test_without_a_loader_the_program_waits_from_the_step_to_its_first_op(
    waits: tuple[int | None, ...], found: list[int]
) -> None:
    entries = [step(k, 1000 * k, 1000) for k in range(len(waits))]
    for k, wait in enumerate(waits):
        if wait is not None:
            at = 1000 * k + wait
            entries += [cpu("aten::mm", at, 20), runtime("cudaLaunchKernel", at + 5, 5, k + 1)]
            entries += [kernel("gemm", at + 15, 9, k + 1)]
    table = HostActivities(TraceTables(trace(*entries))).input_waits
    assert (table.start // 1_000_000).tolist() == found
    assert (table.end - table.start).tolist() == [1000 * (waits[k] or 1000) for k in found]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_activity_of_other_threads_counts_where_a_thread_has_none(count: int) -> None:
    """Against sets of single times: an earlier cause of the other threads comes before a later one."""
    rng = np.random.default_rng(count)
    for _ in range(8):
        starts = rng.integers(0, 60, (count, 3, 3))
        own = [tuple(union(start, start + 4) for start in of_thread) for of_thread in starts]
        for number in range(count):
            assigned = list_times(unite(own[number]))
            for index, part in enumerate(host_activity._add_other_threads(own, number)):
                others = list_times(unite(own[other][index] for other in range(count) if other != number)) - assigned
                assigned |= others
                assert list_times(part) == list_times(own[number][index]) | others


def list_times(times: Intervals) -> set[int]:
    return {t for start, end in zip(times.starts.tolist(), times.ends.tolist(), strict=True) for t in range(start, end)}


def test_the_first_event_of_a_trace_may_launch_a_copy_that_blocks() -> None:
    shown = trace(runtime("hipMemcpyWithStream", 0, 50, 1), memcpy("CopyHostToDevice", 5, 40, 1), step(1, 60, 100))
    assert shown.names[shown.name[0]] == "hipMemcpyWithStream"
    assert HostActivities(TraceTables(shown)).blocking_copies.row.tolist() == [0]
