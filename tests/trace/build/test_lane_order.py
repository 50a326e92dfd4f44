"""Test the order of lanes: which thread comes first, and the others by process, device, stream and role."""

from __future__ import annotations

import random

import numpy as np
import pytest

from torchprof_tui.trace.build.lane_assignment import DEVICE_WIDE, PendingLane
from torchprof_tui.trace.build.lane_order import LaneNamer, compute_span, section_of_role, sort_by_row, sort_lanes
from torchprof_tui.trace.build.track_metadata import TrackMetadata
from torchprof_tui.trace.core.column_file import allocate_in_memory
from torchprof_tui.trace.model.lanes import MARKS, SPANS, Lane, Role
from torchprof_tui.trace.model.trace import Counter


def thread(tid: str, pid: str = "100", launches: int = 0, has_step: bool = False, events: int = 1) -> PendingLane:
    return PendingLane(Role.THREAD, pid, tid, events=events, launches=launches, has_step=has_step)


def stream(tid: str, device: int | None = 0, role: Role = Role.STREAM, number: int | None = None) -> PendingLane:
    stream_number = int(tid) if number is None and tid.isdigit() else number
    return PendingLane(role, str(device), tid, device=device, stream=stream_number)


def tids(lanes: list[PendingLane], metadata: TrackMetadata | None = None) -> list[str]:
    """Sort lanes, whatever their order was; returns their tids."""
    orders = {
        tuple(
            lane.tid for lane in sort_lanes(random.Random(seed).sample(lanes, len(lanes)), metadata or TrackMetadata())
        )
        for seed in range(8)
    }
    assert len(orders) == 1
    return list(orders.pop())


@pytest.mark.parametrize(
    ("lead", "other"),
    [
        (thread("9", launches=1, has_step=True), thread("1", launches=50)),  # autograd's thread launches more
        (thread("9", launches=2), thread("1", launches=1, events=50)),
        (thread("9", launches=1), thread("1", has_step=True)),  # without launches a step does not count
        (thread("9", has_step=True), thread("1", events=50)),
        (thread("9", events=3), thread("1", events=2)),
    ],
)
def test_the_launching_thread_is_first(lead: PendingLane, other: PendingLane) -> None:
    assert tids([lead, other]) == ["9", "1"]


def test_threads_follow_by_process_launches_and_number() -> None:
    lanes = [
        thread("50", launches=9, has_step=True),
        thread("7", launches=3),  # of the leading process: the one with more launches
        thread("3"),
        thread("20"),  # by value: 3 before 20
        thread("worker"),
        thread("1", pid="99", launches=8),  # another process, by its number
        thread("2", pid="1000"),
    ]
    assert tids(lanes) == ["50", "7", "3", "20", "worker", "1", "2"]


def test_the_sort_indexes_of_the_file_decide_before_numbers() -> None:
    lanes = [thread("50", launches=9), thread("3"), thread("20"), thread("1", pid="98"), thread("2", pid="99")]
    metadata = TrackMetadata(process_sort_index={"98": 2.0, "99": 1.0}, thread_sort_index={("100", "3"): 5.0})
    assert tids(lanes, metadata) == ["50", "20", "3", "2", "1"]


