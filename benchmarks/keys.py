"""Compare two checkouts by the CPU time of the first lanes and of keys on six screens, and the time to their frames.

    python -m benchmarks.keys BEFORE AFTER [--rounds 3] [--trace sample:train_gpt_stack_memory]

BEFORE and AFTER are roots of checkouts, such as worktrees. Each round runs both in fresh processes, the order swapped
each time. CPU time of the process, with its threads, not of the clock: it hardly changes on a busy machine. The time
from a key to its first frame is that of the clock: the least of its presses, of which a group's median is shown.
`benchmarks.drawing` measures it on a terminal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

KEYS = {
    "zoom": [*"wwwwssss"],
    "pan": [*"WddddaaaaS"],
    "arrows": ["right", "right", "left", "down", "down", "up", "up", "n"],
    "panels": ["l", "k", "c", "tab", "tab", "i", "i"],
    "table": ["t", "down", "down", "down", "t"],
    "flame graph": ["F", "down", "down", "down", "F"],
    "memory": ["M", "right", "right", "M"],
}
"""Keys that are pressed one after the other, each after the frame of the last; they end where they begin."""

SEARCH = "AddmmBackward0"
"""What is searched for before each group. Its events lie outside Python: checkouts may show different frames."""

REPEATS = 4

PROGRAM = """
import asyncio, json, os, sys, time
from statistics import median
root, trace, keys, repeats, search = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
sys.path[:0] = [f"{root}/{part}" for part in ("tui", "profiler_runs", "sample_traces")]
os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.sources.ssh_connections import SshConnections

pressed, times, end_frame = [], {}, TorchprofApp.post_display_hook

def note_frame(app):
    end_frame(app)
    if pressed:
        number, at = pressed.pop()
        times[number] = min(time.perf_counter() - at, times.get(number, 9.0))

TorchprofApp.post_display_hook = note_frame

async def main():
    cpu, frames, selected, start = {}, {}, {}, time.process_time()
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
            cpu["first lanes and findings"] = time.process_time() - start
            for name, group in keys.items():
                await pilot.press("escape", "escape", "escape", "0", "/", *search, "enter", *group)
                await settle()
                state, selected[name] = app.screen.view_state, []
                times.clear()
                start = time.process_time()
                for number, key in enumerate(group * repeats):
                    pressed[:] = [(number % len(group), time.perf_counter())]
                    await pilot.press(key)
                    selected[name].append(state.selected >= 0 and state.trace.event(state.selected).name)
                await settle()
                cpu[name] = (time.process_time() - start) / (len(group) * repeats)
                frames[name] = median(times.values())
        opening.cancel()
    print(json.dumps({"cpu": cpu, "frames": frames, "selected": selected}))

asyncio.run(main())
"""
"""Runs in a process per checkout: by group, CPU time per key, time to the frame, names of selected events."""


def measure(root: Path, trace: str) -> dict[str, Any]:
    """Measure one checkout: s of CPU time and to the frame, and the names of selected events, by group of keys."""
    command = [sys.executable, "-P", "-c", PROGRAM, str(root.resolve()), trace, json.dumps(KEYS), str(REPEATS), SEARCH]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(answer.stdout))


def compare(before: Path, after: Path, trace: str, rounds: int) -> list[str]:
    """Compare two checkouts: one line per group and measure, with both medians in ms and the median of the ratios."""
    pairs = []
    for number in range(rounds):
        order = (before, after) if number % 2 else (after, before)
        found = {root: measure(root, trace) for root in order}
        pairs.append((found[before], found[after]))
    lines = []
    for title, kind in (("CPU time, per key", "cpu"), ("time from key to frame", "frames")):
        lines.append(f"{title:<26}{'before':>12}{'after':>12}{'ratio':>8}")
        for name in pairs[0][0][kind]:
            old, new = [pair[0][kind][name] * 1e3 for pair in pairs], [pair[1][kind][name] * 1e3 for pair in pairs]
            ratio = median(after / before for before, after in zip(old, new, strict=True))
            lines.append(f"{name:<26}{median(old):>9.1f} ms{median(new):>9.1f} ms{ratio:>8.2f}")
    other = [name for name in KEYS if any(old["selected"][name] != new["selected"][name] for old, new in pairs)]
    if other:
        lines.append(f"not comparable, because the keys selected other events: {', '.join(other)}")
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
