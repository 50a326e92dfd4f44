"""Measure `diff` against `check` and `info` of one trace, from the cache, and against HolisticTraceAnalysis' TraceDiff.

    python -m benchmarks.diff TRACE.json [OTHER.json] [--runs 3] [--reference PYTHON] [--pair A.json.gz B.json.gz]…

"To the account": both traces opened, their steps found, the difference divided into parts. The command adds the
patterns and verdicts of both sides, what was recorded differently, and the matched ops.

Elapsed and CPU time of whole processes, in turn, medians: CPU time varies less on a busy machine. Without OTHER, the
second trace is made of the first one, beside it: kernels take a tenth longer in it. PYTHON: an interpreter with
HolisticTraceAnalysis (`pip install HolisticTraceAnalysis`), which then compares each PAIR and the same traces.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import median, read_once

FIRST_RATIO, CACHED_SECONDS, REFERENCE_SHARE = 2.2, 1.5, 0.2
"""Limits: both traces against one, seconds from the cache, share of the other tool's time."""

ACCOUNT, CACHED = "both, to the account", ", from the cache"

_KERNEL_TIME = re.compile(
    rb'("cat": "kernel", "name": "(?:[^"\\]|\\.)*", "pid": \d+, "tid": \d+,\s+"ts": [\d.]+, "dur": )([\d.]+)'
)

_BUILD_ACCOUNT = """
import sys
from torchprof_tui.commands.diff import DiffOptions
from torchprof_tui.commands.diff.main import load_comparison
print(load_comparison(DiffOptions(a=sys.argv[1], b=sys.argv[2], no_cache=sys.argv[3] == "no")).account.delta)
"""

_RUN_TRACE_DIFF = """
import sys
from hta.trace_diff import DeviceType, LabeledTrace, TraceDiff
traces = [LabeledTrace(label, trace_dir=folder) for label, folder in zip("ab", sys.argv[1:])]
for device in (DeviceType.CPU, DeviceType.GPU):
    rows = TraceDiff.compare_traces(
        *traces, control_iteration=traces[0].iterations(), test_iteration=traces[1].iterations(), device_type=device)
    print(len(rows))
"""
"""HolisticTraceAnalysis: parse two traces and compare all their steps, on the CPU and on the GPU."""


@dataclass(frozen=True)
class Pair:
    """Two traces to compare."""

    a: Path
    b: Path

    @property
    def title(self) -> str:
        return (
            f"{self.a.name} and {self.b.name}, {self.a.stat().st_size / 1e6:.0f} + {self.b.stat().st_size / 1e6:.0f} MB"
        )


def write_variant(trace: Path, out: Path) -> None:
    """Write a copy of a trace in which each kernel takes a tenth longer."""
    text = trace.read_bytes()
    out.write_bytes(_KERNEL_TIME.sub(lambda match: match[1] + b"%.3f" % (float(match[2]) * 1.1), text))


@dataclass(frozen=True)
class Times:
    """Elapsed time of a process, and CPU time of it and its workers, s."""

    elapsed: float
    cpu: float


