"""Test that a known shift of the clocks is found again, with the method by which it was found."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from math import ceil
from pathlib import Path
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.long_run import scale_examples
from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.rank_traces import BASE, Collective, Run, late_rank
from tests.helpers.trace_builder import cpu, trace
from torchprof_tui.trace.model.ranks import AlignmentMethod, Clock
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.ranks import clock_alignment
from torchprof_tui.trace.ranks.clock_alignment import align_clocks


def clocks(trace: Trace) -> list[Clock]:
    assert trace.merged_ranks is not None
    return [rank.clock for rank in trace.merged_ranks.all]


def true_starts(run: Run, trace: Trace) -> list[int]:
    """The true start of each rank's first event, ns after the earliest of all."""
    begins = [min(e["ts"] for e in run.entries(rank) if "ts" in e) for rank in range(run.ranks)]
    return [round((begin - min(begins)) * 1000) for begin in begins]


def test_a_shared_base_is_used(tmp_path: Path) -> None:
    run = late_rank(3)
    trace = load_merged_ranks(run.write(tmp_path))
    assert [clock.method for clock in clocks(trace)] == [AlignmentMethod.BASE] * 3
    assert [clock.shift for clock in clocks(trace)] == true_starts(run, trace)
    assert [clock.error for clock in clocks(trace)] == [0, 0, 0]
    assert [clock.collective_count for clock in clocks(trace)] == [6, 6, 6]


def test_a_shared_base_of_machines_whose_clocks_differ_is_not_used(tmp_path: Path) -> None:
    """Rank 2's clock is 40 ms ahead, although it counts from the same base."""
    run = late_rank(3)
    run.shifts = (0.0, 0.05, 40_000.0)
    trace = load_merged_ranks(run.write(tmp_path))
    assert [clock.method for clock in clocks(trace)] == [
        AlignmentMethod.BASE,
        AlignmentMethod.BASE,
        AlignmentMethod.COLLECTIVES,
    ]
    for clock, true in zip(clocks(trace), true_starts(run, trace), strict=True):
        assert abs(clock.shift - true) <= 50
    assert clocks(trace)[2].error is not None


def test_one_collective_that_ends_late_on_a_rank_does_not_move_its_clock(tmp_path: Path) -> None:
    """The median of six collectives: their mean would be off by 10 ms, and the shared base not be believed."""
    run = late_rank(3)
    run.steps[1][0].jitter = (0.0, 0.0, 60_000.0)
    trace = load_merged_ranks(run.write(tmp_path))
    assert [clock.method for clock in clocks(trace)] == [AlignmentMethod.BASE] * 3
    assert [clock.shift for clock in clocks(trace)] == true_starts(run, trace)
    run.bases = (1, 2, 3)
    trace = load_merged_ranks(run.write(tmp_path))
    assert [clock.method for clock in clocks(trace)] == [AlignmentMethod.COLLECTIVES] * 3
    assert [clock.shift for clock in clocks(trace)] == true_starts(run, trace)


@settings(max_examples=scale_examples(0.7), deadline=None)
@given(
    st.lists(st.floats(-5e9, 5e9), min_size=2, max_size=5),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 3),
    st.data(),
)
def test_an_unshared_clock_is_found_by_the_collectives(
    shifts: list[float], per_step: list[int], jitter: int, data: st.DataObject
) -> None:
    """Each rank counts from a base of its own, and its clock is off by anything up to 83 minutes."""
    ranks = len(shifts)
    time, steps = 1000.0, []
    for count in per_step:
        step = []
        for _ in range(count):
            arrive = [time + data.draw(st.integers(0, 5000)) for _ in range(ranks)]
            off = [data.draw(st.integers(0, jitter)) for _ in range(ranks)]
            step.append(Collective(arrive, takes=data.draw(st.integers(10, 500)), jitter=off))
            time = step[-1].end + data.draw(st.integers(100, 3000))
        steps.append(step)
        time += 500
    shifts = [round(shift) for shift in shifts]
    run = Run(ranks, steps, shifts=shifts, bases=[BASE + 7_776_000 * 10**9 * k for k in range(ranks)])
    with tempfile.TemporaryDirectory() as folder:
        trace = load_merged_ranks(run.write(Path(folder)))
    assert {clock.method for clock in clocks(trace)} == {AlignmentMethod.COLLECTIVES}
    true = true_starts(run, trace)
    for clock, begin in zip(clocks(trace), true, strict=True):
        off = (clock.shift - clocks(trace)[0].shift) - (begin - true[0])
        assert abs(off) <= 2 * jitter * 1000 + 1
        assert clock.error is not None
        assert clock.error <= 2 * jitter * 1000 + 1
        assert clock.collective_count == sum(per_step)


