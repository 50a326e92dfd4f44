"""From the start of the process to the first frame with lanes, in a real (pseudo-)terminal, and the memory it took.

The program is started as a user starts it; the clock stops when the ruler's scale has been written, which
happens in the same frame as the lanes. The cache is off, so that each run is a first opening, unless asked. Before the
clock starts, the trace is read once, and the program is started once on a small one: neither waits for a disk, as
Perfetto does not, whose page is loaded by then.
"""

from __future__ import annotations

import gc
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import PeakMemory, Terminal, read_once

FIRST_FRAME = b"Opening"
"""What the loading screen says. (The bytes before it only prepare the terminal.)"""

LANES_DRAWN = b"1 cell"
"""The ruler says how long a cell is as soon as there are lanes to measure."""


SMALL = "sample:linear_eager"


@dataclass(frozen=True)
class Opening:
    """One opening by us: seconds to the first frame of the program (0 from the cache, where it may be the lanes'), to
    lanes; peak memory of all processes."""

    first_frame_seconds: float
    seconds: float
    peak_bytes: int


def program() -> str:
    """The console script of this environment. Raises FileNotFoundError where it is not installed."""
    import sys

    beside = Path(sys.executable).with_name("torchprof-tui")
    found = str(beside) if beside.exists() else shutil.which("torchprof-tui")
    if found is None:
        raise FileNotFoundError("torchprof-tui is not installed: pip install -e .")
    return found


def open_trace(trace: Path, *, cached: bool = False, timeout: float = 300) -> Opening:
    """Open `trace` once. Raises TimeoutError where no lane was drawn in time."""
    options = [] if cached else ["--no-cache"]
    small = Terminal([program(), "--no-cache", SMALL])
    try:
        small.wait_for(LANES_DRAWN, timeout)
    finally:
        small.close()
    read_once(trace)
    terminal = Terminal([program(), *options, str(trace)])
    try:
        with PeakMemory(terminal.pid) as peak:
            first = 0.0 if cached else terminal.wait_for(FIRST_FRAME, timeout)
            seconds = terminal.wait_for(LANES_DRAWN, timeout)
        return Opening(first, seconds, peak.bytes)
    finally:
        terminal.close()


def orjson_loads(trace: Path) -> float:
    """Seconds that `orjson.loads` takes for the same bytes, inflating included: the parser that peers stand on."""
    import gzip

    import orjson

    gc.collect()
    began = time.perf_counter()
    data = trace.read_bytes()
    orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return time.perf_counter() - began
