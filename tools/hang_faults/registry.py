"""The faults of `program.py`, with what `torchprof-tui hang` must say of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(__file__).with_name("program.py")
NCCL_PROGRAM = Path(__file__).with_name("nccl_program.py")


@dataclass(frozen=True)
class Fault:
    """`ranks`: of the job. `rank`: the one at fault, None for the network. `operation`: what is named.

    gloo ends a process to which data of another size arrives, and its flight recorder with it: the operation that is
    named then is that of the others.
    """

    ranks: int
    rank: int | None
    cause: str
    operation: str
    is_held_out: bool = False


FAULTS = {
    "skip_all_reduce": Fault(3, 1, "skipped", "all_reduce [64]"),
    "order_swapped": Fault(4, 2, "wrong order", "broadcast [10]"),
    "size_of_last_batch": Fault(2, 1, "wrong size", "all_reduce [64]"),
    "group_wrong": Fault(4, 3, "wrong group", "all_reduce [64]"),
    "rank_killed": Fault(3, 2, "dead rank", "all_reduce [64]"),
    "slow_compute": Fault(4, 1, "slow rank", "all_reduce [64]"),
    "loader_stuck": Fault(2, 0, "data loader", "all_reduce [64]"),
    "peer_wrong": Fault(3, 1, "point-to-point", "recv"),
    "coalesced_skip": Fault(3, 0, "skipped", "all_reduce [64] [10]"),
    "network_down": Fault(2, None, "network", "all_reduce [64]"),
    "skip_in_branch": Fault(8, 5, "skipped", "broadcast [10]", True),
    "order_of_groups": Fault(3, 1, "wrong order", "all_reduce [64]", True),
    "dtype_other": Fault(3, 2, "wrong dtype", "all_reduce [64]", True),
    "group_of_half": Fault(8, 6, "wrong group", "all_reduce [1]", True),
    "rank_stopped": Fault(4, 3, "dead rank", "all_gather [10]", True),
    "slow_healthy": Fault(2, 1, "slow rank", "all_reduce [64]", True),
    "loader_worker": Fault(3, 1, "data loader", "broadcast [10]", True),
    "send_missing": Fault(3, 1, "point-to-point", "recv", True),
    "coalesced_size": Fault(4, 2, "wrong size", "all_reduce [64] [10]", True),
    "network_stall": Fault(4, None, "network", "all_reduce [100000]", True),
}


NCCL_FAULTS = {
    "skip_all_reduce": Fault(2, 1, "skipped", "all_reduce [1048576]"),
    "order_swapped": Fault(2, 1, "wrong order", "broadcast [10]"),
    "rank_killed": Fault(2, 1, "dead rank", "all_reduce [1048576]"),
    "slow_compute": Fault(2, 1, "rank behind", "all_reduce [1048576]"),
    "gpu_busy": Fault(2, None, "network", "all_reduce [1048576]"),
    "loader_stuck": Fault(2, 0, "rank behind", "all_reduce [1048576]"),
    "send_missing": Fault(2, 0, "point-to-point", "recv"),
    "coalesced_skip": Fault(2, 0, "wrong order", "broadcast [10]"),
}
"""Of `nccl_program.py`, with the watchdog's dumps and logs alone: they hold no stacks, and not when a kernel started.
So a rank that computes, or waits for its data, is behind, and a busy GPU looks like the network. Other sizes and other
dtypes did not hang over NVLink."""


def find_lines(name: str, program: Path = PROGRAM) -> list[int]:
    """Find the lines of the program that may be named for a fault."""
    lines = program.read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith(f"# line: {name}")]
