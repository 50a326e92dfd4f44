"""Provoke hangs of two ranks over NCCL and keep the watchdog's dumps; needs two GPUs.

    python -m tools.hang_faults.nccl_program FOLDER     # each fault into FOLDER/FAULT, five at a time

The comment `line: FAULT` marks the line that `torchprof-tui hang` must name. NCCL's watchdog ends a rank when its
dump is written, so each fault takes about half a minute.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STEPS, BAD = 5, 3
TIMEOUT_SECONDS = 10
LIMIT_SECONDS = 75
FIRST_PORT = 29610


if sys.argv[1:2] == ["--rank"]:  # the code of one rank, with torchrun's variables
    name = sys.argv[2]
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    grads, metric = torch.ones(1 << 20, device="cuda"), torch.ones(10, device="cuda")
    gathered = [torch.empty_like(metric) for _ in range(2)]

    def skip_all_reduce(step: int) -> None:
        if not (step == BAD and rank == 1):
            dist.all_reduce(grads)  # line: skip_all_reduce
        dist.all_gather(gathered, metric)

    def order_swapped(step: int) -> None:
        if step == BAD and rank == 1:
            dist.broadcast(metric, 0)  # line: order_swapped
            dist.all_reduce(grads)
        else:
            dist.all_reduce(grads)
            dist.broadcast(metric, 0)

    def size_other(step: int) -> None:
        dist.all_reduce(grads[: 1 << 19] if step == BAD and rank == 1 else grads)  # line: size_other
        dist.all_reduce(metric)

    def dtype_other(step: int) -> None:
        dist.all_reduce(grads.double() if step == BAD and rank == 0 else grads)  # line: dtype_other
        dist.all_reduce(metric)

    def rank_killed(step: int) -> None:
        if step == BAD and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(grads)  # line: rank_killed

    def slow_compute(step: int) -> None:
        if step == BAD and rank == 1:
            time.sleep(LIMIT_SECONDS)  # line: slow_compute
        dist.all_reduce(grads)

    def gpu_busy(step: int) -> None:
        if step == BAD and rank == 1:
            for _ in range(30):
                torch.cuda._sleep(1 << 31)  # type: ignore[no-untyped-call]  # about a second
        dist.all_reduce(grads)  # line: gpu_busy

    class Samples(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> torch.Tensor:
            if rank == 0 and index == 2 * BAD:
                time.sleep(LIMIT_SECONDS)  # line: loader_stuck
            return torch.ones(4)

    batches = iter(DataLoader(Samples(), batch_size=2))

    def loader_stuck(step: int) -> None:
        next(batches)
        dist.all_reduce(grads)

    def send_missing(step: int) -> None:
        if rank == 1:
            dist.recv(metric, 0)  # line: send_missing
        elif step != BAD:
            dist.send(metric, 1)
        dist.all_reduce(grads)

    def coalesced_skip(step: int) -> None:
        if not (step == BAD and rank == 0):
            dist.all_reduce_coalesced([grads, metric])  # line: coalesced_skip
        dist.broadcast(metric, 0)

    faults = {
        fault.__name__: fault
        for fault in (
            skip_all_reduce,
            order_swapped,
            size_other,
            dtype_other,
            rank_killed,
            slow_compute,
            gpu_busy,
            loader_stuck,
            send_missing,
            coalesced_skip,
        )
    }
    from datetime import timedelta

    dist.init_process_group("nccl", timeout=timedelta(seconds=TIMEOUT_SECONDS), device_id=torch.device("cuda", rank))
    for step in range(STEPS):
        faults[name](step)
        torch.cuda.synchronize()
    print("finished", flush=True)
    time.sleep(1)
    os._exit(0)


NAMES = (
    "skip_all_reduce",
    "order_swapped",
    "size_other",
    "dtype_other",
    "rank_killed",
    "slow_compute",
    "gpu_busy",
    "loader_stuck",
    "send_missing",
    "coalesced_skip",
)


def provoke(name: str, folder: Path) -> str:
    """Run both ranks of a job with a fault until they end or the limit is over; describe how they ended."""
    folder.mkdir(parents=True)
    dump = str(folder.resolve() / "comm_trace_rank_")
    shared = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(FIRST_PORT + NAMES.index(name)),
        "WORLD_SIZE": "2",
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dump,
        "TORCH_FR_DUMP_TEMP_FILE": dump,
    }
    processes = []
    for rank in range(2):
        with open(folder / f"log_rank_{rank}.txt", "wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, __file__, "--rank", name],
                    env={**shared, "RANK": str(rank)},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
    until = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until and any(process.poll() is None for process in processes):
        time.sleep(0.2)
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return f"{name}: {[process.returncode for process in processes]} {sorted(path.name for path in folder.iterdir())}"


def main() -> None:
    with ThreadPoolExecutor(5) as pool:
        for line in pool.map(lambda name: provoke(name, Path(sys.argv[1]) / name), NAMES):
            print(line, flush=True)


if __name__ == "__main__":
    main()
