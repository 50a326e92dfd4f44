"""One rank of a job with one known fault, over gloo: `program.py FAULT FOLDER SECONDS`, with torchrun's variables.

The comment `line: FAULT` marks the line that `torchprof-tui hang` must name.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "profiler_runs"))
from torchprof_runs.recorder.hang_watch import HangWatch, enable_flight_recorder  # of `run --watch-hang`

enable_flight_recorder()  # before torch is loaded

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, BAD = 5, 3
FOREVER = 600
grads, metric, scalar = torch.ones(64), torch.ones(10), torch.ones(1)


def gather(group: dist.ProcessGroup | None = None) -> None:
    dist.all_gather([torch.empty(10) for _ in range(dist.get_world_size(group))], metric, group=group)


# --- the first half: rules are written with these -------------------------------------------------------------------


def skip_all_reduce(step: int) -> None:
    if not (step == BAD and RANK == 1):
        dist.all_reduce(grads)  # line: skip_all_reduce
    gather()


def order_swapped(step: int) -> None:
    if step == BAD and RANK == 2:
        dist.broadcast(metric, 0)  # line: order_swapped
        dist.all_reduce(grads)
    else:
        dist.all_reduce(grads)
        dist.broadcast(metric, 0)


def size_of_last_batch(step: int) -> None:
    count = 48 if step == BAD and RANK == 1 else 64
    dist.all_reduce(torch.ones(count))  # line: size_of_last_batch
    dist.all_reduce(scalar)


def group_wrong(step: int) -> None:
    group = PAIR if step == BAD and RANK == 3 else None
    dist.all_reduce(grads, group=group)  # line: group_wrong


def rank_killed(step: int) -> None:
    if step == BAD and RANK == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(grads)  # line: rank_killed


def slow_compute(step: int) -> None:
    if step == BAD and RANK == 1:
        sum(torch.mm(grads.view(8, 8), grads.view(8, 8)).sum() for _ in range(10**9))  # line: slow_compute
    dist.all_reduce(grads)


class Samples(Dataset):
    def __init__(self, stuck: bool) -> None:
        self.stuck = stuck

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.stuck and index == 2 * BAD:
            time.sleep(FOREVER)  # line: loader_stuck
        return torch.ones(4)


def loader_stuck(step: int) -> None:
    next(BATCHES)
    dist.all_reduce(grads)


def peer_wrong(step: int) -> None:
    if RANK == 0:
        dist.send(metric, 1)
    elif RANK == 1:
        dist.recv(metric, 2 if step == BAD else 0)  # line: peer_wrong
    dist.all_reduce(grads)


def coalesced_skip(step: int) -> None:
    if not (step == BAD and RANK == 0):
        dist.all_reduce_coalesced([grads, metric])  # line: coalesced_skip
    dist.broadcast(scalar, 0)


def network_down(step: int) -> None:
    if step == BAD:
        lose_packets()
    dist.all_reduce(grads)  # line: network_down


# --- the second half: held out --------------------------------------------------------------------------------------


def skip_in_branch(step: int) -> None:
    dist.all_reduce(grads)
    loss = 1.0 if step == BAD and RANK == 5 else 0.1
    if loss < 0.5:
        dist.broadcast(metric, 0)  # line: skip_in_branch
    dist.all_reduce(scalar)


def order_of_groups(step: int) -> None:
    groups = (PAIR, None) if step == BAD and RANK == 1 else (None, PAIR)
    for group in groups:
        if RANK < 2 or group is None:
            dist.all_reduce(grads, group=group)  # line: order_of_groups


def dtype_other(step: int) -> None:
    kind = torch.float64 if step == BAD and RANK == 2 else torch.float32
    dist.all_reduce(torch.ones(64, dtype=kind))  # line: dtype_other


def group_of_half(step: int) -> None:
    gather(HALF)
    dist.all_reduce(scalar, group=HALF if step == BAD and RANK == 6 else None)  # line: group_of_half


def rank_stopped(step: int) -> None:
    if step == BAD and RANK == 3:
        os.kill(os.getpid(), signal.SIGSTOP)
    gather()  # the rank is named; its line is that of the others
    dist.all_reduce(grads)


def slow_healthy(step: int) -> None:
    if step == BAD and RANK == 1:
        time.sleep(3 * SECONDS)  # line: slow_healthy
    dist.all_reduce(grads)


def loader_worker(step: int) -> None:
    next(BATCHES)  # line: loader_worker
    dist.broadcast(metric, 0)


def send_missing(step: int) -> None:
    if RANK > 0:
        dist.recv(metric, RANK - 1)
    if RANK < WORLD - 1 and not (step == BAD and RANK == 1):
        dist.send(metric, RANK + 1)
    dist.barrier()  # line: send_missing


def coalesced_size(step: int) -> None:
    other = torch.ones(9 if step == BAD and RANK == 2 else 10)
    dist.all_reduce_coalesced([grads, other])  # line: coalesced_size


def network_stall(step: int) -> None:
    if step == BAD and RANK == 2:
        lose_packets()
    dist.all_reduce(torch.ones(100_000))  # line: network_stall


# --------------------------------------------------------------------------------------------------------------------


def lose_packets() -> None:
    """Put an unconnected socket in the place of each of gloo's: what is sent is lost, and nothing arrives."""
    for number in sorted(int(name) for name in os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(number)) as found:
                is_gloo = found.family in (socket.AF_INET, socket.AF_INET6) and STORE_PORT not in (
                    found.getsockname()[1],
                    found.getpeername()[1],
                )
        except OSError:
            continue
        if is_gloo:
            os.dup(number)  # the connection stays open
            near, far = socket.socketpair()
            near.setblocking(False)
            KEPT.append(far)
            os.dup2(near.detach(), number)


def main() -> None:
    global PAIR, HALF, BATCHES, STORE_PORT, KEPT, SECONDS
    name, folder, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
    STORE_PORT, KEPT = int(os.environ["MASTER_PORT"]), []
    torch.set_num_threads(1)
    watch = HangWatch(folder, RANK, WORLD, SECONDS, lambda line: print(line, flush=True))
    watch.start()
    dist.init_process_group("gloo", timeout=timedelta(seconds=FOREVER))
    if name in ("group_wrong", "order_of_groups"):
        PAIR = dist.new_group([WORLD - 2, WORLD - 1] if name == "group_wrong" else [0, 1])
    if name == "group_of_half":
        halves = [dist.new_group(list(range(WORLD // 2))), dist.new_group(list(range(WORLD // 2, WORLD)))]
        HALF = halves[RANK >= WORLD // 2]
    if name.startswith("loader"):
        stuck = (0 if name == "loader_stuck" else 1) == RANK
        workers = 0 if name == "loader_stuck" else 2
        BATCHES = iter(DataLoader(Samples(stuck), batch_size=2, num_workers=workers))
    try:
        for step in range(STEPS):
            globals()[name](step)
            watch.note_step()
    except BaseException as error:
        watch.finish("exception", error)
        raise
    watch.finish("finished")
    time.sleep(1)  # a rank that leaves closes the connections of the others
    os._exit(0)


if __name__ == "__main__":
    main()
