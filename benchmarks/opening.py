"""Measure the time from the start of the process to the first frame with lanes, in a pseudo-terminal, and the memory.

    python -m benchmarks.opening TRACE [--runs 5] [--reference PYTHON]

PYTHON: that of an environment with another version of the program, which is measured in turn.

The program is started as a user starts it; the clock stops when the title of the whole trace is written, in the same
frame as its lanes. By default the cache is off, so that each run is a first opening. Before the clock starts, the trace
is read once, and the program is started once with a small trace, so that no disk access is measured; nor is it for
Perfetto, whose page is loaded before.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from benchmarks.measure import (
    PeakMemory,
    Terminal,
    median,
    memory_bytes,
    proportional_bytes,
    read_once,
    write_bytecode,
)

FIRST_FRAME = b"Opening"
"""Text of the loading screen. The bytes before it only prepare the terminal."""

EARLY_DRAWN = b"1 cell"
"""Text of the ruler, which gives the length of a cell as soon as there are lanes, also of the beginning of a trace."""

LANES_DRAWN = b"% of trace"
"""Text of the title when the whole trace is on screen: how busy its GPUs were."""

VERDICT_DRAWN = (b"-bound", b"mixed", b"cpu-only", b"undetermined")
"""Texts of which one begins the verdict: the regime."""

SMALL = "sample:linear_eager"

_PHASE = re.compile(r"^ *([\d.]+) s  (lanes on screen|whole trace checked)", re.MULTILINE)
"""Phases in the program's log, with seconds since its start."""


@dataclass(frozen=True)
class Opening:
    """One opening: seconds to the first frame of the program (0 from the cache, where it may be that of the lanes), to
    lanes of the beginning of the trace, to all lanes, and to the verdict; peak memory of all processes until all lanes.

    `checked_seconds`: from all lanes to the end of the check of the whole trace, with its patterns.
    """

    first_frame_seconds: float
    early_seconds: float
    seconds: float
    peak_bytes: int
    verdict_seconds: float
    checked_seconds: float


def find_program() -> str:
    """Find the console script of this environment. Raises FileNotFoundError if it is not installed."""
    local = Path(sys.executable).with_name("torchprof-tui")
    command = str(local) if local.exists() else shutil.which("torchprof-tui")
    if command is None:
        raise FileNotFoundError("torchprof-tui is not installed: pip install -e .")
    return command


def open_trace(
    trace: Path,
    *,
    cached: bool = False,
    timeout: float = 300,
    command: Sequence[str] = (),
    is_proportional: bool = False,
) -> Opening:
    """Open `trace` once. Raises TimeoutError if no lane is drawn in time.

    `command`: the program, by default that of this environment. `is_proportional`: measure Pss, which takes longer.
    """
    program = list(command) or [find_program()]
    small = Terminal([*program, "--no-cache", SMALL])
    try:
        small.wait_for(LANES_DRAWN, timeout)
    finally:
        small.close()
    read_once(trace)
    with tempfile.NamedTemporaryFile("r", prefix="torchprof-tui-bench-", suffix=".log") as log:
        options = ["--log", log.name, *([] if cached else ["--no-cache"])]
        terminal = Terminal([*program, *options, str(trace)])
        try:
            with PeakMemory(terminal.pid, proportional_bytes if is_proportional else memory_bytes) as peak:
                first = 0.0 if cached else terminal.wait_for(FIRST_FRAME, timeout)
                early = terminal.wait_for(EARLY_DRAWN, timeout)
                seconds = terminal.wait_for(LANES_DRAWN, timeout)
            verdict = terminal.wait_for(VERDICT_DRAWN, timeout)
            checked = _wait_until_checked(Path(log.name), terminal, timeout)
            return Opening(first, early, seconds, peak.bytes, verdict, checked)
        finally:
            terminal.close()


def _wait_until_checked(log: Path, terminal: Terminal, timeout: float) -> float:
    """Wait until the whole trace has been checked. Returns seconds from the lanes. Raises TimeoutError."""
    end = time.perf_counter() + timeout
    while time.perf_counter() < end:
        phases = {name: float(seconds) for seconds, name in _PHASE.findall(log.read_text())}
        if len(phases) == 2:
            return phases["whole trace checked"] - phases["lanes on screen"]
        terminal.read(0.05)
    raise TimeoutError("the check of the whole trace did not end")


def time_orjson(trace: Path) -> float:
    """Seconds that `orjson.loads`, the parser that other tools use, takes for the same bytes, with decompression."""
    gc.collect()
    start = time.perf_counter()
    data = trace.read_bytes()
    orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--reference", type=Path, help="the Python of an environment with another version")
    options = parser.parse_args()
    write_bytecode()
    pythons = [Path(sys.executable), *([options.reference] if options.reference else [])]
    commands = [[str(python), "-m", "torchprof_tui"] for python in pythons]
    timed: list[list[Opening]] = [[] for _ in commands]
    proportional: list[list[int]] = [[] for _ in commands]
    for _ in range(options.runs):  # in turn, so that busy moments of the machine affect all versions
        for number, command in enumerate(commands):
            timed[number].append(open_trace(options.trace, command=command))
            opened = open_trace(options.trace, command=command, is_proportional=True)
            proportional[number].append(opened.peak_bytes)
    print("| | to the lanes, s | then checked, s | peak memory, MB | Pss, MB |", "|---|---|---|---|---|", sep="\n")
    for name, runs, pss in zip(("this", "reference"), timed, proportional, strict=False):
        lanes, checked = median([run.seconds for run in runs]), median([run.checked_seconds for run in runs])
        memory = median([run.peak_bytes for run in runs]) / 1e6
        print(f"| {name} | {lanes:.2f} | {checked:.2f} | {memory:.0f} | {median(pss) / 1e6:.0f} |")


if __name__ == "__main__":
    main()
