"""The compared steps: warm-up steps are found and left out, and a user may choose."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.pattern_traces import GEMM, op_with_work
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, overhead, runtime, step, trace
from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.analysis.compare.side_analysis import choose_side
from torchprof_tui.analysis.compare.step_selection import (
    AUTOMATIC,
    ComparisonError,
    StepSelection,
    parse_step_numbers,
    split_sides,
)
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules import warmup
from torchprof_tui.analysis.time.chance import estimate_difference_noise, estimate_spread, estimate_standard_error


def steps_of(*durations: float, first_number: int = 0, more: list[Entry] | None = None) -> TraceTables:
    entries: list[Entry] = list(more or [])
    start = 0.0
    for number, duration in enumerate(durations, first_number):
        entries += [step(number, start, duration), *op_with_work("aten::mm", start + 1, start + 12, 5)]
        start += duration
    return TraceTables(trace(*entries))


def choose(tables: TraceTables, selection: StepSelection = AUTOMATIC) -> Side:
    return choose_side(tables, "t", selection)


def numbers(side: Side) -> list[int]:
    return [each.number for each in side.steps]


def test_even_steps_are_all_compared() -> None:
    side = choose(steps_of(100, 103, 98, 101))
    assert numbers(side) == [0, 1, 2, 3]
    assert side.left_out == ()
    assert side.window == (0, 402_000)


def test_steps_of_the_profiler_around_those_of_a_serving_engine_are_compared() -> None:
    """The trace's steps are the engine's; the steps that are alike are the profiler's."""
    engine = [annotation("step[DECODE bs=8]", 100.0 * number + 2, 90) for number in range(4)]
    side = choose(steps_of(100, 100, 100, 100, first_number=3, more=engine))
    assert numbers(side) == [3, 4, 5, 6]


def test_a_long_first_step_is_left_out_and_told() -> None:
    side = choose(steps_of(300, 103, 98, 101, first_number=7))
    assert numbers(side) == [8, 9, 10]
    assert side.window == (300_000, 602_000)
    (reason,) = side.left_out
    assert reason.startswith("step #7 (300.0 µs, later ones 101.0 µs)")


def test_a_long_step_in_the_middle_is_compared() -> None:
    assert numbers(choose(steps_of(100, 103, 300, 101, 99))) == [0, 1, 2, 3, 4]


def test_steps_that_get_faster_are_left_out_but_two_remain() -> None:
    side = choose(steps_of(963, 586, 408, 359))
    assert numbers(side)[0] >= 2
    assert len(side.steps) >= 1
    assert len(side.left_out) + len(side.steps) == 4


def test_two_steps_are_left_only_if_the_first_is_twice_as_long() -> None:
    assert numbers(choose(steps_of(150, 100))) == [0, 1]
    assert numbers(choose(steps_of(250, 100))) == [1]


def test_cold_calls_are_named_as_the_reason() -> None:
    cold = [runtime("cudaMalloc", 20, 2500, corr=1)]
    side = choose(steps_of(4000, 3900, 4100, 3950, more=cold))
    assert numbers(side) == [1, 2, 3]
    assert "cold calls take 62 % of it" in side.left_out[0]


def test_the_start_of_the_profiler_is_named_as_the_reason() -> None:
    side = choose(steps_of(100, 90, 95, more=[overhead("Activity Buffer Request", 30, 60)]))
    assert numbers(side) == [1, 2]
    assert "the profiler's own start takes 60 % of it" in side.left_out[0]


def test_one_step_and_no_steps() -> None:
    assert numbers(choose(steps_of(100))) == [0]
    side = choose(TraceTables(trace(cpu("aten::mm", 5, 10), cpu("aten::mm", 50, 10))))
    assert side.steps == ()
    assert side.step_count == 1
    assert side.duration == 55_000


def test_steps_by_number_include_the_warm_up() -> None:
    side = choose(steps_of(300, 100, 101, 99, first_number=2), StepSelection(numbers=(2, 3)))
    assert numbers(side) == [2, 3]
    assert side.left_out == ()


def test_steps_that_are_not_there_are_one_line() -> None:
    with pytest.raises(ComparisonError, match="no step #7 to #9: it has steps #0 to #2"):
        choose(steps_of(100, 100, 100), StepSelection(numbers=(7, 9)))
    with pytest.raises(ComparisonError, match="it has no steps"):
        choose(TraceTables(trace(cpu("aten::mm", 5, 10))), StepSelection(numbers=(7, 9)))


def test_a_range_takes_whole_steps_or_is_one_piece() -> None:
    tables = steps_of(100, 100, 100)
    assert numbers(choose(tables, StepSelection(time_range=(90_000, 300_000)))) == [1, 2]
    assert numbers(choose(tables, StepSelection(time_range=(100_000, 300_000)))) == [1, 2]  # as long as the steps
    piece = choose(tables, StepSelection(time_range=(90_000, 130_000)))
    assert piece.steps == ()
    assert piece.window == (90_000, 130_000)
    with pytest.raises(ComparisonError, match="nothing in that range"):
        choose(tables, StepSelection(time_range=(900_000, 930_000)))


@pytest.mark.parametrize(
    ("text", "expected"), [("3", (3, 3)), ("#3", (3, 3)), ("3..7", (3, 7)), ("#3..#7", (3, 7)), ("7..7", (7, 7))]
)
def test_step_numbers_are_parsed(text: str, expected: tuple[int, int]) -> None:
    assert parse_step_numbers(text) == expected


