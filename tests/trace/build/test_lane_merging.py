"""Test that lanes above MAX_LANES are merged, and that nothing else about their events changes."""

from __future__ import annotations

from dataclasses import fields
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.npu_traces import npu_op, npu_program
from tests.helpers.stored_traces import save_trace
from tests.helpers.trace_builder import (
    Entry,
    counter,
    cpu,
    event,
    gpu_annotation,
    kernel,
    overhead,
    runtime,
    step,
    trace,
)
from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.analysis.time.gpu_time import compute_busy_ns_by_device
from torchprof_tui.trace.build import lane_merging
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.storage.trace_store import open_trace
from torchprof_tui.ui.explorer.lanes_area import cpu_busy_intervals


def crowded(*entries: Entry, most: int = 3) -> Trace:
    with patch.object(lane_merging, "MAX_LANES", most):
        return trace(*entries)


def by_entry(made: Trace) -> dict[int, tuple[object, ...]]:
    """Everything about each event except where it is drawn, by entry; its parent and its launch by their entries."""
    ordinal = made.ordinal.tolist()
    known = {}
    for row, entry in enumerate(ordinal):
        parent, launch = int(made.parent[row]), int(made.links.launch_of[row])
        times = made.start[row], made.duration[row], made.self_duration[row]
        args = {
            name: np.asarray(found).tolist() for name, arg in made.args.items() if (found := arg.get(row)) is not None
        }
        known[entry] = (
            *map(int, times),
            made.names[made.name[row]],
            int(made.kind[row]),
            ordinal[parent] if parent >= 0 else -1,
            ordinal[launch] if launch >= 0 else -1,
            int(made.correlation[row]),
            args,
        )
    return known


def healthy(made: Trace) -> None:
    """Check that each event is on the lane that counts it, parents come first, and no two events of a row overlap."""
    for number, lane in enumerate(made.lanes):
        assert (made.lane[lane.first : lane.last] == number).all()
        assert (np.diff(made.start[lane.first : lane.last]) >= 0).all()
        held: dict[int, int] = {}
        for row in range(lane.first, lane.last):
            assert made.parent[row] < row
            line = int(made.row[row])
            assert line < lane.rows
            assert held.get(line, -(2**62)) <= made.start[row]
            held[line] = int(made.start[row]) + max(int(made.duration[row]), 1)
    assert sum(len(lane) for lane in made.lanes) == len(made)
    assert sorted(made.row_order.tolist()) == list(range(len(made)))


@st.composite
def many_lanes(draw: st.DrawFn) -> list[Entry]:
    entries: list[Entry] = []
    times = st.integers(0, 12)
    for k in range(draw(st.integers(1, 40))):
        start, length, lane = draw(times), draw(times), draw(st.integers(0, 6))
        choice = draw(st.integers(0, 5))
        if choice < 3:
            entries.append(cpu(f"op{k}", start, length, thread=lane))
        elif choice == 3:
            entries.append(runtime("launch", start, length, corr=draw(st.integers(1, 6)), thread=lane))
        elif choice == 4:
            position = {"stream": lane, "device": draw(st.integers(0, 3))}
            entries.append(kernel(f"k{k}", start, length, corr=draw(st.integers(1, 6)), **position))
        else:
            entries.append(overhead("Buffer Flush", start, length))
    return entries


@given(many_lanes(), st.integers(1, 5))
def test_merging_changes_only_where_events_are_drawn(entries: list[Entry], most: int) -> None:
    whole, together = trace(*entries), crowded(*entries, most=most)
    assert by_entry(together) == by_entry(whole)
    assert together.counts == whole.counts
    healthy(together)
    own = [lane for lane in together.lanes if not lane.merged_lanes]
    assert len(own) >= min(most, len(whole.lanes))
    assert all(lane.merged_lanes > 1 for lane in together.lanes if lane.merged_lanes)
    assert len(own) + sum(lane.merged_lanes for lane in together.lanes) == len(whole.lanes)
    reported = {problem.kind: problem.count for problem in together.problems}
    assert reported.get(problems.TOO_MANY_LANES, 0) == len(whole.lanes) - len(own)
    if len(own) == len(whole.lanes):
        assert together.lanes == whole.lanes


