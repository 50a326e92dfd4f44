"""What recording through the harness costs a step, beside the same torch.profiler code written by hand.

    python -m benchmarks.harness_overhead [--rounds 5] [--width 8] [--active 1500]

The same training loop, alternately under `profiler_runs/harness.py` and with a `torch.profiler.profile` of its own with
the same schedule; each process tells the median time of its recorded steps. The first round is thrown away. Runs
under the Python that runs this; on the GPU where there is one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HARNESS = Path(__file__).resolve().parent.parent / "profiler_runs" / "harness.py"

LOOP = """
import contextlib, statistics, sys, time, torch
from torch.profiler import profile, schedule
by_hand, width, active = sys.argv[1] == "hand", int(sys.argv[2]), int(sys.argv[3])
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(8))).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(64, width, device=device)
times = []
own = profile(schedule=schedule(wait=2, warmup=1, active=active, repeat=1)) if by_hand else contextlib.nullcontext()
with own as prof:
    for _ in range(active + 4):
        times.append(time.perf_counter())
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if by_hand: prof.step()
steps = [after - before for before, after in zip(times, times[1:])]
print(statistics.median(steps[3 : active + 2]))
"""


def step_seconds(script: Path, how: str, width: int, active: int) -> float:
    """The median recorded step of one process; the last one, which the saving of the trace belongs to, is left out."""
    command = [sys.executable]
    if how == "harness":
        # Without a preflight, as a profiler written by hand has none; it measures a step that is not recorded anyway.
        command += [str(HARNESS), "-o", str(script.parent / "runs"), "--active", str(active), "--no-preflight"]
        command += ["--no-table", "--then", "finish"]
    command += [str(script), how, str(width), str(active)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--width", type=int, default=8, help="of eight linear layers; so narrow that little but launching is left"
    )
    parser.add_argument("--active", type=int, default=1500, help="recorded steps")
    args = parser.parse_args()
    ratios, hands = [], []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "loop.py")
        script.write_text(LOOP, encoding="utf-8")
        for number in range(args.rounds + 1):
            took = {how: step_seconds(script, how, args.width, args.active) for how in ("hand", "harness")}
            if number:
                hands.append(took["hand"])
                ratios.append(took["harness"] / took["hand"])
                print(
                    f"round {number}: by hand {took['hand'] * 1e6:.0f} µs a step, harness ×{ratios[-1]:.4f}", flush=True
                )
    print(f"median: by hand {statistics.median(hands) * 1e6:.0f} µs a step, harness ×{statistics.median(ratios):.4f}")


if __name__ == "__main__":
    main()
