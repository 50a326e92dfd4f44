"""Train over gloo until a rank leaves out a collective: ``python desync.py FOLDER [install]``, as a rank of torchrun.

Each step is a broadcast, an all-reduce and an optimizer step. Once FOLDER/hang exists, rank 1 skips the all-reduce, and
all ranks wait for ever. FOLDER/steps holds the number of steps that rank 0 has made. `install`: as programs do that
call `torchprof_runs.install()`.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

PROGRAM = Path(__file__)
RANKS = 2


def find_line(word: str) -> int:
    """Find the line of this program that ends with a comment."""
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {word}"))


@contextmanager
def running(folder: Path, *words: str, **variables: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the ranks of a job, which are killed at the end; begins when they have made three steps."""
    import socket
    import subprocess

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", **variables}
    ranks = []
    try:
        for rank in range(RANKS):
            with open(folder / f"log{rank}.txt", "wb") as log:
                environment = {**shared, "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
                command = [sys.executable, str(PROGRAM), str(folder), *words]
                ranks.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        wait_for_steps(folder, 3)
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def read_steps(folder: Path) -> int:
    """Read how many steps the job has made."""
    try:
        return int((folder / "steps").read_text() or 0)
    except FileNotFoundError:
        return 0


def wait_for_steps(folder: Path, count: int) -> None:
    """Wait until the job has made so many steps. Raises AssertionError after two minutes."""
    deadline = time.monotonic() + 120
    while read_steps(folder) < count:
        assert time.monotonic() < deadline, (folder / "log0.txt").read_text()
        time.sleep(0.02)


def hang(folder: Path) -> None:
    """Let the job hang, and wait until it does. Raises AssertionError after two minutes."""
    (folder / "hang").touch()
    before, since, deadline = -1, time.monotonic(), time.monotonic() + 120
    while time.monotonic() - since < 1.0:
        assert time.monotonic() < deadline
        if (steps := read_steps(folder)) != before:
            before, since = steps, time.monotonic()
        time.sleep(0.02)


def main() -> None:
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
    import torch
    import torch.distributed as dist

    if "install" in sys.argv[2:]:
        sys.path.insert(0, str(PROGRAM.parents[2] / "profiler_runs"))
        import torchprof_runs

        assert torchprof_runs.install()
    weight = torch.nn.Parameter(torch.ones(64))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    step = 0
    while True:
        hangs = torch.tensor([int((folder / "hang").exists())])
        dist.broadcast(hangs, 0)
        weight.grad = torch.ones(64)
        if not (hangs.item() and rank == 1):
            dist.all_reduce(weight.grad)  # skipped
        optimizer.step()
        if hangs.item():
            dist.barrier()  # called instead
        step += 1
        if rank == 0:
            (folder / "steps.part").write_text(str(step))
            os.replace(folder / "steps.part", folder / "steps")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
