"""Test range statistics against counting every nanosecond of every event."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import (
    annotation,
    cpu,
    gpu_annotation,
    kernel,
    overhead,
    runtime,
    step,
    sync,
    trace,
)
from torchprof_tui.analysis.time.gpu_time import compute_busy_by_device
from torchprof_tui.analysis.time.range_statistics import compute_range_statistics
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import Role

ENTRIES = st.lists(
    st.one_of(
        st.builds(cpu, st.sampled_from("abc"), st.integers(0, 40), st.integers(0, 20), st.sampled_from([1, 2])),
        st.builds(annotation, st.sampled_from("ax"), st.integers(0, 40), st.integers(0, 40)),
        st.builds(
            kernel, st.sampled_from("kl"), st.integers(0, 40), st.integers(0, 20), stream=st.sampled_from([7, 8])
        ),
        st.builds(sync, st.just("Stream Sync"), st.integers(0, 40), st.integers(0, 20)),
        st.builds(step, st.integers(0, 3), st.integers(0, 40), st.integers(0, 30)),
    ),
    min_size=1,
    max_size=20,
)


@given(ENTRIES, st.integers(-5, 50), st.integers(1, 50))
def test_statistics_count_every_nanosecond(entries: list, t0: int, length: int) -> None:
    made = trace(*entries, ns=True)
    t1 = t0 + length
    got = compute_range_statistics(made, t0, t1, max_names=100)

    def inside(event: int) -> set[int]:
        start = int(made.start[event])
        return set(range(max(start, t0), min(start + int(made.duration[event]), t1)))

    def touches(event: int) -> bool:
        start, duration = int(made.start[event]), int(made.duration[event])
        return start < t1 and start + max(duration, 1) > t0

    touching = [event for event in range(len(made)) if touches(event)]
    assert got.events == len(touching)
    assert got.duration == length

    lanes = {stats.lane: stats for stats in got.lanes}
    assert set(lanes) == {int(made.lane[event]) for event in touching}
    for number, stats in lanes.items():
        lane = made.lanes[number]
        mine = [event for event in touching if lane.first <= event < lane.last]
        assert stats.events == len(mine)
        assert stats.busy == len(set().union(*map(inside, mine)))
        assert stats.share == pytest.approx(stats.busy / length)

    work = [event for event in touching if made.kind[event] in GPU_WORK]
    assert got.gpu_busy.get(0, 0) == len(set().union(*map(inside, work)))
    ranges = (Kind.STEP, Kind.ANNOTATION)
    on_threads = [event for event in touching if made.lanes[int(made.lane[event])].role is Role.THREAD]
    threads = [event for event in on_threads if made.kind[event] not in ranges]
    for names, events in ((got.gpu_names, work), (got.cpu_names, threads)):
        count, total, own = Counter(), Counter(), Counter()
        for event in events:
            name = made.names[int(made.name[event])]
            children = [child for child in range(len(made)) if made.parent[child] == event]
            count[name] += 1
            total[name] += len(inside(event))
            own[name] += len(inside(event)) - sum(len(inside(child)) for child in children)
        assert {each.name: (each.count, each.total, each.self_time) for each in names} == {
            name: (count[name], total[name], own[name]) for name in count
        }
    assert [each.total for each in got.gpu_names] == sorted((each.total for each in got.gpu_names), reverse=True)
    assert [each.self_time for each in got.cpu_names] == sorted(
        (each.self_time for each in got.cpu_names), reverse=True
    )

    assert got.steps == [each for each in made.steps if touches(each.event)]
    assert got.whole_steps == sum(t0 <= each.start and each.start + each.duration <= t1 for each in got.steps)


def test_the_whole_trace_gives_the_whole_events() -> None:
    made = trace(
        cpu("aten::mm", 0, 100),
        runtime("cudaLaunchKernel", 10, 20, corr=1),
        kernel("gemm", 50, 30, corr=1),
        gpu_annotation("forward", 40, 60),
        overhead("Buffer Flush", 0, 90),
    )
    got = compute_range_statistics(made, *made.span)
    assert [(each.name, each.count, each.total, each.self_time) for each in got.cpu_names] == [
        ("aten::mm", 1, 100_000, 80_000),
        ("cudaLaunchKernel", 1, 20_000, 20_000),
    ]
    assert [(each.name, each.total, each.mean) for each in got.gpu_names] == [("gemm", 30_000, 30_000)]
    assert got.gpu_busy == {0: 30_000}


def test_the_number_of_names_is_limited() -> None:
    made = trace(*(cpu(f"op{number}", 10 * number, number) for number in range(9)))
    assert [each.name for each in compute_range_statistics(made, 0, 10**6, max_names=2).cpu_names] == ["op8", "op7"]


def test_given_gpu_time_is_not_computed_again() -> None:
    made = trace(kernel("k", 0, 10), kernel("k", 20, 10))
    known = compute_busy_by_device(made)
    assert compute_range_statistics(made, 5_000, 25_000, known).gpu_busy == {0: 10_000}
    assert compute_range_statistics(made, 5_000, 25_000, {}).gpu_busy == {}


def test_a_range_without_events() -> None:
    made = trace(cpu("a", 0, 1), cpu("b", 100, 1))
    got = compute_range_statistics(made, 50_000, 60_000)
    assert (got.events, got.lanes, got.cpu_names, got.gpu_names, got.steps) == (0, [], [], [], [])
    assert compute_range_statistics(trace(), 0, 1).events == 0


@pytest.mark.parametrize("t1", [5, 4])
def test_an_empty_range(t1: int) -> None:
    with pytest.raises(ValueError, match="no time between"):
        compute_range_statistics(trace(cpu("a", 0, 1)), 5, t1)