def test_streams_follow_by_device_and_number_with_their_annotations_before() -> None:
    lanes = [
        stream("20", device=1),
        stream("7"),
        stream("13"),
        PendingLane(Role.GPU_ANNOTATIONS, "0", "13", device=0, stream=13),
        PendingLane(Role.SYNC, "0", "13", device=0, stream=13),
        PendingLane(Role.SYNC, "0", "-1", device=0, stream=DEVICE_WIDE),
        PendingLane(Role.STREAM, "0", "of no device"),
        thread("1"),
        PendingLane(Role.ASYNC, "100", "async"),
        PendingLane(Role.ASYNC, "20", "async of another process"),
        PendingLane(Role.PROFILER, "profiler", SPANS),
        PendingLane(Role.PROFILER, "profiler", MARKS),
        PendingLane(Role.PROFILER, "100", "overhead"),
    ]
    sorted_lanes = sort_lanes(lanes[::-1], TrackMetadata())
    assert [(lane.tid, lane.role) for lane in sorted_lanes[1:8]] == [
        ("7", Role.STREAM),
        ("13", Role.GPU_ANNOTATIONS),
        ("13", Role.STREAM),
        ("13", Role.SYNC),
        ("-1", Role.SYNC),
        ("20", Role.STREAM),
        ("of no device", Role.STREAM),
    ]
    assert [lane.tid for lane in sorted_lanes[8:]] == [
        "async",
        "async of another process",
        "overhead",
        MARKS,
        SPANS,
    ]
    sections = [section_of_role(lane.role) for lane in sorted_lanes]
    assert sections == sorted(sections)
    assert set(sections) == {0, 1, 2, 3}


@pytest.mark.parametrize("sizes", [[], [(3, 7)], [(2, 5), (1, 0), (4, 9)], [(1 << 16, 40), (1, 3)], [(65_537, 40)]])
def test_events_are_sorted_by_row_of_the_whole_trace(sizes: list[tuple[int, int]]) -> None:
    """`sizes`: rows and events of each lane."""
    rng = np.random.default_rng(3)
    lanes, rows = [], np.zeros(0, np.int32)
    for row_count, count in sizes:
        base = lanes[-1].row_base + lanes[-1].rows if lanes else 0
        lanes.append(Lane(Role.THREAD, "1", "1", "", "", len(rows), len(rows) + count, row_count, base))
        of_lane = rng.integers(max(row_count - 4, 0), row_count, count)  # near the last row
        rows = np.append(rows, of_lane).astype(np.int32)
    order, first = sort_by_row(lanes, rows, allocate_in_memory)
    total = np.concatenate([rows[lane.first : lane.last] + lane.row_base for lane in lanes] or [rows])
    assert order.tolist() == np.argsort(total, kind="stable").tolist()
    row_count = sum(row_count for row_count, _ in sizes)
    assert np.array_equal(first, np.searchsorted(np.sort(total), np.arange(row_count + 1)))


@pytest.mark.parametrize(
    ("events", "first_profiler_event", "counters", "span"),
    [
        ([], 0, [], (0, 0)),
        ([(5, 10), (6, 50), (1, 100)], 3, [], (1, 101)),
        ([(5, 10), (6, 50), (1, 100)], 2, [], (5, 56)),
        ([(5, 10), (6, 50), (1, 100)], 1, [[3, 4], [8, 90]], (3, 90)),
        ([(5, 10)], 0, [], (5, 15)),  # the profiler's own events alone
        ([(5, 10)], 0, [[7, 8]], (7, 8)),
        ([(5, 10)], 1, [[], [7, 8]], (5, 15)),
    ],
)
def test_the_span_is_that_of_all_but_the_profilers_own_events(
    events: list[tuple[int, int]], first_profiler_event: int, counters: list[list[int]], span: tuple[int, int]
) -> None:
    start, duration = (np.array([event[k] for event in events], np.int64) for k in (0, 1))
    made = [Counter(0, "", "", np.array(times, np.int64), np.zeros(len(times))) for times in counters]
    assert compute_span(start, duration, first_profiler_event, made) == span


@pytest.mark.parametrize(("several", "group"), [(False, "async"), (True, "async worker 100")])
def test_async_lanes_are_grouped_by_process_where_there_are_several(several: bool, group: str) -> None:
    metadata = TrackMetadata(process_names={"100": "worker"})
    namer = LaneNamer(metadata, is_kineto=True, several_processes=several, device_names={})
    for tid, label in (("net", "net"), ("", "async")):
        assert namer.format_label_and_group(PendingLane(Role.ASYNC, "100", tid)) == (label, group)
