"""Measure `check` in two versions of the program, in turn: the whole command from the cache, and its parts.

    python -m benchmarks.check TRACE [--against OTHER/tui] [--runs 5]

User and system time of the process, because it varies less than elapsed time on a busy machine; medians of the runs.
"Verdict before the patterns" is what the screen shows first of a large trace; what is computed for it is not computed
again by the check after it. Memory: the most that the whole command held, pages of the cache's files included.
`--against`: the folder that holds another version's package, such as that of a worktree of an earlier commit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
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
    checker.decide_verdict(whole)
    decided = time.process_time()
    checker.decide_verdict(whole, checker.check(whole))
    checked = time.process_time()
    ms = {
        "imports": imported - started,
        "verdict before the patterns": decided - loaded,
        "patterns and whole verdict": checked - decided,
    }
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


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of Python: ms of CPU, peak memory in MB, and what it printed."""

    ms: float
    megabytes: float
    output: str


def _run(source: Path, cache: str, arguments: Sequence[str]) -> _Run:
    """Run Python with the package in `source`. Raises CalledProcessError."""
    search_path = os.pathsep.join([str(source), str(OWN_SOURCE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": search_path, "TORCHPROF_TUI_CACHE": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is not compiled at each start
    environment["PYTHONPYCACHEPREFIX"] = f"{cache}-bytecode"  # a cache is made only in a new or empty folder
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return _Run((usage.ru_utime + usage.ru_stime) * 1000, usage.ru_maxrss / 1024, output)


def measure_check(trace: Path, sources: Sequence[Path], runs: int) -> list[dict[str, float]]:
    """Measure each version in turn, `runs` times after a first that fills the cache: its medians by name."""
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
                whole = _run(source, cache, command)
                times.setdefault("whole command, from the cache", []).append(whole.ms)
                times.setdefault("its peak memory, MB", []).append(whole.megabytes)
                for name, ms in json.loads(_run(source, cache, parts).output).items():
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
