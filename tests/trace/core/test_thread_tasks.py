"""Test tasks on threads: all run, an error ends them, no thread is left."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from torchprof_tui.trace.core import thread_tasks
from torchprof_tui.trace.core.thread_tasks import (
    accumulate_parallel,
    bincount_parallel,
    find_indexes,
    keep_threads,
    run_slices,
    run_tasks,
    take_parallel,
)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_all_tasks_run_once(threads: int) -> None:
    done: list[int] = []
    run_tasks([lambda number=number: done.append(number) for number in range(20)], threads)  # type: ignore[misc]
    assert sorted(done) == list(range(20))
    run_tasks([], threads)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_is_raised_when_all_threads_have_ended(threads: int) -> None:
    before = threading.active_count()
    done: list[int] = []

    def fail() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run_tasks([lambda: done.append(1), fail, *[lambda: done.append(2)] * 50], threads)
    assert threading.active_count() == before
    assert 1 in done


def test_slices_cover_a_column_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_tasks, "count_cores", lambda: 5)
    monkeypatch.setattr(thread_tasks, "MIN_SLICE_SIZE", 1 << 16)
    for size in (0, 1, 65_536, 65_537, 1_000_000):
        counts = np.zeros(size, np.int64)

        def count(part: slice, counts: np.ndarray = counts) -> None:
            counts[part] += 1

        run_slices(count, size)
        assert (counts == 1).all()
    column = np.random.default_rng(0).integers(0, 100, 500_000)
    indices = np.random.default_rng(1).permutation(len(column)).astype(np.int32)
    assert np.array_equal(take_parallel(column, indices), column[indices])


@pytest.mark.parametrize("threads", [1, 5])
def test_parallel_columns_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(thread_tasks, "count_cores", lambda: threads)
    monkeypatch.setattr(thread_tasks, "MIN_SLICE_SIZE", 1 << 16)
    for size in (0, 1, 65_537, 500_000):
        column = np.random.default_rng(size).integers(-(2**62), 2**62, size)  # sums of them overflow
        chosen = column % 3 == 0
        found = find_indexes(lambda block, chosen=chosen: chosen[block], size)  # type: ignore[misc]
        assert found.dtype == np.int32
        assert np.array_equal(found, np.flatnonzero(chosen))
        assert np.array_equal(bincount_parallel(column % 7, 9), np.bincount(column % 7, minlength=9))
        latest = column.copy()
        accumulate_parallel(np.maximum, latest)
        assert np.array_equal(latest, np.maximum.accumulate(column))
        expected = np.cumsum(column)
        accumulate_parallel(np.add, column)
        assert np.array_equal(column, expected)


def test_threads_are_kept_and_then_end() -> None:
    """Calls from several threads at once, one in the other, and failing ones, on threads that end together."""
    before = threading.active_count()
    done: list[int] = []

    def count() -> None:
        run_tasks([lambda: done.append(1)] * 30, 4)

    def fail() -> None:
        raise ValueError("no")

    with keep_threads(), keep_threads():
        for _ in range(20):
            others = [threading.Thread(target=count) for _ in range(3)]
            for other in others:
                other.start()
            run_tasks([count] * 8, 4)
            with pytest.raises(ValueError, match="no"):
                run_tasks([fail] * 8, 4)
            for other in others:
                other.join()
        assert before < threading.active_count() <= before + 2 * thread_tasks.MAX_THREADS
    assert len(done) == 20 * (3 + 8) * 30
    assert threading.active_count() == before
    count()
    assert threading.active_count() == before


def test_cores_are_counted_only_where_threads_may_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting reads files of the cgroup, which takes longer than a short column."""

    def fail() -> int:
        raise AssertionError("counted")

    monkeypatch.setattr(thread_tasks, "count_cores", fail)
    run_slices(lambda _: None, 2 * thread_tasks.MIN_SLICE_SIZE - 1)
    with pytest.raises(AssertionError, match="counted"):
        run_slices(lambda _: None, 2 * thread_tasks.MIN_SLICE_SIZE)
