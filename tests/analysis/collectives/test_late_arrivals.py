"""Test late arrivals against the raw JSON of shared ranks, and on built ranks with known delays."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from tests.helpers.collective_reference import joined
from tests.helpers.long_run import keep_some
from tests.helpers.merged_ranks import SHARED_RANK_SETS, load_merged_ranks, load_shared_ranks
from tests.helpers.rank_traces import Collective, Run, late_rank
from torchprof_samples import find
from torchprof_tui.analysis.collectives.communication_waiting import Arrivals, compute_arrivals
from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State
from torchprof_tui.analysis.patterns.verdict.rank_checks import MultiRankChecker, build_rank_checker
from torchprof_tui.analysis.table.gpu_sheets import build_arrivals_sheet, measure_totals
from torchprof_tui.analysis.time.host_stalls import find_host_stalls
from torchprof_tui.trace.model.trace import Trace


def arrivals_of(trace: Trace) -> Arrivals:
    assert trace.merged_ranks is not None
    return compute_arrivals(trace.merged_ranks)


def straggler(trace: Trace) -> Finding:
    (found,), _ = MultiRankChecker(trace).check(scopes.whole_trace_scope(trace), ["straggler"])
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", keep_some(reversed(SHARED_RANK_SETS), 1))
def test_shared_ranks_against_the_json(name: str) -> None:
    """Last rank, delay, longest wait and all waits of every collective, computed from the JSON."""
    paths, trace = load_shared_ranks(name)
    expected = []
    for its in sorted(joined(paths).values(), key=lambda its: min(start for start, _ in its.values())):
        starts = {rank: start for rank, (start, _) in its.items()}
        ordered = sorted(starts.values())
        last = max(starts, key=lambda rank: starts[rank])
        waits = [ordered[-1] - start for start in ordered]
        expected.append((last, ordered[-1] - ordered[-2], ordered[-1] - ordered[0], sum(waits)))
    sheet = build_arrivals_sheet(arrivals_of(trace))
    keys = ("last_rank", "late_by", "longest_wait", "waited")
    assert list(zip(*(np.asarray(sheet.columns[key]).tolist() for key in keys), strict=True)) == expected


def test_built_ranks(tmp_path: Path) -> None:
    steps = [[Collective([100, 400, 150], takes=50), Collective([500, 500, 650], takes=20, elements=4096)]]
    found = arrivals_of(load_merged_ranks(Run(3, steps).write(tmp_path)))
    assert found.last_rank.tolist() == [1, 2]
    assert found.late_by.tolist() == [250_000, 150_000]
    assert found.spread.tolist() == [300_000, 150_000]
    assert found.wait_times.tolist() == [[300_000, 0, 250_000], [150_000, 150_000, 0]]
    assert [found.wait_intervals(rank).total for rank in range(3)] == [450_000, 150_000, 250_000]
    sheet = build_arrivals_sheet(found)
    assert sheet.columns["after"].tolist() == [50_000, 20_000]  # type: ignore[union-attr]
    assert sheet.columns["bytes"].tolist() == [4096, 16384]  # type: ignore[union-attr]
    assert list(sheet.columns["step"]) == ["#0", "#0"]
    trace = found.ranks.all[0].trace
    assert [len(sheet.members_of(row)) for row in range(2)] == [3, 3]
    assert {trace.names[trace.name[int(sheet.members_of(0)[0])]][:8]} == {"ncclDevK"}
    assert sheet.totals[0] == "rank 0: last 0 of 2, waited 450.0 µs"
    totals = measure_totals(found)
    assert (totals.unmatched, totals.before_recording, totals.incomplete, totals.mismatched) == (0, 0, 0, 0)


def test_a_rank_that_is_late_is_named(tmp_path: Path) -> None:
    trace = load_merged_ranks(late_rank(4, late=2, by=3000, steps=3).write(tmp_path))
    found = straggler(trace)
    assert found.has_fired
    assert found.answer.seen.startswith("rank 2 arrives last at 3 of 3 collectives, 3.00 ms after the others")
    # Three of four ranks wait 3 ms and some µs in each of three steps: the mean is three quarters of that.
    others = [3 * (3000 + 6 - 3 * rank) for rank in (0, 1, 3)]
    assert found.answer.at_stake == sum(others) * 1000 // 4
    assert {trace.event(event).lane.rank for event in found.answer.events.tolist()} == {0, 1, 2, 3}


def test_the_longest_delay_and_the_cause_are_named(tmp_path: Path) -> None:
    """One arrival is eight times as late as the others, and nothing runs on that rank meanwhile: its own verdict."""
    steps = []
    for number, late in enumerate((1000, 8000, 1000)):
        begin = 1000.0 + number * 12_000
        steps.append([Collective([begin + (late if rank == 1 else 0) for rank in range(3)])])
    found = straggler(load_merged_ranks(Run(3, steps).write(tmp_path)))
    assert "1.00 ms after the others in the median and 8.00 ms once" in found.answer.seen
    assert found.remedy.action.startswith("open rank 1: "), found.remedy
    even = tmp_path / "even"
    even.mkdir()
    trace = load_merged_ranks(late_rank(4, late=2, by=3000, steps=3).write(even))
    assert "median" not in straggler(trace).answer.seen


def test_ranks_that_come_together_are_well(tmp_path: Path) -> None:
    found = straggler(load_merged_ranks(late_rank(4, by=0).write(tmp_path)))
    assert found.state is State.ABSENT
    assert "9.0" in found.answer.seen or "9 µs" in found.answer.seen or "at most" in found.answer.seen


def test_nobody_is_named_where_another_one_is_late_each_time(tmp_path: Path) -> None:
    steps = []
    for number in range(4):
        begin = 1000.0 + number * 10_000
        steps.append([Collective([begin + (3000 if rank == number else 0) for rank in range(4)])])
    found = straggler(load_merged_ranks(Run(4, steps).write(tmp_path)))
    assert found.has_fired
    assert found.answer.seen.startswith("no single rank: ")


def test_nothing_joined_cannot_be_told(tmp_path: Path) -> None:
    found = straggler(load_merged_ranks(Run(2, [[], []]).write(tmp_path)))
    assert found.state is State.CANNOT_TELL


def test_each_rank_answers_for_itself(tmp_path: Path) -> None:
    """In a part of the time; events are numbered as in the rank's own trace."""
    trace = load_merged_ranks(late_rank(3, late=1, by=3000, steps=3).write(tmp_path))
    assert trace.merged_ranks is not None
    arrivals = arrivals_of(trace)
    for place, rank in enumerate(trace.merged_ranks.all):
        checker = build_rank_checker(arrivals, place)
        step = rank.trace.steps[1]
        (found,) = checker.check(scopes.step_scope(step), ["straggler"])
        assert found.has_fired
        assert "1 of 1 collective" in found.answer.seen
        assert len(found.answer.events) == 1
        event = rank.trace.event(int(found.answer.events[0]))
        assert event.name.startswith("nccl")
        assert step.start <= event.start < step.start + step.duration
        (moved,) = (each.with_event_offset(rank.first) for each in [found])
        assert trace.event(int(moved.answer.events[0])).name == event.name


