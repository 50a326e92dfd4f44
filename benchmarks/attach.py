"""Measure `torchprof-tui attach`: `python -m benchmarks.attach [--rounds 5]`, or with `--gpu JOBS` on a GPU

- from the start of the program to the list of jobs, in a terminal: by the clock, and the CPU time of the program, which
  depends less on what else runs on the machine;
- on the CPU, step times of one loop without KINETO_USE_DAEMON, with it, and with it after ten recordings, in turns;
- how much later a program ends that has the variable where nobody answers, by the kind of socket.

With `--gpu`, step times of JOBS training loops without the variable and as many with it, which run in turns, before and
after recordings (20 of the first job, 2 of each other), and how many of these traces have kernels. The numbers are in
docs/tasks/attach.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
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
GPU_LOOP = """
import sys, time, torch
layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 4).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
inputs = torch.randn(8, 512, 1024, device="cuda")
with open(sys.argv[1], "w") as times:
    while True:
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        times.write(f"{time.time():.6f}\\n")
        times.flush()
"""
SLEEP = """
import time, torch
time.sleep(3)
begin = time.process_time()
time.sleep(20)
print(time.process_time() - begin)
"""
MANY_TRIGGERS, FEW_TRIGGERS = 20, 2
TURN_SECONDS = 1.5
ENDLESS = -1
STUDENT_T = 2.23  # 97.5 % of Student's t for 10 degrees of freedom: six jobs of each kind


def measure_start() -> tuple[float, float]:
    """Measure until the list of jobs is on the screen: seconds, and of them on a CPU. Linux only: reads /proc."""
    begin = time.perf_counter()
    with Terminal([sys.executable, "-m", "torchprof_tui", "attach"]) as terminal:
        terminal.wait_for("can be recorded")
        seconds = time.perf_counter() - begin
        threads = Path(f"/proc/{terminal.pid}/task").glob("*/schedstat")
        return seconds, sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def start_loop(
    folder: Path, name: str, count: int, environment: Mapping[str, str], loop: str = LOOP
) -> subprocess.Popen[bytes]:
    script = folder / "loop.py"
    script.write_text(loop)
    return subprocess.Popen(
        [sys.executable, str(script), str(folder / name), str(count)],
        env={**os.environ, **environment},
        stderr=subprocess.DEVNULL,
    )


def measure_steps(folder: Path, rounds: int) -> dict[str, float]:
    """Median step of three loops that take turns, in ms; the third was recorded ten times before."""
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
            take_turns(loops, turns, rounds)
    finally:
        for loop in loops.values():
            loop.kill()
            loop.wait()
    return {name: find_median(folder / name, turns[name]) for name in kinds}


def take_turns(
    loops: Mapping[str, subprocess.Popen[bytes]], turns: Mapping[str, list[tuple[float, float]]], rounds: int
) -> None:
    """Let stopped loops run one at a time, in another order each round, and note when each ran."""
    for _ in range(rounds):
        for name in random.sample(list(loops), len(loops)):
            os.kill(loops[name].pid, signal.SIGCONT)
            begin = time.time()
            time.sleep(TURN_SECONDS)
            turns[name].append((begin + 0.2, time.time()))
            os.kill(loops[name].pid, signal.SIGSTOP)


def measure_gpu_steps(folder: Path, jobs: int, rounds: int) -> None:
    """Print the steps of loops on a GPU, with and without the variable, before and after recordings."""
    (folder / "sockets").mkdir(mode=0o700)
    variables = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(folder / "sockets")}
    kinds = {f"{kind} {number}": kind for number in range(jobs) for kind in ("without", "with")}
    loops = {
        name: start_loop(folder, name, ENDLESS, variables if kind == "with" else {}, GPU_LOOP)
        for name, kind in kinds.items()
    }
    try:
        with Session() as session:
            session.connect()
            while any(not (folder / name).exists() or (folder / name).stat().st_size < 800 for name in loops):
                time.sleep(1)
            listed = {job.pid: job for job in session.list_jobs()}
            for loop in loops.values():
                os.kill(loop.pid, signal.SIGSTOP)
            before = measure_turns(folder, loops, rounds)
            print_ratio("never recorded", before, kinds)
            counts = []
            for name, loop in loops.items():
                if kinds[name] == "with":
                    os.kill(loop.pid, signal.SIGCONT)
                    for number in range(FEW_TRIGGERS if counts else MANY_TRIGGERS):
                        path = folder / f"{loop.pid}.{number}.json"
                        session.record([listed[loop.pid]], Wish(steps=3), path)
                        counts.append(count_kernels(path))
                    os.kill(loop.pid, signal.SIGSTOP)
            print(
                f"traces with kernels: {sum(count > 0 for count in counts)} of {len(counts)}; kernels in each: {counts}"
            )
            after = measure_turns(folder, loops, rounds)
            print_ratio("recorded, each beside itself before", {n: after[n] / before[n] for n in loops}, kinds)
    finally:
        for loop in loops.values():
            loop.kill()
            loop.wait()


def count_kernels(path: Path) -> int:
    """Count the kernels of a trace, 0 where there is none."""
    if not path.exists():
        return 0
    return sum(event.get("cat") == "kernel" for event in json.loads(path.read_bytes())["traceEvents"])


def measure_turns(folder: Path, loops: Mapping[str, subprocess.Popen[bytes]], rounds: int) -> dict[str, float]:
    """Median step of each loop in turns that it takes now, in ms."""
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in loops}
    take_turns(loops, turns, rounds)
    return {name: find_median(folder / name, turns[name]) for name in loops}


def print_ratio(title: str, values: Mapping[str, float], kinds: Mapping[str, str]) -> None:
    """Print the means of both kinds of jobs, and their ratio with the 95 % interval of the means."""
    groups = {kind: [values[name] for name in values if kinds[name] == kind] for kind in ("without", "with")}
    without, with_it = (statistics.mean(groups[kind]) for kind in groups)
    error = math.hypot(*(statistics.stdev(each) / math.sqrt(len(each)) for each in groups.values()))
    print(
        f"{title}: without {without:.3f}, with {with_it:.3f}: {with_it / without - 1:+.2%}"
        f" (95 % interval ±{STUDENT_T * error / without:.2%}); each: "
        + ", ".join(f"{name} {value:.3f}" for name, value in values.items())
    )


def find_median(path: Path, turns: list[tuple[float, float]]) -> float:
    """Find the median step within some turns, in ms."""
    times = [float(line) for line in path.read_text().splitlines() if len(line) > 16]
    inside = [
        (later - earlier) * 1e3
        for earlier, later in itertools.pairwise(times)
        if any(begin < earlier and later < end for begin, end in turns)
    ]
    return statistics.median(inside)


def measure_sleep(environment: Mapping[str, str]) -> float:
    """CPU time of a process that sleeps for 20 s after `import torch`, in ms."""
    done = subprocess.run(
        [sys.executable, "-c", SLEEP],
        env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return float(done.stdout) * 1e3


def measure_end(folder: Path, environment: Mapping[str, str]) -> float:
    """Seconds from the last step of a loop until its process has ended."""
    loop = start_loop(folder, "end", 300, environment)
    loop.wait()
    ended = time.time()
    return ended - float((folder / "end").read_text().split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gpu", type=int, metavar="JOBS")
    options = parser.parse_args()
    rounds: int = options.rounds
    if options.gpu:
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="tt") as name:
            measure_gpu_steps(Path(name), options.gpu, rounds)
        return
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
        (folder / "sockets").mkdir(mode=0o700)
        private = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(folder / "sockets")}
        with Session() as session:
            session.connect()
            for kind, environment in {"without": {}, "with": private}.items():
                print(f"CPU time of 20 s asleep, {kind}: {measure_sleep(environment):.1f} ms")
        medians = measure_steps(folder, rounds)
        for kind, median in medians.items():
            print(f"step {kind}: {median:.3f} ms ({median / medians['without'] - 1:+.2%})")
        for kind, environment in {"without": {}, "abstract": {"KINETO_USE_DAEMON": "1"}, "folder": private}.items():
            print(f"last step to end, {kind}: {measure_end(folder, environment):.2f} s")


if __name__ == "__main__":
    main()
