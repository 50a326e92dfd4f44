"""Cleaning up in a task that is cancelled more than once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from torchprof_tui.trace.loading.cleanup import clean_up_in_thread


async def test_a_second_cancellation_does_not_end_the_cleanup() -> None:
    began, may_end = threading.Event(), threading.Event()
    done: list[bool] = []

    def clean_up() -> None:
        began.set()
        may_end.wait(60)
        done.append(True)

    task = asyncio.create_task(clean_up_in_thread(clean_up))
    await asyncio.to_thread(began.wait, 60)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.01)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]


async def test_a_cleanup_that_fails_says_so() -> None:
    def clean_up() -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        await clean_up_in_thread(clean_up)
