"""Test which calls are cold: slow, and slow because something happened for the first time; and which copies block."""

from __future__ import annotations

import pytest

from tests.helpers.trace_builder import cpu, memcpy, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.host_activity import HostActivities
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables


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


def test_the_first_event_of_a_trace_may_launch_a_copy_that_blocks() -> None:
    shown = trace(runtime("hipMemcpyWithStream", 0, 50, 1), memcpy("CopyHostToDevice", 5, 40, 1), step(1, 60, 100))
    assert shown.names[shown.name[0]] == "hipMemcpyWithStream"
    assert HostActivities(TraceTables(shown)).blocking_copies.row.tolist() == [0]
