"""Test merging ranks: each rank's part of the columns equals its own trace, shifted and renumbered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.merged_ranks import SHARED_RANK_SETS, load_shared_ranks
from tests.helpers.npu_traces import npu_op, npu_program
from tests.helpers.rank_traces import late_rank
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query import navigation
from torchprof_tui.trace.query.cells import compute_cells
from torchprof_tui.trace.query.read_entries import read_entries
from torchprof_tui.trace.ranks.collective_matching import read_collectives
from torchprof_tui.trace.ranks.merge import OpenedRank, merge_ranks


def create_ranks(folder: Path) -> list[Trace]:
    """Generate three ranks, each with memory, a counter, a damaged entry, a pair of B and E, and its own category."""
    run = late_rank(3)
    for rank in range(3):
        thread = {"pid": 1000 + rank, "tid": 1000 + rank}
        known = {"args": {"External id": 0}, **thread}
        memory = {"Bytes": 512, "Total Allocated": 1024 * (rank + 1), "Device Type": 1, "Device Id": 0, "Addr": 64}
        run.more[rank] = [
            {"ph": "B", "cat": "x", "name": f"range of {rank}", "ts": 2000, "args": {"begun": rank}, **thread},
            {"ph": "E", "ts": 2500, "args": {"ended": rank}, **thread},
            {"ph": "C", "name": "queue", "ts": 2100 + rank, "args": {"length": 3}, **thread},
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 2200 - rank, "args": memory, **thread},
            {"ph": "X", "cat": "cpu_op", "name": "negative", "ts": 3000, "dur": -1, "args": {}, **thread},
            {"ph": "X", "cat": f"only {rank}", "name": "aten::mm", "ts": 2600, "dur": 10, **known},
        ]
    return [load_trace(str(path), cache=False) for path in run.write(folder, packed=True)]


def merge(traces: list[Trace]) -> Trace:
    numbers = [trace.rank if trace.rank is not None else k for k, trace in enumerate(traces)]
    return merge_ranks(
        [OpenedRank(k, t.label, t, read_collectives(t)) for k, t in zip(numbers, traces, strict=True)], "all"
    )


def assert_same_but_shifted(whole: Trace, alone: list[Trace]) -> None:
    """Compare event by event, lane by lane: only clocks and numbers differ."""
    assert whole.merged_ranks is not None
    assert len(whole) == sum(map(len, alone))
    assert sorted({lane.rank for lane in whole.lanes}) == [rank.number for rank in whole.merged_ranks.all]
    for rank, trace in zip(whole.merged_ranks.all, alone, strict=True):
        assert_columns_shifted(whole, rank, trace)
        assert_links_shifted(whole, rank, trace)
        assert_lanes_shifted(whole, rank, trace)
        assert_args_shifted(whole, rank, trace)
        assert_rank_trace_aligned(whole, rank, trace)
    assert np.array_equal(np.sort(whole.row_order), np.arange(len(whole)))
    for event in range(0, len(whole), max(len(whole) // 500, 1)):
        row = navigation.row_of(whole, event)
        assert event in whole.row_order[whole.row_first[row] : whole.row_first[row + 1]].tolist()
    assert whole.total_rows == whole.lanes[-1].row_base + whole.lanes[-1].rows
    assert whole.counts.events == sum(trace.counts.events for trace in alone)
    counts = whole.counts
    assert counts.events == counts.drawn + counts.metadata + counts.flows + sum(counts.not_drawn.values())


def assert_columns_shifted(whole: Trace, rank: Rank, trace: Trace) -> None:
    events = slice(rank.first, rank.last)
    assert np.array_equal(whole.start[events], trace.start + rank.clock.shift)
    for column in ("duration", "kind", "row", "self_duration"):
        assert np.array_equal(getattr(whole, column)[events], getattr(trace, column)), column
    assert [whole.names[n] for n in whole.name[events].tolist()] == [trace.names[n] for n in trace.name.tolist()]
    categories = [whole.categories[n] for n in whole.category[events].tolist()]
    assert categories == [trace.categories[n] for n in trace.category.tolist()]
    assert np.array_equal(whole.parent[events], np.where(trace.parent < 0, trace.parent, trace.parent + rank.first))
    assert np.array_equal(whole.lane[events], trace.lane + rank.first_lane)


def assert_links_shifted(whole: Trace, rank: Rank, trace: Trace) -> None:
    first, links, own_links = rank.first, whole.links, trace.links
    launch_of = links.launch_of[first : rank.last]
    assert np.array_equal(launch_of, np.where(own_links.launch_of < 0, -1, own_links.launch_of + first))
    for event in np.flatnonzero(np.diff(own_links.work_first)).tolist():
        assert links.work_of(event + first).tolist() == (own_links.work_of(event) + first).tolist()
    for name in ("forward", "backward", "called_work", "work_call", "graph_before", "graph_after"):
        merged, own = getattr(links, name), getattr(own_links, name)
        assert merged[(merged >= first) & (merged < rank.last)].tolist() == (own + first).tolist()


def assert_lanes_shifted(whole: Trace, rank: Rank, trace: Trace) -> None:
    for number, lane in enumerate(trace.lanes):
        moved = whole.lanes[rank.first_lane + number]
        assert (moved.label, moved.role, moved.rows, moved.device) == (lane.label, lane.role, lane.rows, lane.device)
        assert (moved.first, moved.last) == (lane.first + rank.first, lane.last + rank.first)
        assert moved.group == f"rank {rank.number} {lane.group}"
    header = whole.lanes[rank.header_lane]
    assert (header.role, header.first, header.last, header.rows) == (Role.RANK, rank.first, rank.first, 1)


def assert_args_shifted(whole: Trace, rank: Rank, trace: Trace) -> None:
    for key, arg in trace.args.items():
        column = whole.args[key]
        inside = (column.events >= rank.first) & (column.events < rank.last)
        assert np.array_equal(column.events[inside] - rank.first, arg.events), key
        added = 0
        if key == "end_ordinal":
            added = int(whole.ordinal[rank.first] - trace.ordinal[0])
        elif key in ("external_id", "sequence", "python_id", "python_parent"):  # as correlations are kept apart
            assert whole.merged_ranks is not None
            added = whole.merged_ranks.all.index(rank) << 40
        assert np.array_equal(column.values[inside], np.where(arg.values < 0, arg.values, arg.values + added)), key


def assert_rank_trace_aligned(whole: Trace, rank: Rank, trace: Trace) -> None:
    """The rank's own trace is its part of the whole on the common clock."""
    shift = rank.clock.shift
    assert np.array_equal(rank.trace.start, whole.start[rank.first : rank.last])
    assert [step.start for step in rank.trace.steps] == [step.start + shift for step in trace.steps]
    assert [whole.event(step.event).name for step in rank.steps] == [step.name for step in trace.steps]
    assert rank.trace.span == (trace.span[0] + shift, trace.span[1] + shift)
    lanes = range(rank.first_lane, rank.last_lane)
    counters = [(c.name, c.times.tolist(), c.values.tolist()) for c in rank.trace.counters]
    assert counters == [(c.name, c.times.tolist(), c.values.tolist()) for c in whole.counters if c.lane in lanes]
    assert counters == [(c.name, (c.times + shift).tolist(), c.values.tolist()) for c in trace.counters]


