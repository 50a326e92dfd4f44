"""Which rank of how many this process is, as its launcher says in the environment."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# (rank, ranks) as torchrun, Slurm's srun and Open MPI's mpirun name them
_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
_LAUNCH_VARIABLES = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
)
WAIT_FOR_OTHERS_SECONDS = 20.0  # seconds a rank that was stopped stays for the others, whose store may live in it


@dataclass(frozen=True)
class RankInfo:
    """This process's place; `launch` is the same text in all ranks of one launch."""

    rank: int
    world_size: int
    launch_id: str


def identify_rank(environment: Mapping[str, str]) -> RankInfo | None:
    """The rank that `environment` gives this process; None where it runs alone."""
    for rank_name, size_name in _RANK_VARIABLES:
        try:
            rank, size = int(environment[rank_name]), int(environment[size_name])
        except (KeyError, ValueError):
            continue
        if size > 1 and 0 <= rank < size:
            launch = ":".join(environment.get(name, "") for name in _LAUNCH_VARIABLES)
            return RankInfo(rank, size, f"{size}:{launch}")
    return None


def list_local_ranks(environment: Mapping[str, str], rank: RankInfo) -> list[int]:
    """The ranks on this machine as far as the launcher tells: those whose files this process can expect to see."""
    try:
        local, count = int(environment["LOCAL_RANK"]), int(environment["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError):
        return [rank.rank]
    first = rank.rank - local
    return list(range(first, first + count))


def wait_for_manifests(manifests: Iterable[str], seconds: float = WAIT_FOR_OTHERS_SECONDS) -> None:
    """Return once every rank whose manifest is named has saved what it recorded, or after `seconds`."""
    waiting = list(manifests)
    deadline = time.monotonic() + seconds
    while waiting and time.monotonic() < deadline:
        waiting = [path for path in waiting if not _is_saved(path)]
        if waiting:
            time.sleep(0.05)


def _is_saved(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file).get("state") in ("saved", "ended") or os.path.getsize(path) == 0
    except (OSError, ValueError):
        return False
