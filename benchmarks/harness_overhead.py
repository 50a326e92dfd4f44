"""What recording through the harness costs a step, beside the same torch.profiler code written by hand.

    python -m benchmarks.harness_overhead [--rounds 5] [--width 8] [--active 1500]

The same training loop, alternately under the harness and with a `torch.profiler.profile` of its own with
the same schedule. Each process tells the median time of its recorded steps, and how much of that goes into ending a
step: the call of `prof.step()` by hand, the same through the harness. The first says what a user feels, but two
processes that do the same differ by several percent on a shared machine; the second is the cost itself, as a share of
the step. The first round is thrown away. Runs under the Python that runs this; on the GPU where there is one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HARNESS = Path(__file__).resolve().parent.parent / "profiler_runs" / "torchprof_runs" / "harness.py"

LOOP = """
import contextlib, statistics, sys, time, torch
from torch.profiler import profile, schedule
by_hand, width, active = sys.argv[1] == "hand", int(sys.argv[2]), int(sys.argv[3])
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(8))).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(64, width, device=device)
times, ends = [], []
own = profile(schedule=schedule(wait=2, warmup=1, active=active, repeat=1)) if by_hand else contextlib.nullcontext()
def end_of_step():
    if by_hand: prof.step()
with own as prof:
    for _ in range(active + 4):
        times.append(time.perf_counter())
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        before = time.perf_counter()
        end_of_step()
        ends.append(time.perf_counter() - before)
steps = [after - before for before, after in zip(times, times[1:])]
recorded = slice(3, active + 2)
print(statistics.median(steps[recorded]), statistics.median(ends[recorded]))
"""


class StepSeconds(NamedTuple):
    """Medians over the recorded steps of one process, in seconds: of a whole step, and of ending it."""

    step: float
    end: float


def run_loop(script: Path, mode: str, width: int, active: int) -> StepSeconds:
    """Run one process. Its last recorded step, which includes saving the trace, is left out."""
    command = [sys.executable]
    if mode == "harness":
        # No preflight: a profiler written by hand has none, and it only concerns steps that are not recorded.
        command += [str(HARNESS), "-o", str(script.parent / "runs"), "--active", str(active), "--no-preflight"]
        command += ["--step", "__main__:end_of_step", "--no-table", "--then", "finish"]
    command += [str(script), mode, str(width), str(active)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    step, end = done.stdout.split()[-2:]
    return StepSeconds(float(step), float(end))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--width", type=int, default=8, help="of eight linear layers; so narrow that little but launching is left"
    )
    parser.add_argument("--active", type=int, default=1500, help="recorded steps")
    args = parser.parse_args()
    rounds: list[tuple[StepSeconds, StepSeconds]] = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "loop.py")
        script.write_text(LOOP, encoding="utf-8")
        for number in range(args.rounds + 1):
            order = ("hand", "harness") if number % 2 else ("harness", "hand")
            pair = {mode: run_loop(script, mode, args.width, args.active) for mode in order}
            if number:
                rounds.append((pair["hand"], pair["harness"]))
                print(f"round {number}: {_format_rounds([rounds[-1]])}", flush=True)
    print(f"median: {_format_rounds(rounds)}")


def _format_rounds(rounds: list[tuple[StepSeconds, StepSeconds]]) -> str:
    step = statistics.median(hand.step for hand, _ in rounds)
    ratio = statistics.median(harness.step / hand.step for hand, harness in rounds)
    by_hand, harness = (statistics.median(pair[mode].end for pair in rounds) for mode in (0, 1))
    return (
        f"by hand {step * 1e6:.0f} µs a step, harness ×{ratio:.4f}; ending a step {by_hand * 1e6:.1f} and "
        f"{harness * 1e6:.1f} µs: {(harness - by_hand) / step:+.2%} of a step"
    )


if __name__ == "__main__":
    main()