def test_a_rank_is_aligned_through_those_it_shares_collectives_with(tmp_path: Path) -> None:
    """Ranks 0 and 1, and 1 and 2, have a group; 0 and 2 share no collective."""
    steps = [
        [
            Collective([1000 + 3000 * k, 1010 + 3000 * k, None], group="01"),
            Collective([None, 2000 + 3000 * k, 2020 + 3000 * k], group="12"),
        ]
        for k in range(3)
    ]
    run = Run(3, steps, shifts=(0, 123_456, -98_765), bases=(1, 2, 3))
    trace = load_merged_ranks(run.write(tmp_path))
    assert {clock.method for clock in clocks(trace)} == {AlignmentMethod.COLLECTIVES}
    assert [clock.shift for clock in clocks(trace)] == true_starts(run, trace)


def test_nothing_in_common(tmp_path: Path) -> None:
    run = Run(2, [[], []], shifts=(0, 50_000))
    assert [clock.method for clock in clocks(load_merged_ranks(run.write(tmp_path)))] == [AlignmentMethod.BASE] * 2
    run.bases = (BASE, BASE + 10**9)
    found = clocks(load_merged_ranks(run.write(tmp_path)))
    assert [(clock.method, clock.error, clock.collective_count) for clock in found] == [
        (AlignmentMethod.WALL, None, 0)
    ] * 2
    assert found[1].shift - found[0].shift == 10**9 + 50_000_000
    run.bases = (0, 1)  # times since each machine was started
    found = clocks(load_merged_ranks(run.write(tmp_path)))
    assert [(clock.method, clock.shift) for clock in found] == [(AlignmentMethod.NONE, 0)] * 2


def test_a_rank_that_recorded_nothing_does_not_affect_the_others(tmp_path: Path) -> None:
    """Times of a real run count from a base months ago: an empty rank's 0 is not one of them."""
    run = late_rank(3)
    run.shifts = (4e12,) * 3
    paths = run.write(tmp_path)
    document = json.loads(paths[1].read_text())
    paths[1].write_text(json.dumps({**document, "traceEvents": document["traceEvents"][:1]}))
    found = clocks(load_merged_ranks(paths))
    assert [clock.method for clock in found] == [AlignmentMethod.BASE] * 3
    assert max(clock.shift for clock in found) < 10_000_000


def test_a_rank_without_shared_collectives(tmp_path: Path) -> None:
    run = late_rank(3)
    begin = min(entry["ts"] for entry in run.entries(1) if "ts" in entry)
    early = {"ph": "X", "cat": "cpu_op", "name": "aten::early", "pid": 1001, "tid": 1001, "ts": begin - 9000, "dur": 1}
    run.more = {1: [early]}  # so that the first rank, to which the second is aligned, does not begin first
    run.bases = (1, 2, 3)
    for step in run.steps:
        for collective in step:
            collective.arrive = [*collective.arrive[:2], None]
    found = clocks(load_merged_ranks(run.write(tmp_path)))
    assert [clock.method for clock in found] == [
        AlignmentMethod.COLLECTIVES,
        AlignmentMethod.COLLECTIVES,
        AlignmentMethod.NONE,
    ]
    assert found[2].error is None
    assert found[2].shift == min(clock.shift for clock in found[:2])


