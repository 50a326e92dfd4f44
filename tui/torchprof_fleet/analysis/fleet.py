"""All ranks of a job, as their sketches: who they are, and their steps side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchprof_fleet.analysis.rank_sketch import RankSketch
from torchprof_tui.trace.core.arrays import F64, I64


@dataclass(frozen=True)
class Fleet:
    """r ranks by number, and the s numbers of steps that any of them has. `hosts`: "" where unknown.

    `left_out`: one line for each file that is not of the fleet, such as a second one of the same rank.
    """

    sketches: tuple[RankSketch, ...]
    left_out: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.sketches)

    @cached_property
    def ranks(self) -> I64:
        """int64[r]: numbers of the ranks."""
        return np.array([sketch.rank for sketch in self.sketches], np.int64)

    @cached_property
    def world_size(self) -> int:
        """The ranks of the job as recorded by most; 0 where none says it."""
        sizes = [sketch.world_size for sketch in self.sketches if sketch.world_size]
        return max(sizes, key=sizes.count, default=0)

    @cached_property
    def missing_ranks(self) -> tuple[int, ...]:
        """Numbers below the world size that no trace is of."""
        return tuple(sorted(set(range(self.world_size)) - set(self.ranks.tolist())))

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The host of each rank: as recorded, else the ranks that share its node by number, else ""."""
        if all(sketch.host for sketch in self.sketches):
            return tuple(sketch.host for sketch in self.sketches)
        counts = {sketch.device_count for sketch in self.sketches}
        per_host = counts.pop() if len(counts) == 1 else 0
        if not 1 < per_host < self.world_size:
            return tuple(sketch.host for sketch in self.sketches)
        first = self.ranks // per_host * per_host
        return tuple(f"ranks {number}-{number + per_host - 1}" for number in first.tolist())

    @cached_property
    def host_members(self) -> dict[str, I64]:
        """The indexes of the ranks of each known host, hosts by their first rank."""
        members: dict[str, list[int]] = {}
        for index, host in enumerate(self.hosts):
            if host:
                members.setdefault(host, []).append(index)
        return {host: np.array(indexes, np.int64) for host, indexes in members.items()}

    @cached_property
    def steps(self) -> I64:
        """int64[s]: numbers of the steps, ascending."""
        return np.unique(np.concatenate([sketch.steps.number for sketch in self.sketches]))

    def gather_steps(self, field: str) -> F64:
        """Gather a column of `SketchSteps` (or "duration"): float64[r, s] ns, NaN where a rank lacks the step."""
        table = np.full((len(self), len(self.steps)), np.nan)
        for index, sketch in enumerate(self.sketches):
            steps = sketch.steps
            values = steps.end - steps.start if field == "duration" else getattr(steps, field)
            table[index, np.searchsorted(self.steps, steps.number)] = values
        return table

    @cached_property
    def durations(self) -> F64:
        """float64[r, s]: ns of each rank's steps."""
        return self.gather_steps("duration")

    @cached_property
    def step_time(self) -> float:
        """ns: the median over the steps of the median over the ranks."""
        return float(np.nanmedian(np.nanmedian(self.durations, axis=0)))

    def label_rank(self, index: int) -> str:
        """Label a rank for a line of text: `rank 17 (node2)`."""
        host = self.sketches[index].host
        return f"rank {self.ranks[index]}" + (f" ({host})" if host else "")


def build_fleet(sketches: Sequence[RankSketch]) -> Fleet:
    """Build the fleet, by rank. A file without a rank, or of a rank that another file is of, is left out."""
    by_rank: dict[int, RankSketch] = {}
    left_out = []
    for sketch in sorted(sketches, key=lambda each: each.file):
        if sketch.rank < 0:
            left_out.append(f"{sketch.file}: no rank number, neither in distributedInfo nor in its name")
        elif sketch.rank in by_rank:
            left_out.append(f"{sketch.file}: of rank {sketch.rank}, as {by_rank[sketch.rank].file} is")
        else:
            by_rank[sketch.rank] = sketch
    return Fleet(tuple(by_rank[rank] for rank in sorted(by_rank)), tuple(left_out))
