"""Measure `torchprof-tui attach`: `python -m benchmarks.attach [--rounds 5]`

- from the start of the program to the list of jobs, in a terminal: by the clock, and the CPU time of the program, which
  depends less on what else runs on the machine;
- on the CPU, step times of one loop without KINETO_USE_DAEMON, with it, and with it after ten recordings, in turns;
- how much later a program ends that has the variable where nobody answers, by the kind of socket.

The step times of a GPU are measured by an own script on such a machine; docs/tasks/attach.md has its numbers.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import write_bytecode
from tests.helpers.terminal import Terminal
from torchprof_attach.session import Session, Wish

LOOP = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
optimizer, inputs = torch.optim.Adam(model.parameters()), torch.ones(64, 256)
count = int(sys.argv[2])
with open(sys.argv[1], "w") as times:
    while count:
        count -= 1
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        times.write(f"{time.time():.6f}\\n")
        times.flush()
"""
TURN_SECONDS = 1.5
ENDLESS = -1


def measure_start() -> tuple[float, float]:
    """Measure until the list of jobs is on the screen: seconds, and of them on a CPU. Linux only: reads /proc."""
    begin = time.perf_counter()
    with Terminal([sys.executable, "-m", "torchprof_tui", "attach"]) as terminal:
        terminal.wait_for("can be recorded")
        seconds = time.perf_counter() - begin
        threads = Path(f"/proc/{terminal.pid}/task").glob("*/schedstat")
        return seconds, sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def start_loop(folder: Path, name: str, count: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    script = folder / "loop.py"
    script.write_text(LOOP)
    return subprocess.Popen(
        [sys.executable, str(script), str(folder / name), str(count)],
        env={**os.environ, **environment},
        stderr=subprocess.DEVNULL,
    )


def measure_steps(folder: Path, rounds: int) -> dict[str, float]:
    """Median step of three loops that take turns, in ms; the third was recorded ten times before."""
    (folder / "sockets").mkdir(mode=0o700)
    variables = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(folder / "sockets")}
    kinds = {"without": {}, "with": variables, "recorded": variables}
    loops = {name: start_loop(folder, name, ENDLESS, environment) for name, environment in kinds.items()}
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    try:
        time.sleep(8)
        with Session() as session:
            session.connect()
            job = next(job for job in session.list_jobs() if job.pid == loops["recorded"].pid)
            for _ in range(10):
                session.record([job], Wish(), folder / "trace.json")
            for loop in loops.values():
                os.kill(loop.pid, signal.SIGSTOP)
            for _ in range(rounds):
                for name, loop in loops.items():
                    os.kill(loop.pid, signal.SIGCONT)
                    begin = time.time()
                    time.sleep(TURN_SECONDS)
                    turns[name].append((begin + 0.2, time.time()))
                    os.kill(loop.pid, signal.SIGSTOP)
    finally:
        for loop in loops.values():
            loop.kill()
            loop.wait()
    return {name: find_median(folder / name, turns[name]) for name in kinds}


def find_median(path: Path, turns: list[tuple[float, float]]) -> float:
    """Find the median step within some turns, in ms."""
    times = [float(line) for line in path.read_text().splitlines() if len(line) > 16]
    inside = [
        (later - earlier) * 1e3
        for earlier, later in itertools.pairwise(times)
        if any(begin < earlier and later < end for begin, end in turns)
    ]
    return statistics.median(inside)


def measure_end(folder: Path, environment: Mapping[str, str]) -> float:
    """Seconds from the last step of a loop until its process has ended."""
    loop = start_loop(folder, "end", 300, environment)
    loop.wait()
    ended = time.time()
    return ended - float((folder / "end").read_text().split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    write_bytecode()
    measure_start()
    for kind, starts in zip(
        ("by the clock", "on a CPU"), zip(*(measure_start() for _ in range(rounds)), strict=True), strict=True
    ):
        print(
            f"start to list, {kind}: median {statistics.median(starts):.3f} s, {min(starts):.3f} to {max(starts):.3f} s"
        )
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="tt") as name:
        folder = Path(name)
        medians = measure_steps(folder, rounds)
        for kind, median in medians.items():
            print(f"step {kind}: {median:.3f} ms ({median / medians['without'] - 1:+.2%})")
        private = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(folder / "sockets")}
        for kind, environment in {"without": {}, "abstract": {"KINETO_USE_DAEMON": "1"}, "folder": private}.items():
            print(f"last step to end, {kind}: {measure_end(folder, environment):.2f} s")


if __name__ == "__main__":
    main()