@pytest.mark.parametrize("base", [None, "1790857026000000000", -5, True, 2**70])
def test_an_invalid_base_is_ignored(tmp_path: Path, base: object) -> None:
    paths = late_rank(2).write(tmp_path)
    for path in paths:
        document = json.loads(path.read_text())
        document["baseTimeNanoseconds"] = base
        path.write_text(json.dumps(document))
    assert {clock.method for clock in clocks(load_merged_ranks(paths))} == {AlignmentMethod.COLLECTIVES}


def test_the_first_event_of_a_rank_may_be_a_collective(tmp_path: Path) -> None:
    """Nothing but kernels is recorded: without launches their order is that of their starts."""
    run = late_rank(3)
    run.shifts, run.bases = (0.0, 500.0, 7.0), (1, 2, 3)
    paths = run.write(tmp_path)
    for path in paths:
        document = json.loads(path.read_text())
        document["traceEvents"] = [entry for entry in document["traceEvents"] if entry.get("cat") == "kernel"][:1]
        path.write_text(json.dumps(document))
    trace = load_merged_ranks(paths)
    assert [(clock.method, clock.collective_count) for clock in clocks(trace)] == [(AlignmentMethod.COLLECTIVES, 1)] * 3
    assert len(set((trace.start + trace.duration).tolist())) == 1


EPOCH, DAY = clock_alignment._MIN_EPOCH_TIME, clock_alignment._DAY


