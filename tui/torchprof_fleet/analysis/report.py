"""Compare the ranks of a fleet: what every output says of it.

Each rank works for a time (`gap`) between two of its collectives; a collective begins when its last rank arrives, and
takes as long as its shortest part. This is the dependency graph of the job as far as sketches know it: what happens
between two collectives of a rank is one piece, and sends and receives are not in it. What a rank's CPU dispatches while
its GPU waits is not in it either, so that no answer is shorter than the CPU time of the slowest rank that is left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from torchprof_fleet.analysis.findings import FleetChecker, FleetFinding
from torchprof_fleet.analysis.fleet import Fleet, LeftOut, build_fleet
from torchprof_fleet.analysis.rank_sketch import RankSketch
from torchprof_fleet.analysis.waits import MatchedSketches, WaitedFor, find_medians, match_sketches, rank_waits
from torchprof_tui.trace.core.arrays import F64, I64
from torchprof_tui.trace.core.records import record


class Replay:
    """Replays the matched collectives of a fleet. `gaps` float64[k]: ns of work before each part."""

    def __init__(self, matched: MatchedSketches) -> None:
        self.matched = matched
        order = np.lexsort((matched.collective, matched.rank))  # the parts of each rank in the order of the job
        rank, end = matched.rank[order], matched.end[order]
        is_first = np.r_[True, np.diff(rank) != 0] if len(rank) else np.zeros(0, np.bool_)
        fleet = matched.fleet
        begin = np.array([sketch.steps.start[0] for sketch in fleet.sketches], np.int64)
        previous = np.where(is_first, begin[rank], np.r_[0, end[:-1]]) if len(rank) else end
        self.gaps = np.zeros(len(rank))
        self.gaps[order] = matched.start[order] - previous
        last_end = begin.copy()
        np.maximum.at(last_end, matched.rank, matched.end)
        finish = np.array([sketch.steps.end.max() for sketch in fleet.sketches], np.int64)
        self.tails: F64 = np.maximum(finish - last_end, 0).astype(np.float64)

    @cached_property
    def base(self) -> float:
        """ns of the job, replayed unchanged."""
        return self._run(self.gaps, self.tails)

    def without(self, ranks: Collection[int]) -> float:
        """Return the ns of the job with the gaps of some ranks (indexes) at most those of the median other rank."""
        chosen = np.zeros(len(self.matched.fleet), np.bool_)
        chosen[list(ranks)] = True
        gaps, tails = self.gaps.copy(), self.tails.copy()
        matched = self.matched
        part = chosen[matched.rank]
        # the median gap before each collective over the parts of the other ranks, ∞ for none
        usual_gaps = np.full(len(matched), np.inf)
        collectives, medians = find_medians(matched.collective[~part], self.gaps[~part])
        usual_gaps[collectives] = medians
        gaps[part] = np.minimum(gaps[part], usual_gaps[matched.collective[part]])
        if not chosen.all():
            tails[chosen] = np.minimum(tails[chosen], np.median(tails[~chosen]))
        # CPU time that no rank can do without, where the chosen ranks need what the others do
        own = np.array([sketch.steps.cpu.sum() for sketch in self.matched.fleet.sketches], np.float64)
        usual_cpu = float(np.median(own[~chosen])) if not chosen.all() else np.inf
        longest_cpu = float(np.where(chosen, np.minimum(own, usual_cpu), own).max())
        return min(max(self._run(gaps, tails), longest_cpu), self.base)

    def _run(self, gaps: F64, tails: F64) -> float:
        """Replay and return the ns until the last rank has ended."""
        matched = self.matched
        clock = np.zeros(len(matched.fleet))
        replay_parts(matched.first, matched.rank, gaps, matched.transfer, clock)
        return float((clock + tails).max()) if len(clock) else 0.0


def replay_parts(first: I64, rank: I64, gaps: F64, transfer: F64 | I64, clock: F64, after: I64 | None = None) -> None:
    """Replay m collectives in their order, and advance the clock of each rank, float64[r], in place.

    Parts of collective i are `first[i]` to `first[i + 1]` of `rank` and `gaps`, the time that a rank works before it.
    It begins when its last rank has arrived, takes `transfer[i]`, and ends for all at once. `after` int64[m]: another
    one, earlier, that must have ended before it begins, -1 for none: a receive begins after its send.
    """
    bounds = first.tolist()
    ends = np.zeros(len(bounds) - 1)
    for index in range(len(ends)):
        part = slice(bounds[index], bounds[index + 1])
        ranks = rank[part]
        begin = (clock[ranks] + gaps[part]).max()
        if after is not None and after[index] >= 0:
            begin = max(begin, ends[after[index]])
        ends[index] = begin + transfer[index]
        clock[ranks] = ends[index]


@record(slots=False)
class FleetReport:
    """A compared fleet. `lost`: the files and names that could not be used."""

    fleet: Fleet
    checker: FleetChecker
    findings: tuple[FleetFinding, ...]
    lost: tuple[LeftOut, ...]

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

    def list_slowest_hosts(self, limit: int) -> list[str]:
        """List the hosts by the mean of how late their ranks usually are."""
        hosts = self.fleet.host_members
        return sorted(hosts, key=lambda host: -float(self.slowness[hosts[host]].mean()))[:limit]

    def remove(self, ranks: Sequence[int]) -> float | None:
        """Find the share of the job's time, 0..1, that is saved without the slowness of ranks; None: unknown."""
        if not len(self.checker.matched) or not ranks or len(ranks) == len(self.fleet):
            return None
        base = self.replay.base
        return max(1 - self.replay.without(ranks) / base, 0.0) if base > 0 else 0.0

    @cached_property
    def savings(self) -> list[float | None]:
        """The share that the job saves without the ranks of each finding; None where it cannot be told, and for ranks
        that an earlier finding names, of which it is the same time.
        """
        named: set[tuple[int, ...]] = set()
        saved = []
        for finding in self.findings:
            saved.append(None if finding.ranks in named else self.remove(finding.ranks))
            named.add(finding.ranks)
        return saved


def compare_fleet(sketches: Sequence[RankSketch], lost: Sequence[LeftOut] = ()) -> FleetReport:
    """Compare the sketches of the ranks of a job. Raises NoRanksError where there is none."""
    fleet = build_fleet(sketches)
    checker = FleetChecker(match_sketches(fleet))
    return FleetReport(fleet, checker, tuple(checker.find_all()), (*lost, *fleet.left_out))
