"""Measure the time from the start of the process to the first frame with lanes, in a pseudo-terminal, and the memory.

The program is started as a user starts it; the clock stops when the title of the whole trace is written, in the same
frame as its lanes. By default the cache is off, so that each run is a first opening. Before the clock starts, the trace
is read once, and the program is started once with a small trace, so that no disk access is measured; nor is it for
Perfetto, whose page is loaded before.
"""

from __future__ import annotations

import gc
import gzip
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import orjson

from benchmarks.measure import PeakMemory, Terminal, read_once

FIRST_FRAME = b"Opening"
"""Text of the loading screen. The bytes before it only prepare the terminal."""

EARLY_DRAWN = b"1 cell"
"""Text of the ruler, which gives the length of a cell as soon as there are lanes, also of the beginning of a trace."""

LANES_DRAWN = b"% of trace"
"""Text of the title when the whole trace is on screen: how busy its GPUs were."""

VERDICT_DRAWN = (b"-bound", b"mixed", b"cpu-only", b"undetermined")
"""Texts of which one begins the verdict: the regime."""

SMALL = "sample:linear_eager"


@dataclass(frozen=True)
class Opening:
    """One opening: seconds to the first frame of the program (0 from the cache, where it may be that of the lanes), to
    lanes of the beginning of the trace, to all lanes, and to the verdict; peak memory of all processes until all lanes.
    """

    first_frame_seconds: float
    early_seconds: float
    seconds: float
    peak_bytes: int
    verdict_seconds: float


def find_program() -> str:
    """Find the console script of this environment. Raises FileNotFoundError if it is not installed."""
    local = Path(sys.executable).with_name("torchprof-tui")
    command = str(local) if local.exists() else shutil.which("torchprof-tui")
    if command is None:
        raise FileNotFoundError("torchprof-tui is not installed: pip install -e .")
    return command


def open_trace(trace: Path, *, cached: bool = False, timeout: float = 300) -> Opening:
    """Open `trace` once. Raises TimeoutError if no lane is drawn in time."""
    options = [] if cached else ["--no-cache"]
    small = Terminal([find_program(), "--no-cache", SMALL])
    try:
        small.wait_for(LANES_DRAWN, timeout)
    finally:
        small.close()
    read_once(trace)
    terminal = Terminal([find_program(), *options, str(trace)])
    try:
        with PeakMemory(terminal.pid) as peak:
            first = 0.0 if cached else terminal.wait_for(FIRST_FRAME, timeout)
            early = terminal.wait_for(EARLY_DRAWN, timeout)
            seconds = terminal.wait_for(LANES_DRAWN, timeout)
        verdict = terminal.wait_for(VERDICT_DRAWN, timeout)
        return Opening(first, early, seconds, peak.bytes, verdict)
    finally:
        terminal.close()


def time_orjson(trace: Path) -> float:
    """Seconds that `orjson.loads`, the parser that other tools use, takes for the same bytes, with decompression."""
    gc.collect()
    start = time.perf_counter()
    data = trace.read_bytes()
    orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return time.perf_counter() - start
