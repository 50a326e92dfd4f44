"""The heat map of a fleet: one value and one level for each rank, or group of ranks, and step."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Literal

import numpy as np

from torchprof_fleet.analysis.findings import GROUP_WORDS
from torchprof_fleet.analysis.fleet import Fleet
from torchprof_fleet.analysis.report import FleetReport
from torchprof_tui.trace.core.arrays import F64, I8, I64
from torchprof_tui.trace.core.records import record

MISSING = -1  # level of a rank without the step


class Measure(Enum):
    """What a cell shows. Value: its name on screen.

    The limits of the levels are fixed, so that a job without faults looks calm and two jobs can be compared.
    """

    STEP_TIME = "step time"
    BUSY = "GPU busy"
    EXPOSED = "exposed communication"
    LATENESS = "lateness"


LIMITS = {
    Measure.STEP_TIME: (1.05, 1.15, 1.5, 2.0),
    Measure.BUSY: (0.95, 0.85, 0.7, 0.5),
    Measure.EXPOSED: (0.05, 0.1, 0.25, 0.5),
    Measure.LATENESS: (0.03, 0.1, 0.3, 1.0),
}
"""From which value on a cell has level 1, 2, 3 and 4: of the median step time, or shares of the step. Of `BUSY`: below
which value."""


def measure_cells(report: FleetReport, measure: Measure) -> F64:
    """Measure all cells: float64[r, s], ns of step times, else shares of the step; NaN where it is unknown."""
    fleet = report.fleet
    if measure is Measure.STEP_TIME:
        return fleet.durations
    if measure is Measure.LATENESS:
        return report.checker.late_share
    with np.errstate(invalid="ignore", divide="ignore"):
        busy = fleet.gather_steps("busy") / fleet.durations
        share = busy if measure is Measure.BUSY else fleet.gather_steps("exposed") / fleet.durations
    # nothing is known of the GPU where none was recorded
    return share if np.nansum(busy) else np.full_like(share, np.nan)


def find_levels(values: F64, measure: Measure, step_time: float) -> I8:
    """Find the level of each value: int8 of the same shape, 0 (usual) to 4, MISSING for NaN."""
    compared, limits, is_below = values, np.array(LIMITS[measure]), measure is Measure.BUSY
    if measure is Measure.STEP_TIME:
        compared = values / max(step_time, 1.0)
    elif is_below:
        compared, limits = -values, -limits
    side: Literal["left", "right"] = "left" if is_below else "right"  # a value equal to its limit: usual, if "below"
    levels = np.searchsorted(limits, np.nan_to_num(compared), side=side).astype(np.int8)
    levels[~np.isfinite(values)] = MISSING
    return levels


@record(slots=False)
class Grouping:
    """A division of the ranks. `members`: indexes of the ranks of each group, in the order of `labels`."""

    name: str
    labels: tuple[str, ...]
    members: tuple[I64, ...]

    def reduce(self, values: F64, measure: Measure) -> F64:
        """Return the worst value of each group and step: float64[g, s]."""
        worst = np.fmin if measure is Measure.BUSY else np.fmax
        rows = [worst.reduce(values[members], axis=0) for members in self.members]
        return np.array(rows) if rows else np.zeros((0, values.shape[1]))


def list_groupings(report: FleetReport) -> list[Grouping]:
    """List how the ranks can be grouped: by host, and by their position in the process groups of each kind."""
    fleet = report.fleet
    found = []
    if 1 < len(fleet.host_members) < len(fleet):
        found.append(Grouping("host", tuple(fleet.host_members), tuple(fleet.host_members.values())))
    for name, words in GROUP_WORDS.items():
        peers = report.checker.find_peers(words)
        if 1 < len(peers) < len(fleet):
            found.append(Grouping(name, tuple(f"{name} {number}" for number in peers), tuple(peers.values())))
    return found


def group_by_rank(fleet: Fleet, ranks: Sequence[int] | None = None) -> Grouping:
    """Make each rank (of some: indexes) a group of its own."""
    indexes = list(range(len(fleet))) if ranks is None else list(ranks)
    labels = tuple(f"rank {fleet.ranks[index]}" for index in indexes)
    return Grouping("rank", labels, tuple(np.array([index], np.int64) for index in indexes))