def test_exposed_communication_says_how_much_is_waiting(tmp_path: Path) -> None:
    trace = load_merged_ranks(late_rank(3, late=1, by=3000).write(tmp_path))
    arrivals = arrivals_of(trace)
    (found,) = build_rank_checker(arrivals, 0).check(None, ["exposed-comm"])
    assert found.has_fired
    waited = arrivals.wait_intervals(0).total
    assert waited == 3 * (3003 + 2) * 1000
    assert "9.02 ms of it waiting for the last rank" in found.answer.seen


def test_the_late_rank_comes_before_overlap(tmp_path: Path) -> None:
    """All but 100 µs per step of exposed communication is waiting, which overlap would not hide."""
    trace = load_merged_ranks(late_rank(3, late=1, by=8000).write(tmp_path))
    arrivals = arrivals_of(trace)
    first = [build_rank_checker(arrivals, place).decide_verdict().first for place in range(3)]
    assert (
        first[0]
        == first[2]
        == ("rank 1 is late at 3 of 3 collectives, which costs 88 % of the time: check what it does before them")
    )
    assert (
        build_rank_checker(arrivals, 0)
        .decide_verdict(scopes.step_scope(arrivals.ranks.all[0].trace.steps[1]))
        .first.startswith("rank 1 is late at 1 of 1 collective, which costs ")
    )


