"""Compare two checkouts by the CPU time of the first lanes and of keys on six screens, in turns, as ratios.

    python -m benchmarks.keys BEFORE AFTER [--rounds 3] [--trace sample:train_gpt_stack_memory]

BEFORE and AFTER are roots of checkouts, such as worktrees. Each round runs both in fresh processes, the order swapped
each time. CPU time of the process, with its threads, not of the clock: it hardly changes on a busy machine.
`benchmarks.drawing` measures the time until a frame is on the terminal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

KEYS = {
    "zoom": [*"wwwwssss"],
    "pan": [*"WddddaaaaS"],
    "arrows": ["right", "right", "right", "left", "down", "down", "up"],
    "panels": ["l", "k", "c", "tab", "tab", "i", "i"],
    "table": ["t", "down", "down", "down", "t"],
    "flame graph": ["F", "down", "down", "down", "F"],
    "memory": ["M", "right", "right", "M"],
}
"""Keys that are pressed one after the other, each after the frame of the last; they end where they begin."""

REPEATS = 4

PROGRAM = """
import asyncio, json, os, sys, time
root, trace, keys, repeats = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
sys.path[:0] = [f"{root}/{part}" for part in ("tui", "profiler_runs", "sample_traces")]
os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.sources.ssh_connections import SshConnections

async def main():
    found, start = {}, time.process_time()
    with SshConnections() as connections:
        opening = resolve_specs([trace]).create_opener(True, connections=connections)
        opening.start()
        app = TorchprofApp(opening)
        async with app.run_test(size=(200, 50)) as pilot:
            async def settle():
                await pilot.pause(0.1)
                await app.workers.wait_for_complete()
                await pilot.pause()
            await app.lanes_ready.wait()
            await settle()
            found["first lanes and findings"] = time.process_time() - start
            for name, group in keys.items():
                await pilot.press("escape", "escape", "0", *group)
                await settle()
                start = time.process_time()
                await pilot.press(*group * repeats)
                await settle()
                found[name] = (time.process_time() - start) / (len(group) * repeats)
        opening.cancel()
    print(json.dumps(found))

asyncio.run(main())
"""
"""Runs in a process per checkout: s of CPU time by group, per key."""


def measure(root: Path, trace: str) -> dict[str, float]:
    """Measure one checkout: s by group of keys."""
    command = [sys.executable, "-P", "-c", PROGRAM, str(root.resolve()), trace, json.dumps(KEYS), str(REPEATS)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(answer.stdout))


def compare(before: Path, after: Path, trace: str, rounds: int) -> list[str]:
    """Compare two checkouts: one line per group, with both medians in ms and the median of the rounds' ratios."""
    pairs = []
    for number in range(rounds):
        order = (before, after) if number % 2 else (after, before)
        found = {root: measure(root, trace) for root in order}
        pairs.append((found[before], found[after]))
    lines = [f"{'CPU time, per key':<26}{'before':>12}{'after':>12}{'ratio':>8}"]
    for name in pairs[0][0]:
        old, new = [pair[0][name] * 1e3 for pair in pairs], [pair[1][name] * 1e3 for pair in pairs]
        ratio = median(after / before for before, after in zip(old, new, strict=True))
        lines.append(f"{name:<26}{median(old):>9.1f} ms{median(new):>9.1f} ms{ratio:>8.2f}")
    return lines


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trace", default="sample:train_gpt_stack_memory")
    options = parser.parse_args()
    print("\n".join(compare(options.before, options.after, options.trace, options.rounds)))


if __name__ == "__main__":
    main()
