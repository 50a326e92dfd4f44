"""All ranks of a job, as their sketches: who they are, and their steps side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchprof_fleet.analysis.members import LeftOut, select_members
from torchprof_fleet.analysis.rank_sketch import RankSketch
from torchprof_tui.trace.core.arrays import F64, I64

MAX_REASONS = 3
"""Files that the line about a fleet without ranks names."""


class NoRanksError(ValueError):
    """No file is of a rank that can be compared. `str()` is one line for the user."""

    def __init__(self, left_out: Sequence[LeftOut]) -> None:
        shown = "; ".join(each.line for each in left_out[:MAX_REASONS]) or "no traces"
        more = f"; and {len(left_out) - MAX_REASONS:,} more" if len(left_out) > MAX_REASONS else ""
        self.left_out = tuple(left_out)
        super().__init__(f"no rank can be compared: {shown}{more}")


@dataclass(frozen=True)
class Fleet:
    """r ranks by number, and the s numbers of steps that any of them has. `hosts`: "" where unknown.

    `left_out`: the files that are not of it.
    """

    sketches: tuple[RankSketch, ...]
    left_out: tuple[LeftOut, ...] = ()

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
        """Numbers below the world size of which no trace is compared."""
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
    """Build the fleet of the ranks of one job. Raises NoRanksError where no file is of it."""
    members, left_out = select_members(sketches)
    if not members:
        raise NoRanksError(tuple(left_out))
    return Fleet(tuple(members), tuple(left_out))