def test_overlap_comes_first_where_nobody_is_waited_for(tmp_path: Path) -> None:
    steps = [[Collective([1000.0 + number * 10_000 + rank for rank in range(3)], takes=5000.0)] for number in range(3)]
    trace = load_merged_ranks(Run(3, steps).write(tmp_path))
    said = build_rank_checker(arrivals_of(trace), 0).decide_verdict()
    assert said.text.startswith("communication-bound")
    assert "while no kernel computes: overlap" in said.first


def test_advice_for_ranks_that_are_late_in_turn(tmp_path: Path) -> None:
    steps = []
    for number in range(4):
        begin = 1000.0 + number * 10_000
        steps.append([Collective([begin + (8000 if rank == number else 0) for rank in range(4)])])
    said = build_rank_checker(arrivals_of(load_merged_ranks(Run(4, steps).write(tmp_path))), 3).decide_verdict()
    assert said.first.startswith("different ranks are late, most often rank 0, at 1 of 4 collectives, which costs ")


def build_ranks_with_stall(folder: Path, who: int, steps: tuple[int, ...], ranks: int = 4) -> Trace:
    """Build ranks: one idles 2 ms before aten::mm in some steps; on another, a thread is busy in that time."""
    run = late_rank(ranks, by=0, steps=3)
    for rank in range(ranks):
        where = {"pid": 1000 + rank, "tid": 1000 + rank}
        entries: list[dict[str, Any]] = []
        run.more[rank] = entries
        for number, collectives in enumerate(run.steps):
            begin = 100 + number * 10_000 + 500
            pause = 2000 if rank == who and number in steps else 10
            busy = 2000 if rank == 0 and who else pause
            op = {"ph": "X", "cat": "cpu_op", "args": {}, **where}
            step = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{10 + number}", "args": {}, **where}
            entries += [
                {**step, "ts": begin - 200, "dur": 4000},
                {**op, "name": "aten::add", "ts": begin, "dur": 20},
                {**op, "name": "aten::mm", "ts": begin + 20 + max(pause, busy), "dur": 20},
            ]
            if busy > pause:
                other = {**op, "tid": 7000, "name": "aten::copy_", "ts": begin + 15, "dur": busy}
                entries.append(other)
            collectives.clear()
    run.steps = []
    return load_merged_ranks(run.write(folder))


def test_a_pause_of_one_rank_is_found(tmp_path: Path) -> None:
    trace = build_ranks_with_stall(tmp_path, 2, (0, 1, 2))
    assert trace.merged_ranks is not None
    (found,) = find_host_stalls(trace.merged_ranks)
    assert (found.rank_index, found.operator, found.step_count, found.compared_steps) == (2, "aten::mm", 3, 3)
    assert found.excess == pytest.approx(1_990_000, abs=10_000)
    event = trace.merged_ranks.all[2].trace.event(found.event)
    assert event.name == "aten::mm"


@pytest.mark.parametrize(("steps", "ranks"), [((1,), 4), ((0, 1, 2), 2)], ids=["once", "two ranks"])
def test_what_is_no_pause(steps: tuple[int, ...], ranks: int, tmp_path: Path) -> None:
    trace = build_ranks_with_stall(tmp_path, ranks - 1, steps, ranks)
    assert trace.merged_ranks is not None
    assert find_host_stalls(trace.merged_ranks) == []


