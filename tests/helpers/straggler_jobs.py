"""Read a job of the published stragglers' data (ByteDance-Seed/StragglerAnalysis) as parts of collectives to replay.

A row of the data is an op of a worker (a data-parallel rank and a pipeline stage) in a step: computation, a transfer to
the next stage, or a collective over the data-parallel ranks. A worker computes one op after the other; a receive ends
after its send has been posted; collectives begin when their last worker comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.helpers.later_imports import import_later
from torchprof_fleet.analysis.report import replay_parts

pd = import_later("pandas")

COMPUTE = ("forward-compute", "backward-compute", "gc", "optimizer")
JOINT = ("params-all-gather", "grads-reduce-scatter", "optimizer-clip-main-grad")
"""Collectives over the data-parallel ranks; the last one over all workers."""

EMBEDDING = "embedding-grads-all-reduce"
PEERS = {"forward-recv": ("forward-send", -1), "backward-recv": ("backward-send", 1)}


@dataclass
class _Part:
    """One part: of a collective (`key`), or the post of a send, which nobody waits in."""

    key: tuple[object, ...]
    worker: int
    work: list[int]  # rows of the ops that the worker computes before it
    begin: float
    end: float
    row: int


def _measure_transfer(parts: list[_Part]) -> float:
    """Measure the time (s) from the last arrival to the end; 0 for a post and the end of a worker."""
    return max(max(part.end for part in parts) - max(part.begin for part in parts), 0.0) if parts[0].row >= 0 else 0.0


class StragglerJob:
    """A job: `table` has its ops. `stages`, `replicas`: the sizes of the pipeline and of the data-parallel group."""

    def __init__(self, path: Path) -> None:
        table = pd.read_parquet(path)
        table["optype"] = table["optype"].astype(str)
        table["end"] = table.start_ts.astype(float) + table.duration.astype(float)
        self.table = table.reset_index(drop=True)
        self.stages = int(table.stage.max()) + 1
        self.replicas = int(table.dp_rank.max()) + 1
        self.steps = np.unique(table.step)
        self.recorded = self.table.duration.to_numpy(float).copy()
        self._plans = [self._plan_step(int(step)) for step in self.steps]
        self.ideal = self._find_ideal()
        self.median_transfer = self._find_median_transfers()

    def _plan_step(self, step: int) -> list[list[_Part]]:
        """List the collectives of a step, each with its parts, in the order in which they end."""
        rows = self.table[self.table.step == step]
        groups: dict[tuple[object, ...], list[_Part]] = {}
        for (replica, stage), own in rows.groupby(["dp_rank", "stage"]):
            for part in self._list_parts(own, int(replica), int(stage)):
                groups.setdefault(part.key, []).append(part)
        return sorted(groups.values(), key=lambda parts: max(part.end for part in parts))

    def _list_parts(self, own: pd.DataFrame, replica: int, stage: int) -> list[_Part]:
        """List the parts of one worker in one step by time. Transfers at the ends of the pipeline are not real ones."""
        worker = replica * self.stages + stage
        sequence: list[tuple[float, int, tuple[object, ...] | None, float, int, str]] = []
        for row, op in zip(own.index, own.itertuples(), strict=True):
            begin, end, kind, number = float(op.start_ts), float(op.end), op.optype, int(op.seq_id)
            if kind in COMPUTE:
                sequence.append((begin, 1, None, end, row, kind))
            elif kind in JOINT:
                group = (kind, number) if kind == JOINT[2] else (kind, number, stage)
                sequence.append((begin, 2, group, end, row, kind))
            elif kind == EMBEDDING and stage in (0, self.stages - 1):
                sequence.append((begin, 2, (kind, replica), end, row, kind))
        sequence.sort(key=lambda item: (item[0], item[1]))
        parts: list[_Part] = []
        work: list[int] = []
        counts = {"forward-compute": 0, "backward-compute": 0}
        last_end = 0.0
        for begin, _, joint, end, row, kind in sequence:
            if joint is not None:
                parts.append(_Part(joint, worker, work, begin, end, row))
                work = []
                continue
            direction, number = kind.partition("-")[0], counts.get(kind, 0)
            step_on = {"forward": 1, "backward": -1}.get(direction, 0)
            if step_on and 0 <= stage - step_on < self.stages:
                key = (f"{direction}-recv", number, replica, stage)
                parts.append(_Part(key, worker, work, last_end, begin, -1))
                work = []
            work = [*work, row]
            if step_on:
                counts[kind] += 1
            if step_on and 0 <= stage + step_on < self.stages:
                key = (f"{direction}-post", number, replica, stage)
                parts.append(_Part(key, worker, work, end, end, -1))
                work = []
            last_end = end
        return [*parts, _Part(("end", worker), worker, work, last_end, last_end, -1)]

    def _find_ideal(self) -> np.ndarray:
        """Return the duration of each op without stragglers: the mean of its type over the whole job."""
        means = self.table.groupby("optype").duration.transform("mean")
        return means.to_numpy(float)

    def _find_median_transfers(self) -> dict[str, float]:
        """Find the median time (s) of each kind of collective from its last arrival to its end."""
        found: dict[str, list[float]] = {}
        for plan in self._plans:
            for parts in plan:
                found.setdefault(str(parts[0].key[0]), []).append(_measure_transfer(parts))
        return {kind: float(np.median(values)) for kind, values in found.items()}

    def replay(self, durations: np.ndarray, as_recorded: bool = False) -> float:
        """Replay all steps with these durations of computations, float64[rows] in s; return the mean step time, s.

        Collectives take the median time of their kind, or, `as_recorded`, their own.
        """
        return float(np.mean([self._replay_step(plan, durations, as_recorded) for plan in self._plans]))

    def _replay_step(self, plan: list[list[_Part]], durations: np.ndarray, as_recorded: bool) -> float:
        index_of = {parts[0].key: index for index, parts in enumerate(plan)}
        after = np.full(len(plan), -1)
        transfer = np.zeros(len(plan))
        for index, parts in enumerate(plan):
            kind = str(parts[0].key[0])
            if kind in PEERS:
                _, number, replica, stage = parts[0].key
                post = (f"{kind.partition('-')[0]}-post", number, replica, stage + PEERS[kind][1])  # type: ignore[operator]
                after[index] = index_of[post]
            else:
                transfer[index] = _measure_transfer(parts) if as_recorded else self.median_transfer[kind]
        parts = [part for each in plan for part in each]
        seconds = durations.tolist()
        clock = np.zeros(self.replicas * self.stages)
        replay_parts(
            np.cumsum([0, *map(len, plan)]),
            np.array([part.worker for part in parts]),
            np.array([sum(seconds[row] for row in part.work) for part in parts]),
            transfer,
            clock,
            after,
        )
        return float(clock.max())

    def mix(self, recorded: np.ndarray) -> np.ndarray:
        """Return the durations as recorded where `recorded`, bool[rows], and ideal elsewhere."""
        return np.where(recorded, self.recorded, self.ideal)
