"""Simulate a pipeline-parallel job op by op, in the form of the published stragglers' data, with known slow workers.

Independent of the replay that it is compared with: each worker runs its program, blocks in a receive until the send of
its neighbour is there and in a collective until all members are, and nothing is known of gaps and parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tests.helpers.later_imports import import_later

pd = import_later("pandas")

Worker = tuple[int, int]
"""Data-parallel rank and pipeline stage."""

OpKey = tuple[int, int, int, str, int]
"""Step, data-parallel rank, stage, kind of op, number among its kind."""

MEAN_SECONDS = {"forward-compute": 0.20, "backward-compute": 0.40, "optimizer": 0.05, "gc": 0.01}
COLLECTIVE_SECONDS = {
    "params-all-gather": 0.10,
    "grads-reduce-scatter": 0.15,
    "embedding-grads-all-reduce": 0.03,
    "optimizer-clip-main-grad": 0.01,
}
SEND_SECONDS = 0.001


@dataclass(frozen=True)
class PipelineJob:
    """A job; `slowness`: factors of the computations of some workers."""

    replicas: int = 4
    stages: int = 3
    microbatches: int = 8
    steps: int = 6
    slowness: Mapping[Worker, float] | None = None
    seed: int = 7

    def list_workers(self) -> list[Worker]:
        """List all workers."""
        return [(replica, stage) for replica in range(self.replicas) for stage in range(self.stages)]

    def draw_durations(self) -> dict[OpKey, float]:
        """Draw the seconds of every computation, with noise of 3%."""
        random = np.random.default_rng(self.seed)
        counts = {kind: self.microbatches if "compute" in kind else 1 for kind in MEAN_SECONDS}
        return {
            (step, *worker, kind, number): MEAN_SECONDS[kind]
            * (self.slowness or {}).get(worker, 1.0)
            * (1 + 0.03 * random.standard_normal())
            for step in range(self.steps)
            for worker in self.list_workers()
            for kind in MEAN_SECONDS
            for number in range(counts[kind])
        }

    def _list_program(self, stage: int) -> Iterator[tuple[str, int]]:
        """List the ops of one step of a stage, in the order 1F1B: (kind, number)."""
        yield "params-all-gather", 0
        ahead = min(self.stages - 1 - stage, self.microbatches)
        order = [("forward", number) for number in range(ahead)]
        for number in range(self.microbatches):
            order += [("forward", number + ahead)] if number + ahead < self.microbatches else []
            order += [("backward", number)]
        for direction, number in order:
            before, behind = (stage > 0, stage < self.stages - 1)[:: 1 if direction == "forward" else -1]
            if before:
                yield f"{direction}-recv", number
            yield f"{direction}-compute", number
            if behind:
                yield f"{direction}-send", number
        yield "gc", 0
        yield "grads-reduce-scatter", 0
        if stage in (0, self.stages - 1):
            yield "embedding-grads-all-reduce", 0
        yield "optimizer-clip-main-grad", 0
        yield "optimizer", 0

    def _list_members(self, kind: str, worker: Worker) -> tuple[Worker, ...]:
        """List the workers of the collective `kind` that this one is in."""
        if kind == "optimizer-clip-main-grad":
            return tuple(self.list_workers())
        if kind == "embedding-grads-all-reduce":
            return (worker[0], 0), (worker[0], self.stages - 1)
        return tuple((replica, worker[1]) for replica in range(self.replicas))

    def simulate(self, durations: Mapping[OpKey, float]) -> tuple[pd.DataFrame, float]:
        """Run the job: the table of its ops, and its mean step time in seconds. Every step begins at 0."""
        rows: list[tuple[int, int, int, str, float, float, int]] = []
        lengths = []
        for step in range(self.steps):
            found = _StepRun(self, step, durations).run()
            rows += found
            lengths.append(max(start + length for *_, start, length, _ in found))
        columns = ["dp_rank", "stage", "step", "optype", "start_ts", "duration", "seq_id"]
        return pd.DataFrame(rows, columns=columns), float(np.mean(lengths))


class _StepRun:
    """One step. Workers run in turn, each until it blocks."""

    def __init__(self, job: PipelineJob, step: int, durations: Mapping[OpKey, float]) -> None:
        self._job, self._step, self._durations = job, step, durations
        self._clock = dict.fromkeys(job.list_workers(), 0.0)
        self._programs = {worker: list(job._list_program(worker[1])) for worker in self._clock}
        self._sent: dict[tuple[str, int, Worker], float] = {}
        self._arrived: dict[tuple[str, tuple[Worker, ...]], dict[Worker, float]] = {}
        self._rows: list[tuple[int, int, int, str, float, float, int]] = []

    def run(self) -> list[tuple[int, int, int, str, float, float, int]]:
        """Run the step and return its ops."""
        while any(self._programs.values()):
            before = sum(map(len, self._programs.values()))
            for worker, program in self._programs.items():
                while program and self._try_op(worker, *program[0]):
                    program.pop(0)
            assert sum(map(len, self._programs.values())) < before, "all workers are blocked"
        return self._rows

    def _try_op(self, worker: Worker, kind: str, number: int) -> bool:
        """Run an op if nothing blocks it."""
        replica, stage = worker
        begin = end = self._clock[worker]
        if kind in MEAN_SECONDS:
            end = begin + self._durations[self._step, replica, stage, kind, number]
        elif kind.endswith("-send"):
            peer = (replica, stage + 1 if kind.startswith("forward") else stage - 1)
            self._sent[kind.partition("-")[0], number, peer] = begin + SEND_SECONDS
        elif kind.endswith("-recv"):
            there = self._sent.get((kind.partition("-")[0], number, worker))
            if there is None:
                return False
            end = max(begin, there)
        else:
            members = self._job._list_members(kind, worker)
            arrived = self._arrived.setdefault((kind, members), {})
            arrived[worker] = begin
            if len(arrived) < len(members):
                return False
            end = max(arrived.values()) + COLLECTIVE_SECONDS[kind]
        self._rows.append((replica, stage, self._step, kind, begin, end - begin, number))
        self._clock[worker] = end
        return True