def test_generated_ranks(tmp_path: Path) -> None:
    alone = create_ranks(tmp_path)
    whole = merge(alone)
    assert_same_but_shifted(whole, alone)
    assert whole.merged_ranks is not None
    for rank, trace in zip(whole.merged_ranks.all, alone, strict=True):
        for event in range(len(trace)):
            moved = whole.event(event + rank.first)
            assert moved.read_args() == trace.event(event).read_args()
            assert moved.lane.rank == rank.number
            assert whole.merged_ranks.rank_of_event(event + rank.first) is rank
            assert whole.merged_ranks.rank_of_lane(int(whole.lane[event + rank.first])) is rank
            assert whole.steps_of_event(event + rank.first) is rank.steps
            assert whole.devices_of_event(event + rank.first) == trace.devices
    assert whole.memory is not None
    assert whole.memory.allocated.tolist() == [3072, 2048, 1024]  # by time
    assert [whole.lanes[lane].rank for lane in whole.memory.lane.tolist()] == [2, 1, 0]
    problem = next(problem for problem in whole.problems if problem.kind == "negative duration")
    assert (problem.count, problem.example[:7]) == (3, "rank 0:")
    assert whole.world_size == 3
    assert whole.rank is None


def test_correlations_of_ranks_are_apart(tmp_path: Path) -> None:
    whole = merge(create_ranks(tmp_path))
    assert whole.merged_ranks is not None
    seen: set[int] = set()
    for rank in whole.merged_ranks.all:
        own = {int(c) for c in whole.correlation[rank.first : rank.last] if c >= 0}
        assert own
        assert not own & seen
        seen |= own
    ids = whole.args["external_id"]
    assert len({int(value) for value in ids.values}) == 21  # seven of each rank


