"""Test the report of ranks that were opened together and may be of different runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.rank_traces import BASE, Run, late_rank
from tests.helpers.trace_builder import cpu, trace
from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.analysis.doctor.read_problems import Section, summarize_losses
from torchprof_tui.cli import main
from torchprof_tui.trace.core.problems import UNRELATED_RANKS
from torchprof_tui.trace.model.ranks import AlignmentMethod, Clock, Rank
from torchprof_tui.trace.ranks.merge import find_mismatched_runs

HOUR = 3600 * 10**9


def two_runs(folder: Path, second: Run) -> list[Path]:
    """Ranks 0 and 1 of one run, rank 2 of another."""
    first_run = late_rank(3).write(folder)
    other_folder = folder / "other"
    other_folder.mkdir()
    return [*first_run[:2], second.write(other_folder)[2]]


def unrelated(paths: list[Path]) -> list[str]:
    return [problem.example for problem in load_merged_ranks(paths).problems if problem.kind == UNRELATED_RANKS]


def other_steps(later: float = 0.0) -> Run:
    """A run whose collectives are of another process group, `later` µs."""
    other = late_rank(3)
    for step in other.steps:
        for collective in step:
            collective.arrive = [None if time is None else time + later for time in collective.arrive]
            collective.group = "0 another"
    return other


def test_apart_in_time_and_without_a_collective_in_common(tmp_path: Path) -> None:
    paths = two_runs(tmp_path, other_steps(later=60e6))
    ends = [
        max(e["ts"] + e.get("dur", 0) for e in json.loads(p.read_text())["traceEvents"] if "ts" in e) for p in paths
    ]
    begins = min(e["ts"] for e in json.loads(paths[2].read_text())["traceEvents"] if "ts" in e)
    apart = f"{(begins - max(ends[:2])) / 1e6:.1f} s"
    assert unrelated(paths) == [f"rank 2 shares no collective with rank 0, and was recorded {apart} apart"]
    whole = load_merged_ranks(paths)
    remark = next(remark for remark in diagnose_trace(whole).remarks if remark.kind == UNRELATED_RANKS)
    assert (remark.section, remark.count) == (Section.ODD, 1)
    assert summarize_losses(whole).startswith("ranks of different runs? rank 2 shares no collective")


def test_a_run_that_ended_before_the_first_one_began(tmp_path: Path) -> None:
    (tmp_path / "later").mkdir()
    later, earlier = other_steps(later=60e6).write(tmp_path / "later")[:2], late_rank(3).write(tmp_path)[2]
    begins = min(e["ts"] for path in later for e in json.loads(path.read_text())["traceEvents"] if "ts" in e)
    end = max(e["ts"] + e.get("dur", 0) for e in json.loads(earlier.read_text())["traceEvents"] if "ts" in e)
    apart = f"{(begins - end) / 1e6:.1f} s"
    assert unrelated([*later, earlier]) == [f"rank 2 shares no collective with rank 0, and was recorded {apart} apart"]


def test_a_default_group_of_another_name(tmp_path: Path) -> None:
    assert unrelated(two_runs(tmp_path, other_steps())) == [
        "rank 2 shares no collective with rank 0, and its default process group has another name"
    ]


def test_ranks_of_one_run_are_not_reported(tmp_path: Path) -> None:
    """Shared collectives, or no evidence against it: a rank that recorded none, clocks that cannot be compared."""
    assert unrelated(late_rank(3).write(tmp_path)) == []
    silent = late_rank(3)
    for step in silent.steps:
        for collective in step:
            collective.arrive = [collective.arrive[0], None, collective.arrive[2]]
    assert unrelated(silent.write(tmp_path)) == []
    groups = late_rank(3)  # groups of two stages of a pipeline, which share no collective
    for step in groups.steps:
        for collective in step:
            collective.group, collective.arrive = "1", [*collective.arrive[:2], None]
    assert unrelated(groups.write(tmp_path)) == []
    (tmp_path / "own").mkdir()
    clocks = Run(3, other_steps(later=60e6).steps, bases=[BASE + 3 * HOUR] * 3)
    paths = two_runs(tmp_path / "own", clocks)
    assert [text for text in unrelated(paths) if "apart" in text] == []


def test_the_command_reports_it_once_and_opens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["info", *(str(path) for path in two_runs(tmp_path, other_steps(later=60e6)))])
    out, err = capsys.readouterr()
    assert status == 0
    assert err.count("torchprof-tui: ranks of different runs? rank 2 shares no collective with rank 0") == 1
    assert "ranks of different runs?" in out


def make_rank(number: int, begin: int, end: int, method: AlignmentMethod = AlignmentMethod.BASE) -> Rank:
    recorded = trace(cpu("a", begin, end - begin), ns=True)
    recorded = replace(recorded, span=(begin, end), start=recorded.start + begin)
    return Rank(number, f"rank{number}", recorded, 0, 0, Clock(0, method, None, 0))


@pytest.mark.parametrize(
    ("spans", "found"),
    [
        ([(0, 10), (10, 20)], None),
        ([(0, 10), (11, 20)], "1 ns"),
        ([(11, 20), (0, 10)], "1 ns"),
        ([(10, 20), (0, 10)], None),
        ([(0, 10), (5, 20)], None),
        ([(0, 10), (3, 7)], None),
        ([(0, 10), (40, 50), (25, 30)], "10 ns"),  # from the nearest one
        ([(0, 10), (40, 50), (45, 60)], None),
    ],
)
def test_recordings_are_apart_that_do_not_touch(spans: list[tuple[int, int]], found: str | None) -> None:
    ranks = [make_rank(number, *span) for number, span in enumerate(spans)]
    events, groups = np.full((0, len(ranks)), -1, np.int32), [[""]] * len(ranks)
    line = f"rank {len(ranks) - 1} shares no collective with rank 0, and was recorded {found} apart"
    assert (line in find_mismatched_runs(ranks, events, groups)) == (found is not None)
    ranks[-1] = make_rank(len(ranks) - 1, *spans[-1], AlignmentMethod.COLLECTIVES)
    assert line not in find_mismatched_runs(ranks, events, groups)


@pytest.mark.parametrize(
    ("groups", "is_reported"),
    [
        ([["0 a"], ["0 b"]], True),
        ([["0 a"], ["0 a"]], False),
        ([["0 a", "1 x"], ["0 b", "1 x"]], True),
        ([["0 a"], []], False),
        ([[], ["0 b"]], False),
        ([["0 a"], ["1 b"]], False),
        ([["0 a", "0 b"], ["0 b"]], False),
        ([["0 a"], ["0 b"], ["0 b"]], False),  # of the last rank
        ([["0 a"], [], ["0 b"]], False),
        ([["0 a"], ["0 c"], ["0 b"]], True),
    ],
)
def test_all_ranks_have_one_default_group(groups: list[list[str]], is_reported: bool) -> None:
    ranks = [make_rank(number, 0, 10) for number in range(len(groups))]
    found = find_mismatched_runs(ranks, np.full((0, len(ranks)), -1, np.int32), groups)
    beginning = f"rank {len(ranks) - 1} shares no collective with rank 0"
    assert any(line.startswith(beginning) for line in found) == is_reported


def test_a_mismatch_is_reported_for_the_first_of_the_ranks_that_share_collectives() -> None:
    """Ranks 0 and 2, and 1, 3 and 4 share one; 4 with 3 alone."""
    ranks = [make_rank(number, 0, 10) for number in range(5)]
    events = np.array([[0, -1, 0, -1, -1], [-1, 0, -1, 0, -1], [-1, -1, -1, 0, 0], [-1] * 5], np.int32)
    groups = [["0 a"], ["0 b"], ["0 a"], ["0 b"], ["0 b"]]
    assert find_mismatched_runs(ranks, events, groups) == [
        "rank 1 shares no collective with rank 0, and its default process group has another name"
    ]
