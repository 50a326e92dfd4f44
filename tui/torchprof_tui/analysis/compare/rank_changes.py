"""Compare the step time of each rank of two runs: is the change of one rank that of the others?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.compare.step_selection import StepSelection
from torchprof_tui.trace.model.trace import Trace

MAX_RANKS = 16
"""Ranks that are measured, the first ones: each takes some tenths of a second."""


@dataclass(frozen=True, slots=True)
class RankChange:
    """The mean step of one rank in both runs, ns."""

    rank: int
    a: float
    b: float

    @property
    def delta(self) -> float:
        return self.b - self.a


def compare_ranks(
    a: Mapping[int, Trace], b: Mapping[int, Trace], selections: tuple[StepSelection, StepSelection]
) -> list[RankChange]:
    """Compare the ranks that both runs have, by number, at most MAX_RANKS. `a`, `b`: rank -> its trace.

    Raises ComparisonError where a rank has none of the steps that were asked for.
    """
    changes = []
    for number in sorted(set(a) & set(b))[:MAX_RANKS]:
        sides = [
            SideAnalysis(ranks[number], "", selection) for ranks, selection in zip((a, b), selections, strict=True)
        ]
        times = [float(side.step_durations.mean()) for side in sides]
        changes.append(RankChange(number, times[0], times[1]))
    return changes