def test_many_entries_at_once(tmp_path: Path) -> None:
    whole = merge(create_ranks(tmp_path))
    events = np.arange(len(whole))[::-1]
    found = dict(read_entries(whole, events))
    assert sorted(found) == list(range(len(whole)))
    for index, entry in found.items():
        assert entry["name"] == whole.event(int(events[index])).name


def test_cells_are_those_of_each_rank_alone(tmp_path: Path) -> None:
    """Every row of the whole has the cells of the rank's own row."""
    whole = merge(create_ranks(tmp_path))
    assert whole.merged_ranks is not None
    t0, t1 = whole.span
    drawn = compute_cells(whole.row_index, slice(None), t0, t1, 97)
    for rank in whole.merged_ranks.all:
        base = whole.lanes[rank.header_lane].row_base
        assert (drawn.event[base] == -1).all()  # the header lane has no events
        own = compute_cells(rank.trace.row_index, slice(None), t0, t1, 97)
        rows = slice(base + 1, base + 1 + rank.trace.total_rows)
        assert np.array_equal(drawn.event[rows], np.where(own.event < 0, -1, own.event + rank.first))
        assert np.array_equal(drawn.count[rows], own.count)
        assert np.allclose(drawn.busy[rows], own.busy)


@pytest.mark.parametrize("name", keep_some(reversed(SHARED_RANK_SETS), 1))
def test_shared_ranks(name: str) -> None:
    paths, whole = load_shared_ranks(name)
    assert_same_but_shifted(whole, [load_trace(str(path)) for path in paths])


def test_by_number_not_by_name(tmp_path: Path) -> None:
    alone = create_ranks(tmp_path)
    opened = [
        OpenedRank(number, trace.label, trace, read_collectives(trace))
        for number, trace in zip((20, 3, 100), alone, strict=True)
    ]
    ranks = merge_ranks(opened, "all").merged_ranks
    assert ranks is not None
    assert [rank.number for rank in ranks.all] == [3, 20, 100]
    assert ranks.find_rank(20) is ranks.all[1]
    assert ranks.find_rank(4) is None


def test_calls_of_an_npus_runtime_follow_their_rank(tmp_path: Path) -> None:
    paths = [tmp_path / f"rank{rank}.json" for rank in range(2)]
    for path in paths:
        path.write_text(json.dumps(npu_program(npu_op(10, 40), npu_op(100, 150))))
    alone = [load_trace(str(path), cache=False) for path in paths]
    assert [len(trace.links.called_work) for trace in alone] == [2, 2]
    assert_same_but_shifted(merge(alone), alone)
