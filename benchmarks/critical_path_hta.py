"""Time critical paths against HTA: `python -m benchmarks.critical_path_hta --hta PYTHON [--big TRACE]`

Each case is run by both programs in turn, `--rounds` times, each time in a process of its own: start, imports, reading
the trace, the path, the output. `--hta` (or the environment variable HTA_PYTHON) is an interpreter with
HolisticTraceAnalysis. Prints a Markdown table of the least CPU seconds (user + system, with child processes), which
depend less on other load than elapsed time.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import write_bytecode
from tests.helpers.paths import SHARED_TRACES

HTA_CASES = SHARED_TRACES / "public" / "facebookresearch+HolisticTraceAnalysis"
HTA_SCRIPT = Path(__file__).with_name("hta_critical_path.py")
ANNOTATION = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"


@dataclass(frozen=True)
class Case:
    """One case. `ours`: options of `critical-path`; `annotation`, `instance`: the same time for HTA."""

    name: str
    path: Path
    ours: tuple[str, ...]
    annotation: str
    instance: int


def list_cases(big: Path | None) -> list[Case]:
    """List the public cases of HTA's tests, and a step of a large trace."""
    simple = HTA_CASES / "benchmark_result_493459_1694039959_trace.json.gz"
    alexnet = HTA_CASES / "benchmark_result_2869224_1695835535_trace.json.gz"
    cases = [
        Case("`simple_add`", simple, ("--range=40898.446ms:41141.797ms",), ANNOTATION, 1),
        Case("`alexnet`", alexnet, ("--range=43313.521ms:43349.877ms",), ANNOTATION, 1),
        Case("`control`, first step", HTA_CASES / "control.json.gz", (), "ProfilerStep", 0),
        Case("`df_index_resolver`, first step", HTA_CASES / "df_index_resolver.json.gz", (), "ProfilerStep", 0),
    ]
    if big is not None:
        size = big.stat().st_size / 1e6
        cases.append(Case(f"trace of {size:,.0f} MB, step 5", big, ("--step=5",), "ProfilerStep", 5))
    return [case for case in cases if case.path.exists()]


def measure_cpu(command: Sequence[str], timeout: float) -> tuple[float, bool]:
    """Run a command; return the CPU seconds of it and its children, and whether it was ended after `timeout`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    is_late = False
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        is_late = True
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, is_late


def measure_case(case: Case, hta: str, rounds: int, timeout: float) -> str:
    """Measure both programs in turn and format a row of the table."""
    path = str(case.path)
    ours = (sys.executable, "-m", "torchprof_tui", "critical-path", path, *case.ours, "--json")
    commands = {
        "cold": (*ours, "--no-cache"),
        "cached": ours,
        "hta": (hta, str(HTA_SCRIPT), path, case.annotation, str(case.instance)),
    }
    least = dict.fromkeys(commands, float("inf"))
    is_late = False
    subprocess.run(ours, check=True, capture_output=True)  # fills the cache
    for _ in range(rounds):
        for name, command in commands.items():
            if not (name == "hta" and is_late):
                seconds, was_ended = measure_cpu(command, timeout)
                is_late |= was_ended
                least[name] = min(least[name], seconds)
    more = "> " if is_late else ""
    cells = (
        case.name,
        f"{least['cold']:.2f}",
        f"{least['cached']:.2f}",
        f"{more}{least['hta']:.2f}",
        f"{more}{least['hta'] / least['cold']:.1f}",
        f"{more}{least['hta'] / least['cached']:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hta", default=os.environ.get("HTA_PYTHON"), help="interpreter with HTA (or $HTA_PYTHON)")
    parser.add_argument("--big", type=Path, help="a large trace with ProfilerStep#5")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=170.0, help="seconds after which HTA is ended")
    options = parser.parse_args()
    if not options.hta:
        parser.error("--hta PYTHON: an interpreter with HolisticTraceAnalysis")
    write_bytecode()
    print("| case | here, not cached | here, cached | HTA | times, not cached | times, cached |")
    print("|---" * 6 + "|")
    for case in list_cases(options.big):
        print(measure_case(case, options.hta, options.rounds, options.timeout), flush=True)


if __name__ == "__main__":
    main()
