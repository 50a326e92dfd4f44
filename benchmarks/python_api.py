"""Measure the Python API against `info`: open a trace and get all events as Arrow, and write them as Parquet.

    python -m benchmarks.python_api TRACE [--runs 5]

CPU seconds of whole processes with their children, medians of runs in turn: it varies less than elapsed time on a busy
machine. "first": with an empty cache, so that the trace is decoded. Needs the extra `arrow`.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import median, read_once

MAX_RATIO, MAX_PARQUET_BYTES = 1.1, 20e6
"""Limits: CPU time of the API as a share of that of `info`, and the size of the file."""

_TO_ARROW = "import sys, torchprof_tui as tt; print(tt.open(sys.argv[1]).events.to_arrow().num_rows)"


def measure_cpu_seconds(command: list[str], cache: Path) -> float:
    """Run a command with this cache folder; return its CPU seconds. Raises CalledProcessError."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "TORCHPROF_TUI_CACHE": str(cache)}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the measurements; the exit status is 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    read_once(options.trace)
    program = [sys.executable, "-m", "torchprof_tui"]
    failed, cache_left = False, ""
    with tempfile.TemporaryDirectory() as folder:
        parquet = Path(folder) / "events.parquet"
        commands = {
            "info": [*program, "info", str(options.trace)],
            "open and to_arrow": [sys.executable, "-c", _TO_ARROW, str(options.trace)],
            "export to Parquet": [*program, "export", str(options.trace), "-o", str(parquet)],
        }
        for title in ("first", "from the cache"):
            seconds: dict[str, list[float]] = {name: [] for name in commands}
            for run in range(options.runs):
                for number, (name, command) in enumerate(commands.items()):
                    # The last of the first openings leaves the entry that the others are read from.
                    cache = Path(folder) / (f"cache-{run}-{number}" if title == "first" else cache_left)
                    seconds[name].append(measure_cpu_seconds(command, cache))
            cache_left = cache.name
            medians = {name: median(measured) for name, measured in seconds.items()}
            ratio = medians["open and to_arrow"] / medians["info"]
            failed |= ratio > MAX_RATIO
            listed = ", ".join(f"{name} {value:.2f} s" for name, value in medians.items())
            print(f"{title}: {listed}; open and to_arrow is {ratio:.2f} of info (at most {MAX_RATIO})")
        size = parquet.stat().st_size
        failed |= size > MAX_PARQUET_BYTES
        print(f"Parquet: {size / 1e6:.1f} MB (at most {MAX_PARQUET_BYTES / 1e6:.0f})")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
