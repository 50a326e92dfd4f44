"""Measure what the cheatsheet takes to follow a resting view, by zoom, and arrow keys: in two versions, in turn.

    python -m benchmarks.following TRACE [--against OTHER/tui] [--runs 3]

Each run opens the trace from the cache in a pseudo-terminal of 200x50, pans at each of 12 zoom levels, and moves the
selection with 48 arrow keys. Then it presses `w` 24 times, each after the screen has been still for a second: the time
from the key to the last byte is what the cheatsheet takes to follow.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from benchmarks.drawing import BAND, COLUMNS, LEVELS, ROWS
from benchmarks.measure import Terminal, median, percentile
from benchmarks.opening import LANES_DRAWN, find_program

OWN_SOURCE = Path(__file__).parents[1] / "tui"
CHECKED_SECONDS = 5.0
"""Silence after which the patterns of the whole trace have been checked."""

STILL_SECONDS = 1.0
"""Silence before and after a key: the check of a view starts at most a quarter of a second after the key."""

ARROWS = (b"\x1b[B", b"\x1b[C")


def measure_run(trace: Path, source: Path, cache: str) -> tuple[list[float], list[float]]:
    """Measure one run of a version: ms until the cheatsheet followed, by zoom level, and ms of the arrows' frames."""
    search_path = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": search_path, "TORCHPROF_TUI_CACHE": cache}
    with contextlib.closing(Terminal([find_program(), str(trace)], COLUMNS, ROWS, **environment)) as terminal:
        terminal.wait_for(LANES_DRAWN, 300)
        terminal.settle(CHECKED_SECONDS)
        for key in [*(b"w", b"d", b"d", b"a") * (LEVELS // 2), *[b"s"] * (LEVELS // 2), b"0", b"w"]:
            terminal.key(key)
        arrows = [terminal.key(key).first for key in ARROWS * LEVELS]
        terminal.key(b"\x1b")
        terminal.key(b"0", STILL_SECONDS)
        following = [terminal.key(b"w", STILL_SECONDS).last for _ in range(LEVELS)]
    return [seconds * 1000 for seconds in following], [seconds * 1000 for seconds in arrows]


def _format(times: Sequence[float]) -> str:
    return f"{median(times):.0f} / {percentile(times, 0.95):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--against", type=Path, action="append", default=[], help="another version's folder `tui`")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    sources = [*(path.resolve() for path in options.against), OWN_SOURCE]
    following: list[list[list[float]]] = [[] for _ in sources]
    arrows: list[list[list[float]]] = [[] for _ in sources]
    with tempfile.TemporaryDirectory(prefix="torchprof-tui-bench-") as cache:
        for run in range(options.runs + 1):
            for number, source in enumerate(sources):
                lags, frames = measure_run(options.trace.resolve(), source, cache)
                if run:  # the first fills the cache
                    following[number].append(lags)
                    arrows[number].append(frames)
    print(f"| ms, p50 / p95 | {' | '.join(source.parent.name for source in sources)} |")
    print(f"|---|{'---|' * len(sources)}")
    for first in range(0, LEVELS, BAND):
        cells = [_format(list(chain.from_iterable(run[first : first + BAND] for run in runs))) for runs in following]
        print(f"| `w` pressed {first + 1} to {first + BAND} times | {' | '.join(cells)} |")
    for name, measured in (("all of them", following), ("arrows' frames", arrows)):
        print(f"| {name} | {' | '.join(_format(list(chain.from_iterable(runs))) for runs in measured)} |")


if __name__ == "__main__":
    main()