def time_process(command: Sequence[str], traces: Iterable[Path], cache: str) -> Times:
    """Time a process from start to end; its traces are in the page cache. Raises CalledProcessError."""
    for trace in traces:
        read_once(trace)
    environment = {**os.environ, "TORCHPROF_TUI_CACHE": cache, "PYTHONPYCACHEPREFIX": str(Path(cache) / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is not compiled at each start
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Times(time.perf_counter() - started, cpu)


def take_median(times: Sequence[Times]) -> Times:
    """Return the median of each time."""
    return Times(median([each.elapsed for each in times]), median([each.cpu for each in times]))


def run_program(command: str, *words: str) -> list[str]:
    """Build the command line that runs a command of this program."""
    return [sys.executable, "-m", "torchprof_tui", command, *words]


def measure_commands(pair: Pair, runs: int, cache: str) -> dict[str, Times]:
    """Measure the commands on one trace and on both, in turn: name -> medians."""
    a, b = str(pair.a), str(pair.b)
    account = [sys.executable, "-c", _BUILD_ACCOUNT, a, b]
    both, first = (pair.a, pair.b), (pair.a,)
    commands: list[tuple[str, list[str], tuple[Path, ...]]] = [
        (ACCOUNT, [*account, "no"], both),
        ("`diff` of both", run_program("diff", a, b, "--no-cache"), both),
        ("`check` of the first", run_program("check", a, "--no-cache"), first),
        ("`info` of the first", run_program("info", a, "--no-cache"), first),
        (f"{ACCOUNT}{CACHED}", [*account, "cached"], both),
        (f"`diff` of both{CACHED}", run_program("diff", a, b), both),
        (f"`check` of the first{CACHED}", run_program("check", a), first),
    ]
    times: dict[str, list[Times]] = {name: [] for name, _, _ in commands}
    for _, command, _ in commands[4:]:
        time_process(command, (), cache)  # fills the cache
    for _ in range(runs):
        for name, command, traces in commands:
            times[name].append(time_process(command, traces, cache))
    return {name: take_median(values) for name, values in times.items()}


def measure_reference(pair: Pair, python: str, runs: int, cache: str) -> tuple[Times, Times]:
    """Measure `diff --no-cache` and the other tool on a pair, in turn: medians of both."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        folders = []
        for label, trace in (("a", pair.a), ("b", pair.b)):
            (Path(folder) / label).mkdir()
            # It reads the ranks of a folder.
            shutil.copy(trace, Path(folder) / label / ("trace.json" + (".gz" if trace.suffix == ".gz" else "")))
            folders.append(str(Path(folder) / label))
        command = run_program("diff", str(pair.a), str(pair.b), "--no-cache")
        time_process(command, (), cache)  # compiles the modules
        for _ in range(runs):
            ours.append(time_process(command, (pair.a, pair.b), cache))
            theirs.append(time_process([python, "-c", _RUN_TRACE_DIFF, *folders], (pair.a, pair.b), cache))
    return take_median(ours), take_median(theirs)


def _format_limit(value: float, limit: float) -> str:
    return "met" if value <= limit else f"**missed by {value / limit - 1:.0%}**"


def report_commands(pair: Pair, runs: int, cache: str) -> list[str]:
    """Measure the commands and format them as a table, with the ratios to one trace and the limits."""
    measured = measure_commands(pair, runs, cache)
    one = {name: measured[f"`{name}` of the first"].elapsed for name in ("check", "info")}
    cached_check = measured[f"`check` of the first{CACHED}"].elapsed
    rows = [f"{pair.title}:", "", "| | elapsed s | CPU s | ÷ `check` | ÷ `info` | limit |", "|---|---|---|---|---|---|"]
    for name, times in measured.items():
        is_cached, limit = CACHED in name, ""
        against_check = times.elapsed / (cached_check if is_cached else one["check"])
        against_info = times.elapsed / one["info"]
        if name == ACCOUNT:
            limit = f"{FIRST_RATIO}×: {_format_limit(max(against_check, against_info), FIRST_RATIO)}"
        elif name == ACCOUNT + CACHED:
            limit = f"{CACHED_SECONDS} s of CPU: {_format_limit(times.cpu, CACHED_SECONDS)}"
        cells = f"{times.elapsed:.2f} | {times.cpu:.2f} | {against_check:.2f}"
        rows.append(f"| {name} | {cells} | {'' if is_cached else f'{against_info:.2f}'} | {limit} |")
    return rows


def report_reference(pairs: Sequence[Pair], python: str, runs: int, cache: str) -> Iterator[str]:
    """Measure the other tool on each pair; yield the rows of a table with the shares."""
    yield "| pair | `diff`: elapsed s, CPU s | HolisticTraceAnalysis: elapsed s, CPU s | share | limit |"
    yield "|---|---|---|---|---|"
    for pair in pairs:
        try:
            ours, theirs = measure_reference(pair, python, runs, cache)
        except subprocess.CalledProcessError as error:
            yield f"| {pair.title} | | exit status {error.returncode} | | |"
            continue
        share = ours.elapsed / theirs.elapsed
        times = " | ".join(f"{each.elapsed:.2f}, {each.cpu:.2f}" for each in (ours, theirs))
        yield f"| {pair.title} | {times} | {share:.2f} | {REFERENCE_SHARE}: {_format_limit(share, REFERENCE_SHARE)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--reference", metavar="PYTHON", help="an interpreter with HolisticTraceAnalysis")
    parser.add_argument("--pair", type=Path, nargs=2, action="append", default=[], help="compared by both tools, too")
    options = parser.parse_args()
    other = options.other or options.trace.with_name(options.trace.stem + "-slower.json")
    if not other.exists():
        write_variant(options.trace, other)
    pair = Pair(options.trace, other)
    with tempfile.TemporaryDirectory(prefix="torchprof-tui-bench-") as cache:
        print("\n".join(report_commands(pair, options.runs, cache)), end="\n\n", flush=True)
        if options.reference:
            pairs = [*(Pair(a, b) for a, b in options.pair), pair]
            for row in report_reference(pairs, options.reference, options.runs, cache):
                print(row, flush=True)


if __name__ == "__main__":
    main()
