"""Clean up on a thread where the task that waits for it may be cancelled again meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

run_in_thread = asyncio.to_thread


def start_in_thread(function: Callable[[], object]) -> None:
    """Call `function` on a thread, and do not wait for it."""
    asyncio.get_running_loop().run_in_executor(None, function)


async def clean_up_in_thread(function: Callable[[], object]) -> None:
    """Call `function` on a thread and wait until it has returned, however often the task is cancelled meanwhile.

    `run_in_thread` returns at the next cancellation, and the call may then never be made. Leaving a screen cancels its
    workers twice. Raises CancelledError afterwards if there was a cancellation.
    """
    call = asyncio.ensure_future(asyncio.to_thread(function))
    cancellation: asyncio.CancelledError | None = None
    while not call.done():
        try:
            await asyncio.wait([call])
        except asyncio.CancelledError as error:
            cancellation = error
    call.result()
    if cancellation is not None:
        raise cancellation
