"""Tests of background workers: items in order, errors raised to the caller."""

from __future__ import annotations

import threading

import pytest

from torchprof_tui.trace.core.thread_tasks import BackgroundWorker, submit


def test_all_items_in_order() -> None:
    done: list[int] = []
    worker = BackgroundWorker(done.append, "test", max_pending=2)
    for item in range(100):
        worker.put(item)
    worker.close()
    worker.close()
    assert done == list(range(100))


def test_none_is_a_regular_item() -> None:
    done: list[None] = []
    worker: BackgroundWorker[None] = BackgroundWorker(done.append, "test")
    worker.put(None)
    worker.close()
    assert done == [None]


def test_error_is_raised_and_put_does_not_block() -> None:
    done: list[int] = []

    def work(item: int) -> None:
        if item == 3:
            raise OSError("the disk is full")
        done.append(item)

    worker = BackgroundWorker(work, "test", max_pending=1)
    with pytest.raises(OSError, match="full"):
        list(map(worker.put, range(1000)))
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            worker.close()
    assert done == [0, 1, 2]
    assert not [thread for thread in threading.enumerate() if thread.name == "test"]


def test_cancelled_items_are_dropped() -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def work(item: int) -> None:
        begun.set()
        may_go_on.wait(10)
        done.append(item)

    worker = BackgroundWorker(work, "test")
    for item in range(5):
        worker.put(item)
    begun.wait(10)
    worker.cancel()
    may_go_on.set()
    worker.close()
    assert done == [0]


def test_submit_returns_the_result_each_time() -> None:
    started, go_on = threading.Event(), threading.Event()

    def work() -> int:
        started.set()
        assert go_on.wait(10)
        return 7

    wait = submit(work)
    assert started.wait(10)  # starts before the result is requested
    go_on.set()
    assert (wait(), wait()) == (7, 7)


def test_submit_raises_the_error_each_time() -> None:
    def work() -> None:
        raise MemoryError("no room")

    wait = submit(work)
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room"):
            wait()