def test_the_sleep_in_ddp_is_found() -> None:
    """Rank 1 sleeps 3 ms before each backward pass, inside an annotation that the search does not use.

    The others do not wait for it: rank 2 dispatches so slowly that it arrives last at every collective.
    """
    trace = load_shared_ranks("ddp")[1]
    assert trace.merged_ranks is not None
    (found,) = find_host_stalls(trace.merged_ranks)
    own = trace.merged_ranks.all[1].trace
    sleeps = [
        int(duration)
        for name, duration, category in zip(own.name, own.duration, own.category, strict=True)
        if own.names[name] == "slow_host_work" and own.categories[category] == "user_annotation"
    ]
    assert len(sleeps) == 3
    assert (found.rank_index, found.operator, found.step_count, found.compared_steps) == (1, "aten::ones_like", 3, 3)
    assert found.excess == pytest.approx(median(sleeps), abs=100_000)
    assert found.text == "pauses 3.12 ms before aten::ones_like in each step"
    assert straggler(trace).answer.seen.startswith("rank 2 arrives last at 21 of 21 collectives")


@pytest.mark.parametrize(("name", "rank"), [pytest.param("fsdp", 1, marks=pytest.mark.long), ("dlrm", 7)])
def test_the_straggler_of_shared_ranks(name: str, rank: int) -> None:
    found = straggler(load_shared_ranks(name)[1])
    assert found.has_fired
    assert found.answer.seen.startswith(f"rank {rank} arrives last at {'60 of 60' if name == 'fsdp' else '5 of 8'} ")


def test_the_late_rank_of_the_sample() -> None:
    """`train_gpt --late-rank 1` on two H200: that rank sleeps before each backward pass."""
    folder = find("train_gpt_2ranks").path
    trace = load_merged_ranks(sorted(folder.glob("*.json.gz")))
    found = straggler(trace)
    assert found.has_fired
    assert found.answer.seen.startswith("rank 1 arrives last at 4 of 4 collectives")
    assert trace.merged_ranks is not None
    assert [rank.clock.method.value for rank in trace.merged_ranks.all] == ["shared base time"] * 2
    arrivals = arrivals_of(trace)
    assert arrivals.wait_intervals(0).total > 100 * arrivals.wait_intervals(1).total
    (exposed,), _ = MultiRankChecker(trace).check(scopes.whole_trace_scope(trace), ["exposed-comm"])
    assert exposed.answer.seen.startswith("rank 0")
    assert "of it waiting for the last rank" in exposed.answer.seen


def test_absent_ranks_are_reported(tmp_path: Path) -> None:
    """Rank 1 attends no collective, rank 2 not the second: the sheet says so. A complete group needs no such column."""
    steps = [[Collective([100, None, 150]), Collective([500, None, None]), Collective([600, None, 650])]]
    sheet = build_arrivals_sheet(arrivals_of(load_merged_ranks(Run(3, steps).write(tmp_path))))
    assert "ranks" in [field.key for field in sheet.fields]
    assert sheet.columns["ranks"] == ["2 of 3", "2 of 3"]
    assert "rank 1: took part in none of these collectives; waits are computed without it" in sheet.totals
    assert sum("last 0 of 0" in line for line in sheet.totals) == 0
    (tmp_path / "all").mkdir()
    whole = build_arrivals_sheet(
        arrivals_of(load_merged_ranks(Run(2, [[Collective([100, 150])]]).write(tmp_path / "all")))
    )
    assert "ranks" not in [field.key for field in whole.fields]
    (tmp_path / "lost").mkdir()
    two = Run(3, [[Collective([100, 150, 120])]]).write(tmp_path / "lost")[:2]
    assert build_arrivals_sheet(arrivals_of(load_merged_ranks(two))).columns["ranks"] == [
        "2 of 3"
    ]  # the third is not opened