def forward_backward() -> list[Entry]:
    flows = [
        {"ph": phase, "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 100, "tid": thread, "ts": at}
        for phase, thread, at in (("s", 8, 1.5), ("f", 9, 6.5))
    ]
    return [cpu("outer", 0, 5, thread=8), cpu("forward", 1, 2, thread=8), cpu("backward", 6, 2, thread=9), *flows]


def test_flows_end_at_the_slices_of_their_own_threads() -> None:
    others = [cpu("other", 0.25 * k, 0.25, thread=20 + k % 7) for k in range(40)]
    for made in (trace(*forward_backward(), *others), crowded(*forward_backward(), *others, most=1)):
        names = [[made.names[made.name[row]] for row in ends] for ends in (made.links.forward, made.links.backward)]
        assert names == [["forward"], ["backward"]]


def test_calls_of_an_npus_runtime_are_kept_with_their_work() -> None:
    others = [cpu("other", 0.25 * k, 0.25, thread=20 + k % 7) for k in range(40)]
    entries = [*npu_program(npu_op(10, 40)), *others]
    for made in (trace(*entries), crowded(*entries, most=1)):
        ends = (made.links.called_work, made.links.work_call)
        names = [[made.names[made.name[row]] for row in rows] for rows in ends]
        assert names == [["aclnnAdd_AddAiCore_Add"], ["AscendCL@aclnnAdd"]]


def test_threads_that_launch_or_step_are_not_merged() -> None:
    busy = [cpu("op", k, 1, thread=k % 5) for k in range(50)]
    made = crowded(
        *busy, step(1, 0, 9, thread=77), runtime("launch", 1, 1, corr=1, thread=88), kernel("k", 2, 1, corr=1)
    )
    assert [lane.tid for lane in made.lanes if not lane.merged_lanes] == ["88", "0", "77", "7"]


def test_merged_lanes_are_last_in_their_section_and_labelled_with_their_number() -> None:
    made = crowded(
        *(cpu("op", k, 1, thread=k) for k in range(9)),
        *(kernel("k", k, 2, stream=k, device=1) for k in range(5)),
        *(gpu_annotation("a", k, 2, stream=k, device=1) for k in range(2)),
        counter("c", 0, value=1),
        overhead("Buffer Flush", 0, 1),
        *({"ph": "b", "cat": f"c{k}", "name": "n", "id": k, "pid": 1, "tid": 1, "ts": 1} for k in range(2)),
        most=1,
    )
    assert [(lane.group, lane.label) for lane in made.lanes] == [
        ("CPU", "CPU 0"),
        ("further lanes", "8 more threads"),
        ("further lanes", "5 more streams of GPU 1"),
        ("further lanes", "2 more annotation lanes of GPU 1"),
        ("further lanes", "2 more async lanes"),
        ("process 100", "c"),
        ("profiler", "overhead"),
    ]
    remark = next(remark for remark in diagnose_trace(made).remarks if remark.kind == problems.TOO_MANY_LANES)
    assert (remark.count, remark.section.value) == (17, "odd")
    assert remark.example == "8 more threads, 5 more streams of GPU 1, 2 more annotation lanes of GPU 1, …"


def test_a_device_is_as_busy_as_it_was() -> None:
    entries = [kernel("k", 3 * k, 2, stream=k, device=k % 2) for k in range(20)]
    assert compute_busy_ns_by_device(trace(*entries)) == {0: 20_000, 1: 20_000}
    assert compute_busy_ns_by_device(crowded(*entries, most=2)) == {0: 20_000, 1: 20_000}


def test_further_devices_are_merged_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_merging, "_MAX_DEVICES", 2)
    made = crowded(*(kernel("k", k, 1, stream=k, device=k % 9) for k in range(36)), most=1)
    further = [(lane.device, lane.pid, lane.merged_lanes) for lane in made.lanes if lane.merged_lanes]
    assert further == [(None, "", 27), (1, "1", 4), (2, "2", 4)]


def test_merged_lanes_are_stored(tmp_path) -> None:  # type: ignore[no-untyped-def]
    made = crowded(*(cpu("op", k, 3, thread=k) for k in range(9)))
    save_trace(made, tmp_path)
    again = open_trace(tmp_path)
    assert again.lanes == made.lanes
    assert {field.name for field in fields(again.lanes[0])} >= {"merged_lanes"}


@pytest.mark.long
@pytest.mark.parametrize("n", [20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_more_lanes_than_are_kept(n: int) -> None:
    made = trace(*(event("op", k, 1, tid=k) for k in range(n)))
    assert [lane.merged_lanes for lane in made.lanes] == [0] * lane_merging.MAX_LANES + [n - lane_merging.MAX_LANES]
    assert made.lanes[-1].role is Role.THREAD
    assert len(made) == n


def test_overlaps_that_merging_makes_are_not_reported() -> None:
    """Each thread is in order; merged they overlap."""
    entries = [cpu("op", k, 5, thread=k % 7) for k in range(70)]
    kinds = {remark.kind for remark in diagnose_trace(crowded(*entries)).remarks}
    assert problems.TOO_MANY_LANES in kinds
    assert "overlap" not in kinds
    crossing = [cpu("a", 0, 50, thread=50), cpu("b", 40, 50, thread=50), step(1, 0, 90, thread=50)]
    remarks = {remark.kind: remark.count for remark in diagnose_trace(crowded(*entries, *crossing)).remarks}
    assert remarks["overlap"] == 1  # that lane is not merged


def test_the_overview_of_many_threads_shows_more_than_its_first_lane() -> None:
    made = crowded(*(cpu("op", 10 * k, 5, thread=k) for k in range(100)))
    assert cpu_busy_intervals(made).total == 100 * 5_000
    main = trace(cpu("op", 0, 10, thread=1), cpu("op", 90, 10, thread=1), runtime("launch", 95, 1, 1, thread=1),
                 cpu("op", 0, 100, thread=2))  # fmt: skip
    # The first lane lasts as long as the trace, so its idle time is what the overview shows.
    assert cpu_busy_intervals(main).total == 20_000
