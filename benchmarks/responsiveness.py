"""Measure whether the event loop responds while a trace loads: the longest pause of a heartbeat in it.

The app runs headless in this process, so that the heartbeat shares its loop; the loader is a child process as usual.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

BEAT_SECONDS = 0.002


async def _measure_longest_pause(trace: Path) -> float:
    # deferred: the memory of this process is part of what is measured of Perfetto, before this runs
    from torchprof_tui.app import TorchprofApp
    from torchprof_tui.trace.loading.open_trace import SingleTraceOpener

    opener = SingleTraceOpener(str(trace), cache=False)
    opener.start()
    app = TorchprofApp(opener, cache=False)
    longest = 0.0
    async with app.run_test(size=(200, 50)):
        last = time.perf_counter()
        while not app.lanes_ready.is_set():
            await asyncio.sleep(BEAT_SECONDS)
            now = time.perf_counter()
            longest = max(longest, now - last - BEAT_SECONDS)
            last = now
    opener.cancel()
    return longest


def measure_longest_pause(trace: Path) -> float:
    """Seconds of the longest pause of the event loop between the first frame and the first lanes."""
    return asyncio.run(_measure_longest_pause(trace))
