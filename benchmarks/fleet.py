"""Compare `fleet` with HTA on the ranks of one job, in one run: `python -m benchmarks.fleet RANK --hta PYTHON`.

RANK is a trace of one rank; the others are copies of it with known faults (`tests.helpers.fleet_runs`). PYTHON is an
interpreter that has HolisticTraceAnalysis. HTA computes its overlap of communication with computation and its potential
stragglers; `fleet` both and the rest, from files that it has never read, then again. TraceLens is not on PyPI, so it is
not compared. With `--workers 1 2` the same ranks are then sketched by Dask clusters of so many workers on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HTA_SCRIPT = """
import sys
from pathlib import Path
from hta.trace_analysis import TraceAnalysis
if __name__ == "__main__":
    files = sorted(Path(sys.argv[1]).iterdir(), key=lambda path: int(path.name.split("_")[1].split(".")[0]))
    analysis = TraceAnalysis(trace_files={rank: str(path) for rank, path in enumerate(files)}, trace_dir=sys.argv[1])
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    try:
        stragglers = list(map(int, analysis.get_potential_stragglers()))
    except Exception as error:
        stragglers = f"{type(error).__name__}: {error}"[:80]
    print(len(overlap), stragglers)
"""


def measure(command: list[str], environment: dict[str, str]) -> tuple[float, float, float, str]:
    """Run a command: (seconds, seconds of CPU, MB of its largest process, what it printed)."""
    before = os.times()
    begin = time.perf_counter()
    done = subprocess.run(
        ["/usr/bin/time", "-f", "%M", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds, after = time.perf_counter() - begin, os.times()
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-500:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu, int(done.stderr.split()[-1]) / 1000, done.stdout


DASK_SCRIPT = """
import sys, time
from pathlib import Path
from distributed import Client, LocalCluster
from torchprof_fleet.command.workers import sketch_on_cluster
from torchprof_tui.trace.specs.address import ListedTrace
if __name__ == "__main__":
    traces = [ListedTrace(str(path), None, 0.0) for path in sorted(Path(sys.argv[1]).iterdir())]
    count = int(sys.argv[2])
    with LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None, processes=True) as cluster:
        list(sketch_on_cluster(traces[: 4 * count], lambda: False, cluster.scheduler_address))  # imports
        begin = time.perf_counter()
        results = list(sketch_on_cluster(traces, lambda: False, cluster.scheduler_address))
        print(time.perf_counter() - begin, sum(bool(result.data) for result in results))
"""


def measure_clusters(runs: Path, folder: Path, worker_counts: list[int]) -> list[tuple[int, float]]:
    """Sketch the ranks on Dask clusters: (workers, ranks per second once the workers have imported the program)."""
    script = folder / "dask_run.py"
    script.write_text(DASK_SCRIPT, encoding="utf-8")
    found = []
    for count in worker_counts:
        environment = os.environ | {"TORCHPROF_TUI_CACHE": str(folder / "cluster cache")}
        printed = measure([sys.executable, str(script), str(runs), str(count)], environment)[3]
        seconds, done = printed.split()
        found.append((count, int(done) / float(seconds)))
    return found


def describe_findings(printed: str) -> str:
    """Describe what `fleet --json` found: kinds and ranks."""
    findings = json.loads(printed)["findings"]
    return (
        ", ".join(
            f"{found['kind']} {found['host'] if len(found['ranks']) > 1 else found['ranks']}" for found in findings
        )
        or "nothing"
    )


def compare(base: Path, rank_count: int, hta: str | None, worker_counts: list[int]) -> None:
    """Print one row for each program and state of its cache."""
    with tempfile.TemporaryDirectory() as folder:
        runs, cache = Path(folder) / "runs", Path(folder) / "cache"
        make = [sys.executable, "-m", "tests.helpers.fleet_runs", str(base), str(runs), "--ranks", str(rank_count)]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        environment = os.environ | {"TORCHPROF_TUI_CACHE": str(cache)}
        ours = [sys.executable, "-m", "torchprof_tui", "fleet", str(runs), "--json"]
        first = measure(ours, environment)
        again = measure(ours, environment)
        rows = [("fleet", *first[:3], describe_findings(first[3])), ("fleet, again", *again[:3], "the same")]
        if again[3] != first[3]:
            raise SystemExit("the second answer differs from the first")
        if hta is not None:
            plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            script = Path(folder) / "hta_run.py"
            script.write_text(HTA_SCRIPT, encoding="utf-8")
            seconds, cpu, memory, printed = measure([hta, str(script), str(runs)], plain)
            rows.append(("HTA", seconds, cpu, memory, f"stragglers {printed.splitlines()[-1].partition(' ')[2]}"))
        for name, seconds, cpu, memory, found in rows:
            print(f"| {rank_count} | {name} | {seconds:.1f} s | {cpu:.1f} s | {memory:.0f} MB | {found} |", flush=True)
        for count, rate in measure_clusters(runs, Path(folder), worker_counts):
            print(f"| {rank_count} | Dask, {count} workers | {rate:.1f} ranks/s | | | |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rank", type=Path)
    parser.add_argument("--hta", metavar="PYTHON", help="an interpreter with HolisticTraceAnalysis")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--workers", type=int, nargs="+", default=[], help="sizes of Dask clusters")
    options = parser.parse_args()
    print("| ranks | program | time | CPU | largest process | found |\n|---|---|---|---|---|---|")
    for rank_count in options.ranks:
        compare(options.rank, rank_count, options.hta, options.workers)


if __name__ == "__main__":
    main()
