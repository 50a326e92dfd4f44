"""Measure whether the event loop responds while a trace loads, and after a key: the longest pause of a heartbeat in it.

The app runs headless in this process, so that the heartbeat shares its loop; the loader is a child process as usual.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

BEAT_SECONDS = 0.002
AFTER_KEY_SECONDS = 3.0


async def _beat(has_ended: Callable[[], bool]) -> float:
    """Seconds of the longest pause of a heartbeat until something has ended."""
    longest, last = 0.0, time.perf_counter()
    while not has_ended():
        await asyncio.sleep(BEAT_SECONDS)
        now = time.perf_counter()
        longest = max(longest, now - last - BEAT_SECONDS)
        last = now
    return longest


async def _measure_longest_pause(trace: Path) -> float:
    # deferred: the memory of this process is part of what is measured of Perfetto, before this runs
    from torchprof_tui.app import TorchprofApp
    from torchprof_tui.trace.loading.opener import SingleTraceOpener

    opener = SingleTraceOpener(str(trace), cache=False)
    opener.start()
    app = TorchprofApp(opener, cache=False)
    async with app.run_test(size=(200, 50)):
        longest = await _beat(app.lanes_ready.is_set)
    opener.cancel()
    return longest


def measure_longest_pause(trace: Path) -> float:
    """Seconds of the longest pause of the event loop between the first frame and the first lanes."""
    return asyncio.run(_measure_longest_pause(trace))


async def _measure_key(trace: Path, key: str, delay: float) -> float:
    from torchprof_tui.app import TorchprofApp
    from torchprof_tui.trace.loading.opener import SingleTraceOpener

    opener = SingleTraceOpener(str(trace))
    opener.start()
    app = TorchprofApp(opener)
    async with app.run_test(size=(200, 50)):
        await app.lanes_ready.wait()
        await asyncio.sleep(delay)
        app.simulate_key(key)
        end = time.perf_counter() + AFTER_KEY_SECONDS
        longest = await _beat(lambda: time.perf_counter() > end)
    opener.cancel()
    return longest


def measure_pause_after_key(trace: Path, key: str, delay: float) -> float:
    """Seconds of the longest pause of the event loop after a key. `delay`: seconds from the first lanes to the key."""
    return asyncio.run(_measure_key(trace, key, delay))
