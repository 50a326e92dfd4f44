"""Do keys answer while a trace loads? A heartbeat in the program's own event loop, and its longest pause.

The app runs headless in this process, so that the heartbeat shares its loop; the loader is the same child
process as always.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

BEAT_SECONDS = 0.002


async def _longest_pause(trace: Path) -> float:
    from torchprof_tui.app import TorchprofApp
    from torchprof_tui.trace.loading.open_trace import SingleTraceOpener

    opening = SingleTraceOpener(str(trace), cache=False)
    opening.start()
    app = TorchprofApp(opening, cache=False)
    longest = 0.0
    async with app.run_test(size=(200, 50)):
        last = time.perf_counter()
        while not app.lanes_ready.is_set():
            await asyncio.sleep(BEAT_SECONDS)
            now = time.perf_counter()
            longest = max(longest, now - last - BEAT_SECONDS)
            last = now
    opening.cancel()
    return longest


def longest_pause(trace: Path) -> float:
    """Seconds of the longest pause of the event loop between the program's first frame and the first lanes."""
    return asyncio.run(_longest_pause(trace))
