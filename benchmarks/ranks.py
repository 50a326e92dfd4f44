"""Many ranks as one: how long they take to open, and the memory of all processes, per event.

    python -m benchmarks.ranks RANK.pt.trace.json.gz [--ranks 64] [--keep FOLDER]

The ranks are copies of one rank's trace, each with a rank of its own, unpacked: made, measured, removed.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.opening import open_trace

_RANK = re.compile(rb'("distributedInfo"\s*:\s*\{[^}]*?"rank"\s*:\s*)[0-9]+')
_WORLD = re.compile(rb'("distributedInfo"\s*:\s*\{[^}]*?"world_size"\s*:\s*)[0-9]+')

MERGE = """
import asyncio, sys, time
from torchprof_tui.trace.loading.resolve import resolve_specs
began = time.perf_counter()
opening = named(sys.argv[1:]).opening()
told = []
trace = asyncio.run(opening.trace(lambda progress: told.append((time.perf_counter(), progress.phase))))
merging = next(at for at, phase in told if phase == "merging")
print(len(trace), time.perf_counter() - began, time.perf_counter() - merging)
"""


def make(rank: Path, ranks: int, folder: Path) -> int:
    """Write the copies; returns the bytes of one."""
    data = rank.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    if not _RANK.search(text):
        raise SystemExit(f"{rank}: does not say its rank")
    text = _WORLD.sub(rb"\g<1>%d" % ranks, text)
    for number in range(ranks):
        (folder / f"rank{number}.json").write_bytes(_RANK.sub(rb"\g<1>%d" % number, text))
    return len(text)


def measure(folder: Path, ranks: int, size: int) -> None:
    """Opened in a terminal, decoded and from the cache; then the merging alone."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHPROF_TUI_CACHE"] = cache
        first = open_trace(folder, cached=True)  # it is cold: it fills it
        again = open_trace(folder, cached=True)
        merged = subprocess.run(
            [sys.executable, "-c", MERGE, str(folder)], check=True, capture_output=True, text=True
        ).stdout.split()
    events, whole, merging = int(merged[0]), float(merged[1]), float(merged[2])
    print(f"{ranks} ranks of {size / 1e6:.2f} MB, {events:,} events, {os.cpu_count()} cores")
    for what, opened in (("decoded", first), ("from the cache", again)):
        each = opened.peak_bytes / events
        print(f"{what}: {opened.seconds:.2f} s to lanes, peak {opened.peak_bytes / 1e6:.0f} MB, {each:.0f} B an event")
    print(f"mapping and merging {whole:.2f} s, of it merging {merging:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rank", type=Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--keep", type=Path, help="make the copies here, and leave them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        size = make(options.rank, options.ranks, folder)
        measure(folder, options.ranks, size)


if __name__ == "__main__":
    main()
