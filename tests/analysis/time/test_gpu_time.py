"""Test interval algebra and GPU busy time against plain sets of nanoseconds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import cpu, gpu_annotation, kernel, memcpy, memset, sync, trace
from torchprof_tui.analysis.time.gpu_time import (
    compute_busy_by_device,
    compute_busy_fraction,
    compute_busy_ns_by_device,
    compute_busy_shares,
)
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import GPU_WORK

PIECES = st.lists(st.tuples(st.integers(-20, 60), st.integers(0, 15)), max_size=12)
TIMES = st.integers(-30, 90)


def make_intervals(pieces: list[tuple[int, int]]) -> Intervals:
    starts = np.array([start for start, _ in pieces], dtype=np.int64)
    return union(starts, starts + np.array([length for _, length in pieces], dtype=np.int64))


def covered(pieces: list[tuple[int, int]]) -> set[int]:
    return {ns for start, length in pieces for ns in range(start, start + length)}


def expand(found: Intervals) -> set[int]:
    """Expand to nanoseconds; also checks that the intervals are sorted and disjoint."""
    assert (found.starts < found.ends).all()
    assert (found.ends[:-1] < found.starts[1:]).all()
    assert found.starts.dtype == found.ends.dtype == np.int64
    return {ns for start, end in zip(found.starts, found.ends, strict=True) for ns in range(start, end)}


@given(PIECES, PIECES)
def test_algebra_is_that_of_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = make_intervals(one), make_intervals(other)
    assert expand(a) == covered(one)
    assert a.total == len(covered(one))
    assert expand(a | b) == covered(one) | covered(other)
    assert expand(a & b) == covered(one) & covered(other)
    assert expand(a - b) == covered(one) - covered(other)


@example(pieces=[(0, 2)], t0=1, length=0)
@given(PIECES, TIMES, st.integers(0, 60))
def test_parts_of_a_set(pieces: list[tuple[int, int]], t0: int, length: int) -> None:
    t1 = t0 + length
    inside = covered(pieces) & set(range(t0, t1))
    assert expand(make_intervals(pieces).clip(t0, t1)) == inside
    assert make_intervals(pieces).measure_between(t0, t1) == len(inside)
    before = make_intervals(pieces).measure_before(np.array([t0, t1], dtype=np.int64)).tolist()
    assert before == [sum(ns < time for ns in covered(pieces)) for time in (t0, t1)]


def test_the_empty_set() -> None:
    assert NO_INTERVALS.total == 0
    assert len(NO_INTERVALS | NO_INTERVALS) == len(NO_INTERVALS & NO_INTERVALS) == len(NO_INTERVALS - NO_INTERVALS) == 0
    assert NO_INTERVALS.measure_between(0, 10) == 0
    assert len(NO_INTERVALS.clip(0, 10)) == 0


def test_far_from_zero_nothing_is_rounded() -> None:
    far = 10**15
    starts = np.array([far, far + 7], dtype=np.int64)
    found = union(starts, starts + 5)
    assert found.total == 10
    assert found.measure_before(starts + 1).tolist() == [1, 6]


WORK = st.tuples(
    st.sampled_from([kernel, memcpy, memset]),
    st.integers(0, 60),
    st.integers(0, 12),
    st.sampled_from([7, 13]),
    st.sampled_from([0, 3]),
)


@given(st.lists(WORK, min_size=1, max_size=10), st.integers(-5, 50), st.integers(1, 60), st.integers(1, 9))
def test_a_gpu_is_busy_while_one_of_its_streams_works(work: list, t0: int, span: int, width: int) -> None:
    """Overlaps count once per device; waits, annotations and CPU events do not count."""
    entries = [
        make(f"k{n}", *when, stream=stream, device=device) for n, (make, *when, stream, device) in enumerate(work)
    ]
    others = [sync("Stream Sync", 0, 90, stream=7), gpu_annotation("forward", 0, 90, stream=7), cpu("aten::mm", 0, 90)]
    made_trace = trace(*entries, *others, ns=True)
    # Times are relative to the first event: the CPU event at 0.
    expected = {device: covered([(when[0], when[1]) for _, *when, _, on in work if on == device]) for device in (0, 3)}
    busy = compute_busy_by_device(made_trace)
    assert set(busy) >= {on for *_, on in work}
    for device, worked in busy.items():
        assert expand(worked) == expected[device]
        shares = compute_busy_fraction(worked, t0, t0 + span, width)
        for cell, share in enumerate(shares):
            left = t0 + span * cell // width
            right = max(t0 + span * (cell + 1) // width, left + 1)
            assert share == pytest.approx(len(expected[device] & set(range(left, right))) / (right - left))


def test_a_trace_without_a_gpu() -> None:
    alone = trace(cpu("aten::mm", 0, 10))
    assert compute_busy_by_device(alone) == {}


def test_the_total_of_each_device() -> None:
    made_trace = trace(
        kernel("a", 0, 10),
        kernel("b", 5, 10, stream=8),
        kernel("c", 30, 1),
        memcpy("Memcpy DtoD (Device -> Device)", 3, 4, device=1),
    )
    assert compute_busy_ns_by_device(made_trace) == {0: 16_000, 1: 4_000}


def test_busy_share_is_relative_to_the_time_of_each_rank(tmp_path: Path) -> None:
    def rank(number: int, *kernels: tuple[float, float]) -> Path:
        path = tmp_path / f"rank{number}.json"
        work = [kernel(f"k{at}", at, taken) for at, taken in kernels]
        header = {"distributedInfo": {"rank": number, "world_size": 2}, "baseTimeNanoseconds": 10**18}
        entries = [cpu("train", 100 * number, 100), *work]
        path.write_text(json.dumps({**header, "traceEvents": entries}))
        return path

    whole = load_merged_ranks([rank(0, (0, 25), (50, 25)), rank(1, (150, 30))])
    assert whole.merged_ranks is not None
    shares = compute_busy_shares(whole, compute_busy_by_device(whole))
    assert [shares[member.header_lane] for member in whole.merged_ranks.all] == [pytest.approx(0.5), pytest.approx(0.3)]
    alone = trace(cpu("a", 0, 5), kernel("k", 0, 5))
    assert compute_busy_shares(alone, compute_busy_by_device(alone)) == {}


SHARED = SHARED_TRACES


@pytest.mark.parametrize("name", ["multi_stream_overlap", "cuda_graph_replay", "attention_math"])
def test_real_traces_against_a_sweep_over_sorted_events(name: str) -> None:
    path = SHARED / f"{name}.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("the shared traces are not here")
    real = load_trace(str(path), cache=False)
    total: dict[int, int] = {}
    reach: dict[int, int] = {}
    work = [event for event in range(len(real)) if real.kind[event] in GPU_WORK]
    for event in sorted(work, key=lambda event: int(real.start[event])):
        device = real.lanes[int(real.lane[event])].device
        start = int(real.start[event])
        end = start + int(real.duration[event])
        total[device] = total.get(device, 0) + max(end - max(start, reach.get(device, start)), 0)
        reach[device] = max(end, reach.get(device, end))
    assert total
    assert compute_busy_ns_by_device(real) == total