class DrawnClocks:
    """Ranks whose clocks count from a few bases, and the ends of their collectives, 1 ms apart or nearly so."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)

        def pick(*values: int) -> int:
            return values[int(random.random() * len(values))]

        self.ranks, self.rows = pick(1, 2, 3, 4), pick(0, 1, 3, 6, 8)
        bases = [pick(*choice) for choice in [pick_bases(pick(0, 1, 2, 3, 4))] for _ in range(self.ranks)]
        self.bases, self.origins = bases, [pick(0, 5, DAY // 2) for _ in range(self.ranks)]
        if seed % 5 == 0:
            self.origins[-1] = min(self.origins) + min(bases) - bases[-1] + pick(DAY - 1, DAY, DAY + 1)
        self.has_events = [pick(0, 1, 1, 1, 1) == 1 for _ in range(self.ranks)]
        known = [[pick(0, 1, 1) == 1 and has for has in self.has_events] for _ in range(self.rows)]
        self.known = [row for row in known if any(row)]
        self.rows = len(self.known)
        begin, off = self.find_begins(), [pick(0, 0, 0, 10**6, -(10**6) - 1, 10**9) for _ in range(self.ranks)]
        off = [each - (begin[rank] - min(begin)) % (2 * DAY) for rank, each in enumerate(off)]
        self.ends = [
            [row * 10**7 + each + pick(0, 0, 1, 3, 10**6, 10**6 + 1) for each in off] for row in range(self.rows)
        ]

    def find_begins(self) -> list[int]:
        begins = [base + origin for base, origin in zip(self.bases, self.origins, strict=True)]
        recorded = [begin for begin, has in zip(begins, self.has_events, strict=True) if has]
        return [b if has or not recorded else min(recorded) for b, has in zip(begins, self.has_events, strict=True)]

    def align(self, model: Trace, empty: Trace) -> list[Clock]:
        """Align them by `align_clocks`. `model`: of 8 events, `empty`: of none; both are shifted."""
        traces = []
        for rank in range(self.ranks):
            recorded = model if self.has_events[rank] else empty
            metadata = replace(recorded.metadata, base_time=self.bases[rank])
            recorded = replace(recorded, origin=self.origins[rank], metadata=metadata)
            if self.has_events[rank]:
                ends = np.array([*(row[rank] for row in self.ends), *[0] * (8 - self.rows)], np.int64)
                recorded = replace(recorded, start=ends - 7, duration=np.full(8, 7))
            traces.append(recorded)
        events = [[row if known else -1 for known in self.known[row]] for row in range(self.rows)]
        events.insert(self.rows // 2, [0 if has else -1 for has in self.has_events])  # does not end at once
        matched: Any = SimpleNamespace(
            events=np.array(events, np.int32), is_synchronizing=np.arange(self.rows + 1) != self.rows // 2
        )
        return align_clocks(traces, matched)

    def find_consensus(self, row: int, shifts: list[int], ranks: list[int]) -> float:
        return median(self.ends[row][rank] + shifts[rank] for rank in ranks if self.known[row][rank])

    def find_expected(self) -> list[Clock]:
        """Align them in loops."""
        ranks, begins = range(self.ranks), self.find_begins()
        of_rank = [[row for row in range(self.rows) if self.known[row][rank]] for rank in ranks]
        is_one_run, is_epoch = max(begins) - min(begins) < DAY, min(begins) > EPOCH
        bases = {base for base, has in zip(self.bases, self.has_events, strict=True) if has} or {0}
        shifts, methods = [begin - min(begins) for begin in begins], [AlignmentMethod.BASE for _ in ranks]
        aligned = list(ranks)
        if is_one_run and len(bases) == 1 and (bases != {0} or is_epoch):
            for rank in ranks:
                late = [
                    self.ends[row][rank] + shifts[rank] - self.find_consensus(row, shifts, list(ranks))
                    for row in of_rank[rank]
                ]
                if late and abs(median(late)) > 10**6:
                    aligned.remove(rank)
        elif any(of_rank):
            first = max(ranks, key=lambda rank: len(of_rank[rank]))
            aligned, shifts, methods = [first], [0 for _ in ranks], [AlignmentMethod.NONE for _ in ranks]
            methods[first] = AlignmentMethod.COLLECTIVES
        else:
            is_wall = is_one_run and is_epoch
            shifts = shifts if is_wall else [0 for _ in ranks]
            methods = [AlignmentMethod.WALL if is_wall else AlignmentMethod.NONE for _ in ranks]
        while len(aligned) < self.ranks:
            shared = [[row for row in of_rank[rank] if any(self.known[row][k] for k in aligned)] for rank in ranks]
            rank = max((rank for rank in ranks if rank not in aligned), key=lambda rank: len(shared[rank]))
            if not shared[rank]:
                break
            late = [self.find_consensus(row, shifts, aligned) - self.ends[row][rank] for row in shared[rank]]
            shifts[rank] = round(median(late))
            methods[rank] = AlignmentMethod.COLLECTIVES
            aligned.append(rank)
        for rank in ranks:
            if rank not in aligned and methods[rank] is AlignmentMethod.NONE:
                shifts[rank] = min(shifts[k] for k in aligned)
        shifts = [shift - min(shifts) for shift in shifts]
        clocks = []
        for rank in ranks:
            rows = [row for row in of_rank[rank] if sum(self.known[row]) > 1]
            errors = sorted(
                abs(self.ends[row][rank] + shifts[rank] - self.find_consensus(row, shifts, list(ranks))) for row in rows
            )
            error = int(errors[ceil(0.9 * (len(errors) - 1))]) if errors else None
            is_known = methods[rank] is not AlignmentMethod.NONE
            clocks.append(Clock(shifts[rank], methods[rank], error if is_known else None, len(rows)))
        return clocks


def pick_bases(kind: int) -> tuple[int, ...]:
    return ((0,), (7,), (EPOCH - 5, EPOCH - 4), (EPOCH + 1, EPOCH + 10**6), (0, EPOCH + 1))[kind]


def test_drawn_clocks_are_aligned_as_in_loops() -> None:
    methods = set()
    model, empty = trace(*(cpu("a", number, 1) for number in range(8))), trace()
    for seed in range(80):
        drawn = DrawnClocks(seed)
        found = drawn.align(model, empty)
        assert found == drawn.find_expected(), seed
        methods |= {clock.method for clock in found}
    assert methods == set(AlignmentMethod)
