"""The replay agrees with a simulation of jobs whose slow worker is known, which shares no code with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.fleet_sketches import make_collectives, make_sketch
from tests.helpers.later_imports import skip_without
from tests.helpers.long_run import keep_some
from torchprof_fleet.analysis.report import FleetReport, compare_fleet

skip_without("pandas", "pyarrow")

TOLERANCE = 0.02


@pytest.mark.parametrize(
    ("slow", "factor", "seed"), keep_some([((2, 1), 1.5, 7), ((0, 2), 1.3, 8), ((3, 0), 2.0, 9)], 1)
)
def test_slowdown_and_slow_worker_of_a_pipeline_are_found(
    tmp_path: Path, slow: tuple[int, int], factor: float, seed: int
) -> None:
    from tests.helpers.pipeline_simulator import PipelineJob
    from tests.helpers.straggler_jobs import StragglerJob

    simulated = PipelineJob(slowness={slow: factor}, seed=seed)
    durations = simulated.draw_durations()
    table, recorded = simulated.simulate(durations)
    means = table.groupby("optype").duration.mean().to_dict()
    ideal = {key: means[key[3]] for key in durations}
    _, shortest = simulated.simulate(ideal)
    table.to_parquet(tmp_path / "job.parquet")
    job = StragglerJob(tmp_path / "job.parquet")

    assert job.replay(job.recorded, as_recorded=True) == pytest.approx(recorded, rel=TOLERANCE)
    assert job.replay(job.ideal) == pytest.approx(shortest, rel=TOLERANCE)
    expected, found = {}, {}
    for replica, stage in simulated.list_workers():
        mixed = {key: durations[key] if key[1:3] == (replica, stage) else ideal[key] for key in durations}
        expected[replica, stage] = simulated.simulate(mixed)[1] / shortest
        own = (job.table.dp_rank == replica) & (job.table.stage == stage)
        found[replica, stage] = job.replay(job.mix(own.to_numpy())) / job.replay(job.ideal)
    assert found == pytest.approx(expected, rel=TOLERANCE)
    assert max(found, key=found.__getitem__) == max(expected, key=expected.__getitem__) == slow


RANKS, STEPS, PER_STEP, TRANSFER_NS = 16, 8, 12, 400_000


def simulate_ranks(gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Simulate ranks that all-reduce after each gap, int64[ranks, collectives] ns: arrivals and common ends."""
    now, arrivals, ends = 0, np.zeros_like(gaps), np.zeros(gaps.shape[1], np.int64)
    for index in range(gaps.shape[1]):
        arrivals[:, index] = now + gaps[:, index]
        now = ends[index] = arrivals[:, index].max() + TRANSFER_NS
    return arrivals, ends


def compare_simulated(arrivals: np.ndarray, ends: np.ndarray) -> FleetReport:
    """Compare the ranks as sketches, each on a clock of its own; a step ends with its last collective."""
    bounds = np.append(0, ends[PER_STEP - 1 :: PER_STEP])
    sketches = []
    for rank in range(RANKS):
        rows = [
            (index // PER_STEP, "dp", "allreduce", index % PER_STEP, int(arrivals[rank, index]), int(ends[index]))
            for index in range(len(ends))
        ]
        sketches.append(
            make_sketch(rank, np.diff(bounds) / 1e6, collectives=make_collectives(rows), time_zero=rank * 10**9)
        )
    return compare_fleet(sketches)


@pytest.mark.parametrize(("slow", "factor"), [(5, 1.4), (0, 2.0), (15, 1.15)])
def test_the_job_without_its_slow_rank_takes_what_a_simulation_without_it_takes(slow: int, factor: float) -> None:
    random = np.random.default_rng(slow)
    work = random.uniform(1e6, 5e6, STEPS * PER_STEP) * (1 + 0.002 * random.standard_normal((RANKS, STEPS * PER_STEP)))
    slowed = work.copy()
    slowed[slow] *= factor
    arrivals, ends = simulate_ranks(slowed.astype(np.int64))
    _, ends_without = simulate_ranks(work.astype(np.int64))
    report = compare_simulated(arrivals, ends)

    assert report.waits[0].rank == slow
    late = np.median(slowed.max(axis=0) - slowed, axis=0)[1:].sum()  # the first collective of a group is left out
    assert report.waits[0].delay == pytest.approx(late, rel=TOLERANCE)
    assert report.replay.base == pytest.approx(ends[-1], rel=TOLERANCE)
    assert report.replay.without([slow]) == pytest.approx(ends_without[-1], rel=TOLERANCE)
    assert report.remove([slow]) == pytest.approx(1 - ends_without[-1] / ends[-1], abs=2 * TOLERANCE)
