"""Measure how fast a stream is decoded on one core: `python -m benchmarks.streams TRACE.json [TRACE.json.gz]`.

`cat` writes the file into a pipe, as ssh would; a process that is pinned to one core reads and decodes it. The result
is text per second from the first block to the last entry, without building and storing the trace, which follow.
Processor time is reported as well, because other programs may share that core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.sources.source import open_source

GOAL = 200
"""MB of JSON per second: what a fast disk or network delivers."""

_CHILD = "from benchmarks.streams import decode_stdin; decode_stdin()"


def decode_stdin() -> None:
    """Decode stdin on one core, and print the measurements as JSON; in a process of its own."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        source = open_source("-")
        wall, processor = time.perf_counter(), time.process_time()
        decoded = decode_trace(source, Path(folder))
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(json.dumps({"bytes": decoded.size, "entries": len(decoded.events), "seconds": wall, "processor": processor}))


def measure(trace: Path) -> dict[str, float]:
    """Decode once from a pipe. Returns bytes of text, entries, seconds and processor seconds."""
    cat = subprocess.Popen(["cat", str(trace)], stdout=subprocess.PIPE)
    done = subprocess.run([sys.executable, "-c", _CHILD], stdin=cat.stdout, capture_output=True, check=True)
    cat.wait()
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def main() -> None:
    print(f"{len(os.sched_getaffinity(0))} cores here; one is used; goal {GOAL} MB/s")
    for name in sys.argv[1:]:
        best = max((measure(Path(name)) for _ in range(3)), key=lambda run: run["bytes"] / run["seconds"])
        wall, processor = (best["bytes"] / 1e6 / best[key] for key in ("seconds", "processor"))
        print(
            f"{name}: {best['bytes'] / 1e6:,.0f} MB of JSON: {wall:,.0f} MB/s, {processor:,.0f} MB a processor second"
        )


if __name__ == "__main__":
    main()
