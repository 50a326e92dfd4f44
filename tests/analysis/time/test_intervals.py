"""Sets of time against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest

from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, find_range_at, union, unite

SPAN = 400


def _random_set(rng: np.random.Generator, count: int) -> Intervals:
    starts = rng.integers(0, SPAN, count).astype(np.int64)
    return union(starts, np.minimum(starts + rng.integers(0, 6, count), SPAN))


def _list_times(times: Intervals) -> set[int]:
    return {
        time
        for start, end in zip(times.starts.tolist(), times.ends.tolist(), strict=True)
        for time in range(start, end)
    }


def _check_form(times: Intervals) -> None:
    assert (times.starts < times.ends).all()
    assert (times.starts[1:] > times.ends[:-1]).all(), "intervals touch or are not in order"


@pytest.mark.parametrize(("count", "other_count"), [(0, 0), (0, 9), (9, 0), (1, 60), (60, 1), (40, 40), (90, 10)])
def test_operations_agree_with_sets_of_single_times(count: int, other_count: int) -> None:
    rng = np.random.default_rng(count * 100 + other_count)
    for _ in range(50):
        one, other = _random_set(rng, count), _random_set(rng, other_count)
        for found, expected in (
            (one & other, _list_times(one) & _list_times(other)),
            (one - other, _list_times(one) - _list_times(other)),
            (one | other, _list_times(one) | _list_times(other)),
        ):
            _check_form(found)
            assert _list_times(found) == expected
        assert one.measure_overlap(other) == (one & other).total


@pytest.mark.parametrize("count", [0, 1, 12])
def test_times_and_ranges_are_measured_as_sets_of_single_times(count: int) -> None:
    rng = np.random.default_rng(count)
    for _ in range(20):
        one = _random_set(rng, count)
        times = _list_times(one)
        points = np.arange(-2, SPAN + 4)
        assert one.total == len(times)
        assert one.contains(points).tolist() == [point in times for point in points.tolist()]
        before = [sum(time < point for time in times) for point in points.tolist()]
        assert one.measure_before(points).tolist() == before
        t0, t1 = rng.integers(-2, SPAN + 3, (2, 20))
        t1 = np.where(rng.random(20) < 0.3, t0 + 1, t1)
        for low, high in zip(t0.tolist(), t1.tolist(), strict=True):
            inside = {time for time in times if low <= time < high}
            clipped = one.clip(low, high)
            _check_form(clipped)
            assert _list_times(clipped) == inside
            assert one.measure_between(low, high) == len(inside)
        expected = [before[high + 2] - before[low + 2] for low, high in zip(t0.tolist(), t1.tolist(), strict=True)]
        assert one.measure_within(t0, t1).tolist() == expected


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_the_last_range_that_began_is_found(count: int) -> None:
    rng = np.random.default_rng(count)
    for _ in range(20):
        starts = np.sort(rng.integers(0, 20, count))
        ends = starts + rng.integers(0, 9, count)
        times = np.arange(-1, 32)
        began = [max((k for k in range(count) if starts[k] <= time), default=-1) for time in times.tolist()]
        expected = [k if k >= 0 and time < ends[k] else -1 for k, time in zip(began, times.tolist(), strict=True)]
        assert find_range_at(starts, ends, times).tolist() == expected


@pytest.mark.parametrize("counts", [(), (0,), (5,), (0, 7, 0), (9, 30, 4, 1)])
def test_many_sets_are_united_at_once(counts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(counts))
    for _ in range(30):
        sets = [_random_set(rng, count) for count in counts]
        found = unite(iter(sets))
        _check_form(found)
        assert _list_times(found) == set().union(*map(_list_times, sets))


def test_touching_sets_have_no_time_in_common() -> None:
    one, other = union(np.array([0, 20]), np.array([10, 30])), union(np.array([10, 30]), np.array([20, 40]))
    assert len(one & other) == 0
    assert (one - other).starts.tolist() == [0, 20]
    assert (one | other).ends.tolist() == [40]
    assert len(NO_INTERVALS - one) == 0
