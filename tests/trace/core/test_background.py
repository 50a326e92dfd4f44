"""Work behind another's back: in order, and what goes wrong is told to who put it there."""

from __future__ import annotations

import threading

import pytest

from torchprof_tui.trace.core.background import BackgroundWorker, submit


def test_all_items_in_order() -> None:
    done: list[int] = []
    behind = BackgroundWorker(done.append, "test", max_pending=2)
    for item in range(100):
        behind.put(item)
    behind.close()
    behind.close()
    assert done == list(range(100))


def test_none_is_an_item_as_any_other() -> None:
    done: list[None] = []
    behind: BackgroundWorker[None] = BackgroundWorker(done.append, "test")
    behind.put(None)
    behind.close()
    assert done == [None]


def test_what_goes_wrong_is_raised_and_nobody_waits_for_ever() -> None:
    done: list[int] = []

    def work(item: int) -> None:
        if item == 3:
            raise OSError("the disk is full")
        done.append(item)

    behind = BackgroundWorker(work, "test", max_pending=1)
    with pytest.raises(OSError, match="full"):
        list(map(behind.put, range(1000)))
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            behind.close()
    assert done == [0, 1, 2]
    assert not [thread for thread in threading.enumerate() if thread.name == "test"]


def test_what_is_dropped_is_not_done() -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def work(item: int) -> None:
        begun.set()
        may_go_on.wait(10)
        done.append(item)

    behind = BackgroundWorker(work, "test")
    for item in range(5):
        behind.put(item)
    begun.wait(10)
    behind.cancel()
    may_go_on.set()
    behind.close()
    assert done == [0]


def test_aside_gives_what_was_found_again_and_again() -> None:
    began, go_on = threading.Event(), threading.Event()

    def work() -> int:
        began.set()
        assert go_on.wait(10)
        return 7

    found = submit(work)
    assert began.wait(10)  # nobody has asked yet
    go_on.set()
    assert (found(), found()) == (7, 7)


def test_aside_raises_what_went_wrong_again_and_again() -> None:
    def work() -> None:
        raise MemoryError("no room")

    found = submit(work)
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room"):
            found()
