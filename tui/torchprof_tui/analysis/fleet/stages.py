"""The pipeline stages of a job: what it would take with the slowest one as fast as the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.fleet.findings import STAGE_WORDS, FleetChecker


@dataclass(frozen=True, slots=True)
class SlowestStage:
    """The stage that computes longest. `ranks`: indexes; `saved_share`: of the job's time, at least, without it."""

    label: str
    ranks: tuple[int, ...]
    saved_share: float


def find_slowest_stage(checker: FleetChecker) -> SlowestStage | None:
    """Find the stage that computes longest; None without stages, or where it computes no longer than the next.

    In a pipeline of m micro-batches over p stages a step takes (m + p - 1) times the longest stage's micro-batch
    (Narayanan et al., 2021, "Efficient Large-Scale Language Model Training on GPU Clusters"), of which that stage
    computes m. So as fast as the next stage, it shortens the step by at least the difference of their compute times.
    """
    fleet = checker.fleet
    position = checker.find_positions(STAGE_WORDS)
    numbers = np.unique(position[position >= 0])
    if len(numbers) < 2:
        return None
    compute = fleet.gather_steps("compute")
    with np.errstate(all="ignore"):
        load = np.array([np.nanmedian(compute[position == number], axis=0) for number in numbers.tolist()])
    known = np.isfinite(load).all(axis=0)
    times = np.nanmedian(fleet.durations, axis=0)[known]
    if not times.sum() > 0:
        return None
    load = load[:, known]
    slowest = int(load.sum(axis=1).argmax())
    next_load = np.delete(load, slowest, axis=0).max(axis=0)
    saved = float(np.maximum(load[slowest] - next_load, 0).sum() / times.sum())
    if not 0 < saved < 1:
        return None
    ranks = np.flatnonzero(position == numbers[slowest])
    return SlowestStage(f"the excess of pipeline stage {numbers[slowest]}", tuple(ranks.tolist()), saved)