def test_steps_for_both_sides_are_split_at_the_slash() -> None:
    assert split_sides("3..7") == ("3..7", "3..7")
    assert split_sides("3/4/5") == ("3", "4/5")
    assert split_sides("3/") == ("3", "")


def test_steps_are_chosen_automatically_without_numbers_and_range() -> None:
    assert AUTOMATIC.is_automatic
    for selection in (StepSelection((1, 2)), StepSelection(None, (1, 2)), StepSelection((1, 2), (1, 2))):
        assert not selection.is_automatic


@pytest.mark.parametrize("text", ["", "x", "7..3", "-1", "3..", "..7"])
def test_what_are_no_step_numbers_is_one_line(text: str) -> None:
    with pytest.raises(ComparisonError):
        parse_step_numbers(text)


def test_no_more_than_the_limit_of_warm_up_steps_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = steps_of(*(20_000.0 * 0.9**number for number in range(30)))
    assert len(choose(tables).left_out) > 5
    monkeypatch.setattr(warmup, "_MAX_WARMUP_STEPS", 5)
    assert numbers(choose(tables))[0] == 5


def test_the_spread_of_normal_values_is_their_standard_deviation() -> None:
    values = np.random.default_rng(1).normal(1000, 50, 20_000)
    assert estimate_spread(values) == pytest.approx(50, rel=0.03)


@pytest.mark.parametrize("count", keep_some([2, 3, 4, 5, 8, 12], 2))
def test_the_spread_of_few_values_is_not_too_small(count: int) -> None:
    samples = np.random.default_rng(count).normal(0, 1, (4_000, count))
    assert np.mean([estimate_spread(sample) for sample in samples]) == pytest.approx(1, rel=0.05)


def test_one_long_step_makes_the_mean_uncertain() -> None:
    """The median absolute deviation does not see it, but the mean moves by 50."""
    values = np.array([1000.0] * 19 + [2000.0])
    assert estimate_spread(values) == 0
    error = estimate_standard_error(values)
    assert error is not None
    assert error == pytest.approx(50)


def test_welch_interval_of_two_equal_samples() -> None:
    """Two of five values with s = sqrt(2.5): the error of the difference is 1, with 8 degrees of freedom."""
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert estimate_difference_noise(values, values) == pytest.approx(2.306)


def test_a_sample_of_the_steps_stands_for_all() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0])
    all_of_them, sampled = estimate_standard_error(values), estimate_standard_error(values, 400)
    assert all_of_them is not None
    assert sampled == pytest.approx(all_of_them / 10)


def test_sides_that_do_not_overlap_differ() -> None:
    """Steps of a starved loader: far apart among themselves, and further from those with workers."""
    starved, mended = np.array([370.2, 109.6, 191.7, 361.1]), np.array([24.6, 24.2, 27.4, 28.4])
    noise = estimate_difference_noise(starved, mended)
    assert noise is not None
    assert noise < starved.mean() - mended.mean()


def test_one_step_cannot_tell_and_equal_steps_have_none() -> None:
    one, equal = np.array([5.0]), np.array([5.0, 5.0, 5.0])
    assert estimate_difference_noise(one, equal) is None
    assert estimate_difference_noise(equal, equal) == 0.0


def test_chance_alone_is_called_noise() -> None:
    random = np.random.default_rng(0)
    outside = 0
    for _ in range(2000):
        a, b = random.normal(100, 5, 4), random.normal(100, 5, 4)
        noise = estimate_difference_noise(a, b)
        assert noise is not None
        outside += abs(a.mean() - b.mean()) > noise
    assert outside < 0.06 * 2000


def test_steps_that_queue_work_are_as_long_as_the_work() -> None:
    """The CPU takes 20 µs for a step, the GPU 100: it runs ahead."""
    entries = []
    for number in range(3):
        entries += [step(number, 20.0 * number, 20)]
        entries += op_with_work("aten::mm", 20.0 * number + 2, 20 + 100.0 * number, 100, GEMM)
    assert TraceTables(trace(*entries)).step_bounds.tolist() == [0, 120_000, 220_000, 320_000]


def test_the_first_step_begins_when_the_gpu_has_done_what_was_launched_before() -> None:
    """As a recording of one step of a Qwen chat: 13 of its 47 ms are the iteration before, launched before it began."""
    entries = [kernel("before", 0, 70, 90), step(1, 5, 50), *op_with_work("aten::mm", 10, 72, 40)]
    assert TraceTables(trace(*entries)).step_bounds.tolist() == [70_000, 112_000]
    launched_outside = [*op_with_work("aten::mm", 0, 10, 60), step(1, 20, 30), *op_with_work("aten::add", 30, 72, 40)]
    assert TraceTables(trace(*launched_outside)).step_bounds.tolist() == [70_000, 112_000]


def test_steps_that_wait_for_the_gpu_end_with_the_cpu() -> None:
    entries = [step(0, 0, 50), step(1, 60, 50), *op_with_work("aten::mm", 2, 12, 20), cpu("aten::add", 70, 5)]
    assert TraceTables(trace(*entries)).step_bounds.tolist() == [0, 50_000, 110_000]


def test_no_steps_have_no_bounds() -> None:
    assert not len(TraceTables(trace(cpu("aten::mm", 0, 10))).step_bounds)
