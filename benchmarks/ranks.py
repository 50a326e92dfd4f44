"""Many ranks as one: how long they take to open, and the memory of all processes, per event.

    python -m benchmarks.ranks RANK.pt.trace.json.gz [--ranks 64] [--keep FOLDER]

The ranks are copies of one rank's trace, each with a rank of its own, unpacked: made, measured, removed.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.opening import open_trace
from torchprof_tui.trace.loading.resolve import resolve_specs

_RANK = re.compile(rb'("distributedInfo"\s*:\s*\{[^}]*?"rank"\s*:\s*)[0-9]+')
_WORLD = re.compile(rb'("distributedInfo"\s*:\s*\{[^}]*?"world_size"\s*:\s*)[0-9]+')

_MERGE = "import sys; from benchmarks.ranks import measure_merge; measure_merge(sys.argv[1])"


def measure_merge(folder: str) -> None:
    """Print events, seconds to open the ranks from the cache, and of those the seconds of merging."""
    start = time.perf_counter()
    opener = resolve_specs([folder]).create_opener()
    reports: list[tuple[float, str]] = []
    trace = asyncio.run(opener.load_trace(lambda progress: reports.append((time.perf_counter(), progress.phase))))
    merging = next(reported for reported, phase in reports if phase == "merging")
    print(len(trace), time.perf_counter() - start, time.perf_counter() - merging)


def write_ranks(rank: Path, ranks: int, folder: Path) -> int:
    """Write the copies. Returns the bytes of one."""
    data = rank.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    if not _RANK.search(text):
        raise SystemExit(f"{rank}: does not say its rank")
    text = _WORLD.sub(rb"\g<1>%d" % ranks, text)
    for number in range(ranks):
        (folder / f"rank{number}.json").write_bytes(_RANK.sub(rb"\g<1>%d" % number, text))
    return len(text)


def measure(folder: Path, ranks: int, size: int) -> None:
    """Open the ranks in a terminal, decoded and from the cache; then measure merging alone."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHPROF_TUI_CACHE"] = cache
        first = open_trace(folder, cached=True)  # the cache is still empty: this fills it
        again = open_trace(folder, cached=True)
        merged = subprocess.run(
            [sys.executable, "-c", _MERGE, str(folder)], check=True, capture_output=True, text=True
        ).stdout.split()
    events, total, merging = int(merged[0]), float(merged[1]), float(merged[2])
    print(f"{ranks} ranks of {size / 1e6:.2f} MB, {events:,} events, {os.cpu_count()} cores")
    for label, opened in (("decoded", first), ("from the cache", again)):
        peak = opened.peak_bytes
        print(f"{label}: {opened.seconds:.2f} s to lanes, peak {peak / 1e6:.0f} MB, {peak / events:.0f} B an event")
    print(f"mapping and merging {total:.2f} s, of it merging {merging:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rank", type=Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--keep", type=Path, help="make the copies here, and leave them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        size = write_ranks(options.rank, options.ranks, folder)
        measure(folder, options.ranks, size)


if __name__ == "__main__":
    main()
