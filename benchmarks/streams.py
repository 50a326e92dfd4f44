"""How fast a stream is decoded on one core: `python -m benchmarks.streams TRACE.json [TRACE.json.gz]`.

`cat` writes the file into a pipe, as ssh would; a process that may use one core only reads and decodes it. What is
told is text per second from the first block to the last entry: arranging and storing come after the source has ended.
Processor time is told beside it, because other programs may share that core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

GOAL = 200
"""MB of JSON a second: what a fast disk or line gives (performance.md)."""

_DECODE = """
import json, os, sys, tempfile, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
from pathlib import Path
from torchprof_tui.trace.decode.decoder import decode_trace
from torchprof_tui.trace.sources.source import open_source
with tempfile.TemporaryDirectory() as folder:
    source = open_source("-")
    wall, own = time.perf_counter(), time.process_time()
    decoded = read(source, Path(folder))
    wall, own = time.perf_counter() - wall, time.process_time() - own
print(json.dumps({"bytes": decoded.size, "entries": len(decoded.events), "seconds": wall, "processor": own}))
"""


def measure(trace: Path) -> dict[str, float]:
    """bytes of text, entries, seconds and processor seconds of one decoding from a pipe."""
    cat = subprocess.Popen(["cat", str(trace)], stdout=subprocess.PIPE)
    done = subprocess.run([sys.executable, "-c", _DECODE], stdin=cat.stdout, capture_output=True, check=True)
    cat.wait()
    told: dict[str, float] = json.loads(done.stdout)
    return told


def main() -> None:
    print(f"{len(os.sched_getaffinity(0))} cores here; one is used; goal {GOAL} MB/s")
    for name in sys.argv[1:]:
        best = max((measure(Path(name)) for _ in range(3)), key=lambda told: told["bytes"] / told["seconds"])
        wall, own = (best["bytes"] / 1e6 / best[key] for key in ("seconds", "processor"))
        print(f"{name}: {best['bytes'] / 1e6:,.0f} MB of JSON: {wall:,.0f} MB/s, {own:,.0f} MB a processor second")


if __name__ == "__main__":
    main()
