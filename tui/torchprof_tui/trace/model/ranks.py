"""Describe the ranks of a merged trace: their events, lanes, clocks and matched collectives."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.problems import INCOMPLETE_STREAM_KINDS
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Step, Trace


class AlignmentMethod(TextEnum):
    """How a rank's clock was aligned with the others."""

    BASE = "shared base time"  # all have the same `baseTimeNanoseconds`, or the same epoch
    COLLECTIVES = "collectives"  # synchronizing collectives end at the same time on all ranks
    WALL = "wall clock"  # each has a base time of its own; the error is unknown
    NONE = "not aligned"  # each starts at time 0


@record
class Clock:
    """Alignment of a rank's clock.

    `shift`: ns added to the rank's times. `error`: ns within which nine of ten collectives end at the same time as on
    the other ranks; None if it cannot be measured. `collective_count`: number of collectives measured.
    """

    shift: int
    method: AlignmentMethod
    error: int | None = None
    collective_count: int = 0


@record(slots=False, eq=False)
class Rank:
    """One rank. `trace`: its own trace on the common clock, with its own event and name indices.

    Event i of the rank is event `first + i` of the merged trace, and lane k is lane `first_lane + k`. Lane
    `first_lane - 1` is the header of the rank. A trace of one process is a run of one rank (`of_single_trace`): its
    events and lanes begin at 0, it has no header (lane -1) and no label.
    """

    number: int
    file: str  # as named by the user
    trace: Trace
    first: int
    first_lane: int
    clock: Clock
    is_merged: bool = True

    @classmethod
    def of_single_trace(cls, trace: Trace) -> Rank:
        """Return a trace of one process as the only rank of its run."""
        clock = Clock(0, AlignmentMethod.NONE)
        return cls(trace.rank or 0, trace.label, trace, first=0, first_lane=0, clock=clock, is_merged=False)

    @property
    def last(self) -> int:
        return self.first + len(self.trace)

    @property
    def header_lane(self) -> int:
        return self.first_lane - 1

    @property
    def last_lane(self) -> int:
        return self.first_lane + len(self.trace.lanes)

    @property
    def label(self) -> str:
        """`rank N`, empty if there is only one trace."""
        return f"rank {self.number}" if self.is_merged else ""

    def label_prefix(self, separator: str) -> str:
        """Return the label and a separator, nothing if there is only one trace."""
        return f"{self.label}{separator}" if self.label else ""

    @cached_property
    def numbered_trace(self) -> Trace:
        """Its trace, with its number as `Trace.rank` also where only the name of the file has it."""
        if not self.is_merged or self.trace.rank == self.number:
            return self.trace
        return replace(self.trace, metadata=replace(self.trace.metadata, rank=self.number))

    @cached_property
    def partial(self) -> bool:
        """Whether its file or connection ended early, so that part of the recording is missing."""
        return any(problem.kind in INCOMPLETE_STREAM_KINDS for problem in self.trace.problems)

    @cached_property
    def steps(self) -> list[Step]:
        """Its steps, with event indices of the merged trace."""
        if not self.first:
            return self.trace.steps
        return [replace(step, event=step.event + self.first) for step in self.trace.steps]


@record
class LostRank:
    """A rank that could not be opened.

    `number`: from the file name, None if it has none. `file`: as named by the user. `reason`: one line that names it.
    """

    number: int | None
    file: str
    reason: str

    def __str__(self) -> str:
        return self.reason if self.number is None else f"rank {self.number}: {self.reason}"


@record(slots=False, eq=False)
class Ranks:
    """The ranks that could be opened, by number, their matched collectives, and the ranks that could not be opened."""

    all: tuple[Rank, ...]
    matched_collectives: MatchedCollectives
    lost: tuple[LostRank, ...] = ()

    def __len__(self) -> int:
        return len(self.all)

    def index_of_event(self, event: int) -> int:
        return bisect_right(self._first_events, event) - 1

    def index_of_lane(self, lane: int) -> int:
        return bisect_right(self._header_lanes, lane) - 1

    def rank_of_event(self, event: int) -> Rank:
        return self.all[self.index_of_event(event)]

    def rank_of_lane(self, lane: int) -> Rank:
        return self.all[self.index_of_lane(lane)]

    @cached_property
    def has_gpu_work(self) -> bool:
        """Whether any rank recorded GPU work; then the header of every rank shows GPU work."""
        return any(rank.trace.links.gpu_events for rank in self.all)

    @property
    def unmeasured_ranks(self) -> list[Rank]:
        """Ranks without a measured clock error, if other ranks have one."""
        if all(rank.clock.error is None for rank in self.all):
            return []
        return [rank for rank in self.all if rank.clock.error is None and len(rank.trace)]

    def find_rank(self, number: int) -> Rank | None:
        return next((rank for rank in self.all if rank.number == number), None)

    @cached_property
    def _first_events(self) -> list[int]:
        return [rank.first for rank in self.all]

    @cached_property
    def _header_lanes(self) -> list[int]:
        return [rank.header_lane for rank in self.all]


@record
class MatchedCollectives:
    """m collectives recorded by at least two of r ranks, matched by process group, step and order.

    `events` int32[m, r]: event index in each rank's own trace, -1 for a rank without it. `group`, `operation`, `dtype`:
    indices into `texts`. `elements`: of the larger message, 0 if not recorded. `step`: number of the step that launched
    it, -1 for none. `is_synchronizing`: whether no rank can finish before all have started. `is_mismatched`: whether
    ranks recorded different types or sizes where these must be equal. `missing_ranks`: ranks of the group without it.
    `unmatched` int64[r]: collectives of each rank without a match. `before_recording` int64[r]: collectives of each
    rank that are excluded because they were launched before its recording.
    """

    events: I32
    group: I32
    operation: I32
    dtype: I32
    elements: I64
    step: I64
    is_synchronizing: Bool
    is_mismatched: Bool
    missing_ranks: I64
    unmatched: I64
    before_recording: I64
    texts: list[str]

    def __len__(self) -> int:
        return len(self.events)
