"""Open a snapshot of the allocator with a million entries of history, and torch's own reading of it beside that.

    python -m benchmarks.memory [--entries 1000000] [--runs 3] [--trace TRACE]

The snapshot is made here: 300 stacks of 20 frames that entries share, as torch writes them. Each run is a process that
answers `torchprof-tui memory`, or draws the first complete screen of the snapshot; for comparison one that loads the
pickle and lets torch's `_memory_viz.py` format its trace (its page needs a browser), where torch is installed.

With a trace that has memory events (`benchmarks/generate.py` makes a large one) also the longest pause of the event
loop after the key `M`, pressed a number of seconds after the first lanes: the verdict is computed for the first second.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.responsiveness import measure_pause_after_key

FRAMES, STACKS, DEPTH = 400, 300, 20
MAX_BLOCK = 1 << 20
UNIT = 512
"""Bytes that the allocator rounds to."""

PROGRAM = [sys.executable, "-m", "torchprof_tui"]
DELAYS = (0.2, 1.0, 5.0)
"""Seconds from the first lanes to the key."""

_VIZ = "import pickle, sys; from torch.cuda import _memory_viz as viz; viz.trace(pickle.load(open(sys.argv[1], 'rb')))"


def write_snapshot(path: Path, count: int, seed: int = 1) -> None:
    """Write a snapshot with `count` entries of history: allocations and frees in random order."""
    chance = random.Random(seed)
    frames = [{"name": f"f{k}", "filename": f"/home/user/module{k % 40}.py", "line": k} for k in range(FRAMES)]
    stacks = [[chance.choice(frames) for _ in range(DEPTH)] for _ in range(STACKS)]
    live: list[tuple[int, int]] = []
    entries: list[dict[str, Any]] = []
    for at in range(count):
        if live and chance.random() < 0.5:
            action, (address, size) = "free_requested", live.pop(chance.randrange(len(live)))
        else:
            action, address, size = "alloc", UNIT * (at + 1), chance.randrange(UNIT, MAX_BLOCK, UNIT)
            live.append((address, size))
        entries.append(
            {"action": action, "addr": address, "size": size, "stream": 0, "time_us": at, "frames": stacks[at % STACKS]}
        )
    blocks = [
        {"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": stacks[0]}
        for address, size in live
    ]
    segment = {
        "device": 0,
        "address": UNIT,
        "total_size": sum(size for _, size in live),
        "allocated_size": sum(size for _, size in live),
        "active_size": sum(size for _, size in live),
        "stream": 0,
        "segment_type": "large",
        "blocks": blocks,
    }
    with path.open("wb") as file:
        pickle.dump({"segments": [segment], "device_traces": [entries]}, file, protocol=4)


def measure(command: list[str], runs: int) -> str:
    """Measure the fastest of some runs of a command: its time, and that of the CPU, which other programs disturb less.

    Raises CalledProcessError if it fails.
    """
    times = []
    for _ in range(runs):
        begin, before = time.perf_counter(), os.times()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        times.append((time.perf_counter() - begin, cpu))
    return f"{min(wall for wall, _ in times):.2f} s, {min(cpu for _, cpu in times):.2f} s of CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--trace", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        write_snapshot(path, options.entries)
        print(f"{options.entries:,} entries, {path.stat().st_size / 1e6:.0f} MB")
        ours = measure([*PROGRAM, "memory", str(path)], options.runs)
        print(f"torchprof-tui memory: {ours}")
        screen = [*PROGRAM, "snapshot", str(path), "--size", "160x48", "-o", str(Path(folder) / "screen.txt")]
        print(f"first complete screen: {measure(screen, options.runs)}")
        if importlib.util.find_spec("torch") is not None:
            print(f"torch _memory_viz trace: {measure([sys.executable, '-c', _VIZ, str(path)], options.runs)}")
    for delay in DELAYS if options.trace is not None else ():
        pauses = [measure_pause_after_key(options.trace, "M", delay) * 1000 for _ in range(options.runs)]
        print(f"longest pause after M, pressed {delay} s after the lanes, ms:", *map(round, pauses))


if __name__ == "__main__":
    main()
