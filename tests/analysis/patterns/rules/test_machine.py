"""Test the pattern of clocks that change over time, or between ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis.patterns.rules import test_cpu_contention
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import GEMM, NCCL, check_pattern
from tests.helpers.trace_builder import TID, Entry, cpu, event, kernel, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import whole_trace_scope
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import machine
from torchprof_tui.analysis.patterns.verdict.rank_checks import MultiRankChecker
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.ranks.collective_matching import read_collectives
from torchprof_tui.trace.ranks.merge import OpenedRank, merge_ranks


def runs(*durations: float, collective: bool = False) -> list[Entry]:
    """Runs of one kernel, each launched by an op; `collective`: beside one that runs all the time."""
    entries: list[Entry] = []
    for number, duration in enumerate(durations):
        at, corr = 500.0 * number, number + 1
        entries += [cpu("aten::mm", at, 20), runtime("cudaLaunchKernel", at + 5, 5, corr)]
        entries.append(kernel(GEMM, at + 30, duration, corr, grid=[132, 1, 1], block=[128, 1, 1]))
    if collective:
        entries.append(kernel(NCCL, 0, 500.0 * len(durations), 999, stream=20))
    return entries


DROP = runs(*[100] * 6, *[110] * 4, *[125] * 6)
CASES: Cases = {
    "clock-variation": {FIRED: DROP, ABSENT: runs(*[100, 102] * 8), CANNOT_TELL: runs(*[100] * 8)},
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(machine, CASES | test_cpu_contention.CASES, {"slow-host": set(State)})


def test_the_change_and_its_time_are_measured() -> None:
    finding = check_pattern(trace(*DROP), "clock-variation")
    assert finding.answer.seen == (
        "the same kernels take 1.25× as long in the late third of their runs (1 kernel, 100 % of GPU time)"
    )
    assert finding.answer.at_stake == 5 * 25_000  # a third of 16 runs


def stepped(*durations: float, other: float = 400) -> list[Entry]:
    """Steps that run one kernel twice on the same grid, on different data."""
    entries: list[Entry] = []
    for number, duration in enumerate(durations):
        at, corr = 2000.0 * number, 2 * number + 1
        entries.append(step(number, at, 1900))
        for index, length in enumerate((duration, other)):
            entries += [
                cpu("aten::mm", at + 50 * index, 20),
                runtime("cudaLaunchKernel", at + 50 * index + 5, 5, corr + index),
            ]
            entries.append(
                kernel(GEMM, at + 100 + 700 * index, length, corr + index, grid=[132, 1, 1], block=[128, 1, 1])
            )
    return entries


def test_steps_are_compared_place_by_place() -> None:
    drop = check_pattern(trace(*stepped(100, 100, 110, 120, 130, 130, other=10)), "clock-variation")
    assert "1.30× as long in the late third" in drop.answer.seen  # the shorter kernel is not compared
    assert drop.answer.at_stake == 2 * 30_000
    assert check_pattern(trace(*stepped(*[100] * 6)), "clock-variation").state is ABSENT


def test_clocks_may_rise_as_well() -> None:
    finding = check_pattern(trace(*runs(*[125] * 6, *[110] * 4, *[100] * 6)), "clock-variation")
    assert "1.25× as long in the early third" in finding.answer.seen


@pytest.mark.parametrize(
    "entries",
    [runs(*[10] * 8, *[15] * 8), runs(*[100] * 8, *[130] * 8, collective=True)],
    ids=["too short", "beside a collective"],
)
def test_other_reasons_are_left_out(entries: list[Entry]) -> None:
    assert check_pattern(trace(*entries), "clock-variation").state is CANNOT_TELL


def test_ranks_are_compared() -> None:
    ranks = [trace(*runs(*[duration] * 6)) for duration in (100, 100, 120)]
    merged = merge_ranks(
        [OpenedRank(number, f"r{number}.json", rank, read_collectives(rank)) for number, rank in enumerate(ranks)], "r"
    )
    finding = MultiRankChecker(merged).check(whole_trace_scope(merged), ["clock-variation"])[0][0]
    assert finding.answer.seen == "rank 2: this GPU takes 1.20× as long as rank 0's for the same kernels (1)"


def test_inputs_that_grow_explain_why_a_kernel_takes_longer(tmp_path: Path) -> None:
    def decide(lengths: list[int]) -> State:
        entries = []
        for number, length in enumerate(lengths):
            at, corr = 500.0 * number, number + 1
            dims = {"Input Dims": [[length, 64], [64, 64]], "External id": corr}
            entries += [event("aten::mm", at, 20, "cpu_op", tid=TID, args=dims)]
            entries += [runtime("cudaLaunchKernel", at + 5, 5, corr)]
            entries.append(kernel(GEMM, at + 30, 100 if number < 8 else 130, corr, grid=[132, 1, 1], block=[128, 1, 1]))
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"traceEvents": entries}))
        return check_pattern(load_trace(str(path), cache=False), "clock-variation").state

    assert decide([64] * 16) is State.FIRED
    assert decide([64] * 8 + [96] * 8) is State.CANNOT_TELL
