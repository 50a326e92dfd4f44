"""Compare the ranks of a fleet: what every output says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.fleet.findings import FleetChecker, FleetFinding
from torchprof_tui.analysis.fleet.fleet import Fleet, build_fleet
from torchprof_tui.analysis.fleet.rank_sketch import RankSketch
from torchprof_tui.analysis.fleet.waits import WaitedFor, match_sketches, rank_waits
from torchprof_tui.analysis.fleet.what_if import Replay, WhatIf
from torchprof_tui.trace.core.arrays import F64


@dataclass(frozen=True)
class FleetReport:
    """A compared fleet. `lost`: one line for each file that could not be used."""

    fleet: Fleet
    checker: FleetChecker
    findings: tuple[FleetFinding, ...]
    lost: tuple[str, ...]

    @cached_property
    def replay(self) -> Replay:
        return Replay(self.checker.matched)

    @cached_property
    def waits(self) -> list[WaitedFor]:
        """The ranks that others waited for, by the delay they caused."""
        return rank_waits(self.checker.matched)

    @cached_property
    def slowness(self) -> F64:
        """float64[r]: share of a step by which each rank usually comes late; 0 where unknown."""
        return np.nan_to_num(self.checker.usual_late_share)

    def list_slowest_ranks(self, limit: int) -> list[int]:
        """List the ranks (indexes) by how late they usually are, then by how slow their GPU and CPU are."""
        factor = np.fmax(np.nan_to_num(self.checker.gpu.factor), np.nan_to_num(self.checker.cpu.factor))
        return np.lexsort((-factor, -self.slowness))[:limit].tolist()  # type: ignore[no-any-return]

    def list_slowest_hosts(self, limit: int) -> list[str]:
        """List the hosts by the mean of how late their ranks usually are."""
        hosts = self.fleet.host_members
        return sorted(hosts, key=lambda host: -float(self.slowness[hosts[host]].mean()))[:limit]

    def list_slowest_steps(self, limit: int) -> list[int]:
        """List the steps (indexes) by their median duration."""
        return np.argsort(-np.nanmedian(self.fleet.durations, axis=0), kind="stable")[:limit].tolist()  # type: ignore[no-any-return]

    def find_cause_of_step(self, step: int) -> WaitedFor | None:
        """Find the rank that was waited for most in a step (index); None where nobody waited."""
        waits = rank_waits(self.checker.matched, [step])
        return waits[0] if waits else None

    def remove(self, ranks: Sequence[int]) -> WhatIf | None:
        """Replay the job without the slowness of these ranks; None where nothing is matched or all ranks are named."""
        if not len(self.checker.matched) or not ranks or len(ranks) == len(self.fleet):
            return None
        return self.replay.without(ranks)


def compare_fleet(sketches: Sequence[RankSketch], lost: Sequence[str] = ()) -> FleetReport:
    """Compare the sketches of the ranks of a job; there must be at least one with a rank number."""
    fleet = build_fleet(sketches)
    checker = FleetChecker(match_sketches(fleet))
    return FleetReport(fleet, checker, tuple(checker.find_all()), (*lost, *fleet.left_out))
