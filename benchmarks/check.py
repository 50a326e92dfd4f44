"""Measure `check` in two versions of the program, in turn: the whole command from the cache, and a check of each scope.

    python -m benchmarks.check TRACE [--against OTHER/tui] [--runs 5]

User and system time of the process, because it varies less than elapsed time on a busy machine; medians of the runs.
`--against`: the folder that holds another version's package, such as that of a worktree of an earlier commit.
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
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import median

OWN_SOURCE = Path(__file__).parents[1] / "tui"
SCOPES_PER_SHARE = 30
SHARES = (0.1, 0.01)
"""Lengths of the scopes that are checked after the whole trace, as a share of it: what the live cheatsheet does."""


def measure_in_process(trace_path: str) -> dict[str, float]:
    """Measure the parts of a check in this process: ms of CPU by name."""
    # deferred: the time of importing is measured
    started = time.process_time()
    import numpy as np

    from torchprof_tui.analysis.patterns.engine import check_scope
    from torchprof_tui.analysis.patterns.engine.checker import Checker
    from torchprof_tui.commands.common.load import load_specs

    imported = time.process_time()
    checker = Checker(load_specs([trace_path], cache=True).trace)
    loaded = time.process_time()
    whole = checker.default_scope
    checker.decide_verdict(whole, checker.check(whole))
    checked = time.process_time()
    ms = {"imports": imported - started, "first check and verdict": checked - loaded}
    random = np.random.default_rng(0)
    for share in SHARES:
        length = int(whole.length * share)
        times = []
        for offset in (random.random(SCOPES_PER_SHARE) * (whole.length - length)).astype(np.int64).tolist():
            scope = check_scope.range_scope(whole.t0 + offset, whole.t0 + offset + length)
            started = time.process_time()
            checker.decide_verdict(scope, checker.check(scope))
            times.append(time.process_time() - started)
        ms[f"scope of {share:.0%}, p50"], ms[f"scope of {share:.0%}, p95"] = np.percentile(times, [50, 95]).tolist()
    return {name: seconds * 1000 for name, seconds in ms.items()}


def _run(source: Path, cache: str, arguments: Sequence[str]) -> tuple[float, str]:
    """Run Python with the package in `source`: (ms of CPU, what it printed)."""
    search_path = os.pathsep.join([str(source), str(OWN_SOURCE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": search_path, "TORCHPROF_TUI_CACHE": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is not compiled at each start
    environment["PYTHONPYCACHEPREFIX"] = str(Path(cache) / "bytecode")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000, done.stdout


def measure_check(trace: Path, sources: Sequence[Path], runs: int) -> list[dict[str, float]]:
    """Measure each version in turn, `runs` times after a first that fills the cache: its medians, ms of CPU by name."""
    measured: list[dict[str, list[float]]] = [{} for _ in sources]
    command = ["-m", "torchprof_tui", "check", str(trace), "--json"]
    parts = [
        "-c",
        f"import json; from benchmarks import check; print(json.dumps(check.measure_in_process({str(trace)!r})))",
    ]
    with tempfile.TemporaryDirectory(prefix="torchprof-tui-bench-") as folder:
        caches = [str(Path(folder) / str(number)) for number in range(len(sources))]
        for source, cache in zip(sources, caches, strict=True):
            _run(source, cache, command)
        for _ in range(runs):
            for source, cache, times in zip(sources, caches, measured, strict=True):
                times.setdefault("whole command, from the cache", []).append(_run(source, cache, command)[0])
                for name, ms in json.loads(_run(source, cache, parts)[1]).items():
                    times.setdefault(name, []).append(ms)
    return [{name: median(values) for name, values in times.items()} for times in measured]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--against", type=Path, action="append", default=[], help="another version's folder `tui`")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    sources = [*(path.resolve() for path in options.against), OWN_SOURCE]
    measured = measure_check(options.trace.resolve(), sources, options.runs)
    print(f"| ms of CPU | {' | '.join(source.parent.name for source in sources)} | last / first |")
    print(f"|---|{'---|' * (len(sources) + 1)}")
    for name, last in measured[-1].items():
        cells = " | ".join(f"{times[name]:.1f}" for times in measured)
        print(f"| {name} | {cells} | {last / measured[0][name]:.2f} |")


if __name__ == "__main__":
    main()
