"""Compare the idle time of dense traces, in which bounds are met exactly and times tie, with what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from random import Random
from statistics import median

import numpy as np

from tests.helpers.stored_answers import DENSE_SEEDS, compare_answers, join_array, load_dense
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.gpu_gaps import GapFinder, Gaps, RepeatedSteps, find_one_off_gaps
from torchprof_tui.analysis.patterns.engine.host_activity import ACTIVITY_CAUSES
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.intervals import Intervals

LONG_UNIT = 500
"""µs of the grid of longer traces: calls of a millisecond and more are cold, and steps have room to wait for input."""


def describe_intervals(times: Intervals) -> str:
    return f"{join_array(times.starts)} {join_array(times.ends)}"


def describe_gaps(gaps: Gaps) -> str:
    return " ".join(join_array(getattr(gaps, column.name)) for column in fields(gaps))


def describe_idle_time(seed: int, unit: int) -> Iterator[str]:
    model = load_dense(seed, unit)
    tables = TraceTables(model)
    finder = GapFinder(tables)
    yield f"dense {seed}, {unit} µs"
    yield f" gaps {describe_gaps(finder.gaps)}"
    yield f" causes {join_array(finder.gaps.cause)} {join_array(finder.gaps.program_time)}"
    first, last = model.span
    for bounds in ((first, last), (first + 10_000 * unit, last - 12_000 * unit), (first + 1, last - 1)):
        clipped = finder.clip(*bounds)
        time = {cause.name: time for cause, time in clipped.program_time_by_cause().items()}
        yield f" from {bounds[0]} to {bounds[1]}: {time} {describe_gaps(clipped)}"
    for device in tables.devices:
        for cause in IdleCause:
            found = finder.find_cause_intervals(cause, device)
            assert found.total == int(finder.gaps.time[finder.gaps.device == device, cause].sum())
            if len(found):
                yield f" {cause.name} of GPU {device}: {describe_intervals(found)}"
        yield f" known {describe_intervals(finder.known_idle_intervals[device])}"
        yield f" input {describe_intervals(finder.input_idle_intervals[device])}"
    repeats = finder.repeated_steps
    yield " repeats " + " ".join(join_array(getattr(repeats, column.name)) for column in fields(repeats))
    numbers, activities = finder.threads
    yield f" threads {numbers.tolist()} {finder.busiest_lane}"
    for activity in activities:
        for cause, times in zip(ACTIVITY_CAUSES, activity, strict=True):
            if len(times):
                yield f"  {cause.name} {describe_intervals(times)}"
    for name in ("sync_calls", "blocking_copies", "loader_calls", "input_waits", "cold_calls", "cpu_ops"):
        table = getattr(finder, name)
        yield f" {name} {join_array(table.row)} {join_array(table.start)} {join_array(table.end)}"
    yield f" cold ops {describe_intervals(finder.cold_ops)}"


def test_answers_of_dense_traces() -> None:
    seeds = [(seed, unit) for unit in (5, LONG_UNIT) for seed in DENSE_SEEDS]
    compare_answers("idle-time", (line for seed, unit in seeds for line in describe_idle_time(seed, unit)))


def test_a_one_off_gap_is_long_in_one_step_alone() -> None:
    least, ratio, random = int(thresholds.ONE_OFF_MIN.value), thresholds.ONE_OFF_RATIO.value, Random(5)
    sizes = [0, 1, least - 1, least, least + 1, int(ratio * least) - 1, int(ratio * least), int(ratio * least) + 1]
    for count in (3, 4, 5, 6):
        gap = np.array([[random.choice(sizes) for _ in range(300)] for _ in range(count)])
        empty = np.zeros((0, 0), np.int64)
        found = find_one_off_gaps(RepeatedSteps(np.arange(count), empty, np.zeros_like(gap), gap, empty))
        expected = []
        for position in range(gap.shape[1]):
            column = gap[:, position].tolist()
            longest = column.index(max(column))
            usual = median(column[:longest] + column[longest + 1 :])
            if sum(length >= max(ratio * usual, least) for length in column) == 1:
                expected.append((longest, position, usual))
        assert expected
        assert list(zip(*(each.tolist() for each in found), strict=True)) == expected
