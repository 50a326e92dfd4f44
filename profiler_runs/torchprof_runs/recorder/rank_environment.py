"""Identify the rank of this process and the number of ranks from the launcher's environment variables."""

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
# Seconds that a stopped rank waits for the others: its process may host the store that they still use.
WAIT_FOR_OTHERS_SECONDS = 20.0


@dataclass(frozen=True)
class RankInfo:
    """The rank of this process; `launch_id` is the same text in all ranks of one launch."""

    rank: int
    world_size: int
    launch_id: str


def identify_rank(environment: Mapping[str, str]) -> RankInfo | None:
    """Identify this process's rank from `environment`; None if it runs alone."""
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
    """List the ranks on this machine, whose files this process can see; only `rank` if the launcher does not say."""
    try:
        local_rank, count = int(environment["LOCAL_RANK"]), int(environment["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError):
        return [rank.rank]
    first = rank.rank - local_rank
    return list(range(first, first + count))


def wait_for_manifests(manifests: Iterable[str], seconds: float = WAIT_FOR_OTHERS_SECONDS) -> None:
    """Wait until the ranks with these manifests have saved their traces, at most `seconds`."""
    unsaved = list(manifests)
    deadline = time.monotonic() + seconds
    while unsaved and time.monotonic() < deadline:
        unsaved = [path for path in unsaved if not _is_saved(path)]
        if unsaved:
            time.sleep(0.05)


def _is_saved(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file).get("state") in ("saved", "ended") or os.path.getsize(path) == 0
    except (OSError, ValueError):
        return False
