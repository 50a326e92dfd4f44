"""Two ranks of one run: the same steps are compared one by one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.paths import find_shared_trace
from tests.helpers.pattern_traces import GEMM, NCCL, op_with_work
from tests.helpers.trace_builder import Entry, step, trace
from torchprof_tui.analysis.compare import account
from torchprof_tui.analysis.compare.account import EXPOSED
from torchprof_tui.analysis.compare.comparability import list_recording_differences
from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis, are_ranks_of_one_run, are_same_steps
from torchprof_tui.analysis.compare.side_choice import match_steps
from torchprof_tui.analysis.compare.step_selection import StepSelection
from torchprof_tui.analysis.time.chance import estimate_paired_noise
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace


def run_rank(rank: int, delays: tuple[float, ...], base: int = 0, first: int = 3) -> Trace:
    """Steps of 10 ms: a collective ends at 9 ms; the rank comes to it `delays` µs after the product at 1 ms."""
    entries: list[Entry] = []
    for index, delay in enumerate(delays):
        at = 10_000.0 * index
        arrival = at + 1_000 + delay
        entries += [
            step(first + index, at, 9_900),
            *op_with_work("aten::mm", at + 1, at + 20, 900, GEMM),
            *op_with_work("nccl:all_reduce", arrival - 10, arrival, at + 9_000 - arrival, NCCL),
            *op_with_work("aten::mm", at + 9_000, at + 9_100, 700, GEMM),
        ]
    header = {"distributedInfo": {"rank": rank, "world_size": 2}, "baseTimeNanoseconds": base}
    return trace(*entries, header=header)


def compare(a: Trace, b: Trace) -> Comparison:
    return Comparison(*match_steps(SideAnalysis(a, "a"), SideAnalysis(b, "b")))


def test_a_wait_that_differs_in_each_step_is_a_cause() -> None:
    """Rank 1 comes 1, 7 and 2 ms later: by Welch's interval of three steps each that is chance."""
    comparison = compare(run_rank(0, (100, 100, 100)), run_rank(1, (1_100, 7_100, 2_100)))
    exposed = next(part for part in comparison.account.parts if part.id == EXPOSED)
    assert exposed.delta == pytest.approx(-10_000_000 / 3, abs=2)
    assert [(number, round(time / 1e6)) for number, time in exposed.by_step] == [(3, -1), (4, -7), (5, -2)]
    assert exposed.is_within_noise is False
    steps = [b - a for a, b in zip(comparison.a.step_durations, comparison.b.step_durations, strict=True)]
    assert [time for _, time in comparison.account.by_step] == steps
    assert comparison.verdict.causes[0].part.id == EXPOSED
    assert comparison.verdict.why.startswith("A waits 3.33 ms more, as B comes later: GPU idle: host code 3.33 ms more")
    assert comparison.verdict.action == "look at B, in step #4"
    assert sum(part.delta for part in comparison.account.parts) == comparison.account.delta
    back = compare(run_rank(1, (1_100, 7_100, 2_100)), run_rank(0, (100, 100, 100)))
    assert [(part.id, -part.delta, part.noise) for part in back.account.parts] == [
        (part.id, part.delta, part.noise) for part in comparison.account.parts
    ]
    assert back.verdict.why.startswith("B waits 3.33 ms more, as A comes later")


def test_parts_of_a_sample_of_the_steps_and_the_duration_of_all_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "MAX_MEASURED_STEPS", 3)
    for count, sample in ((1, [3]), (3, [3, 4, 5]), (4, [3, 4, 6]), (6, [3, 5, 8])):
        found = compare(run_rank(0, (100,) * count), run_rank(1, (1_100,) * count)).account
        assert [number for number, _ in found.by_step] == list(range(3, 3 + count))
        assert {tuple(number for number, _ in part.by_step) for part in found.parts} == {tuple(sample)}


def test_what_goes_both_ways_is_within_the_noise() -> None:
    comparison = compare(run_rank(0, (100, 4_100, 100)), run_rank(1, (3_100, 100, 2_100)))
    exposed = next(part for part in comparison.account.parts if part.id == EXPOSED)
    assert exposed.is_within_noise is True


def test_ranks_of_one_run_are_said_to_be_compared_step_by_step() -> None:
    a, b = (SideAnalysis(run_rank(rank, (100, 200, 300)), "") for rank in (0, 1))
    assert [each.what for each in list_recording_differences(a, b)] == ["ranks of one run"]


def test_other_runs_and_the_same_rank_are_not_paired() -> None:
    delays = (100.0, 100.0, 100.0)
    first = run_rank(0, delays)
    assert are_ranks_of_one_run(first, run_rank(1, delays))
    assert not are_ranks_of_one_run(first, run_rank(0, delays))
    assert not are_ranks_of_one_run(first, run_rank(1, delays, base=10**12))  # recorded a quarter of an hour later
    assert not compare(first, run_rank(0, (900.0, 300.0, 100.0))).account.by_step


def test_only_steps_of_both_ranks_are_compared() -> None:
    a, b = match_steps(
        SideAnalysis(run_rank(0, (100,) * 4, first=2), "", StepSelection(numbers=(2, 5))),
        SideAnalysis(run_rank(1, (100,) * 3), "", StepSelection(numbers=(3, 5))),
    )
    assert [step.number for step in a.side.steps] == [step.number for step in b.side.steps] == [3, 4, 5]
    assert a.side.window[0] == 10_000_000
    assert a.side.left_out == ("step #2: not compared of the other rank",)
    assert len(a.step_durations) == 3
    assert are_same_steps(a, b)


@pytest.mark.parametrize(
    ("differences", "noise"),
    [
        ([5.0], None),
        ([-5.2, -23.3, -1.1], 0.0),  # all go one way
        ([-5.6, 3.9], 4 * 3.9 / 2),
        ([1.0, 2.0, 3.0, -1.0], 4 * 1.0 / 4),
        ([10.0, 11.0, 9.0, 10.0, -0.5], 4 * 0.5 / 5),
        ([2.0, 1.0, -1.0, 1.0, 2.0, 1.0], 4 * 1.0 / 6),
        # The paired t interval: scipy.stats.t.ppf(.975, 7) * numpy.std(ddof=1) / sqrt(8) = 2.3646 * 2.0659 / 2.8284.
        ([3.0, -1.0, 2.0, -2.0, 3.0, -1.0, 2.0, -1.0], 1.7271),
    ],
)
def test_paired_noise(differences: list[float], noise: float | None) -> None:
    measured = estimate_paired_noise(np.array(differences))
    assert measured == (None if noise is None else pytest.approx(noise, rel=2e-4))
    assert estimate_paired_noise(-np.array(differences)) == measured


def test_the_recorded_pause_of_a_rank_is_what_the_other_waits_for() -> None:
    """By raw JSON: rank 1 runs no op for 21 ms of step #4, and rank 0 is 23.3 ms longer in collectives there."""
    paths = [find_shared_trace(f"released/ddp/ddp.rank{rank}.pt.trace.json.gz") for rank in (0, 1)]
    if not all(path.exists() for path in paths):
        pytest.skip("needs the shared traces")
    comparison = compare(*(load_trace(str(path), cache=False) for path in paths))
    assert [(cause.part.id, cause.part.is_within_noise) for cause in comparison.verdict.causes[:2]] == [
        (EXPOSED, False),
        ("idle:host_code", False),
    ]
    assert comparison.verdict.why == (
        "A waits 8.85 ms more, as B comes later: GPU idle: host code 7.40 ms more, mostly in step #4"
    )
