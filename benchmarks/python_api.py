"""Measure the Python API against `info`: open a trace and get all events as Arrow, and write them as Parquet.

    python -m benchmarks.python_api TRACE [--runs 5] [--reference PYTHON]

CPU seconds of whole processes with their children, medians of runs in turn: it varies less than elapsed time on a busy
machine. "first": with an empty cache, so that the trace is decoded. Needs the extra `arrow`.

PYTHON: an interpreter with HolisticTraceAnalysis (`pip install HolisticTraceAnalysis`). Then both add up the GPU time
of each kernel, copy and fill by name, once, without a cache; the sums must agree to the microsecond of each event.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import median, read_once

MAX_RATIO, MAX_PARQUET_BYTES = 1.1, 20e6
"""Limits: CPU time of the API as a share of that of `info`, and the size of the file."""

REFERENCE_SHARE = 0.1
"""Limit: our time as a share of HolisticTraceAnalysis' for the same sums."""

_SUM_BY_NAME = """
import json, sys
import torchprof_tui as tt
table = tt.open(sys.argv[1], cache=False).events.to_arrow()
import pyarrow as pa, pyarrow.compute as pc
wanted = pa.array(["kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"])
table = table.filter(pc.is_in(table["category"].cast("string"), value_set=wanted)).group_by("name")
rows = table.aggregate([("duration_ns", "sum"), ("duration_ns", "count")]).to_pylist()
print(json.dumps({row["name"]: (row["duration_ns_sum"] / 1e3, row["duration_ns_count"]) for row in rows}))
"""

_SUM_BY_NAME_IN_HTA = """
import json, os, sys
from hta.trace_analysis import TraceAnalysis
folder = os.path.dirname(os.path.abspath(sys.argv[1]))
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=folder, include_last_profiler_step=True)
frame = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=10**6, duration_ratio=1.0)[1]
print(json.dumps({row["name"]: row["sum (us)"] for row in frame.to_dict("records")}))
"""

_TO_ARROW = "import sys, torchprof_tui as tt; print(tt.open(sys.argv[1]).events.to_arrow().num_rows)"


def measure_cpu_seconds(command: list[str], cache: Path) -> float:
    """Run a command with this cache folder; return its CPU seconds. Raises CalledProcessError."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "TORCHPROF_TUI_CACHE": str(cache)}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare_with_reference(python: str, trace: Path) -> bool:
    """Add up GPU time by name with both, and print the times; return whether the limit holds and the sums agree."""
    answers, seconds = [], []
    for interpreter, code in ((sys.executable, _SUM_BY_NAME), (python, _SUM_BY_NAME_IN_HTA)):
        began = time.perf_counter()
        done = subprocess.run([interpreter, "-c", code, str(trace)], check=True, capture_output=True, text=True)
        seconds.append(time.perf_counter() - began)
        answers.append(json.loads(done.stdout.splitlines()[-1]))
    ours, theirs = answers
    # HolisticTraceAnalysis rounds the start of an event up and its end down.
    wrong = [name for name in ours.keys() | theirs.keys() if not _is_same(ours.get(name), theirs.get(name))]
    share = seconds[0] / seconds[1]
    print(
        f"GPU time by name: {seconds[0]:.2f} s against {seconds[1]:.2f} s of HolisticTraceAnalysis, {share:.3f} of it "
        f"(at most {REFERENCE_SHARE}); {len(ours)} names, {len(wrong)} with another sum"
    )
    return share <= REFERENCE_SHARE and not wrong


def _is_same(ours: list[float] | None, theirs: float | None) -> bool:
    return ours is not None and theirs is not None and abs(ours[0] - theirs) <= 2 * ours[1]


def main() -> int:
    """Print the measurements; the exit status is 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--reference", metavar="PYTHON", help="interpreter with HolisticTraceAnalysis")
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
    if options.reference is not None:
        failed |= not compare_with_reference(options.reference, options.trace)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
