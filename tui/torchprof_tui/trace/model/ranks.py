"""Several ranks' traces as one: which events and lanes are whose, and how their clocks were brought together."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.problems import INCOMPLETE_STREAM_KINDS

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Step, Trace


class AlignmentMethod(str, Enum):
    """What a rank's clock was set by."""

    BASE = "shared base time"  # all count from the same `baseTimeNanoseconds`, or from the same epoch
    COLLECTIVES = "collectives"  # which end on all ranks at once
    WALL = "wall clock"  # each counts from a base of its own; nobody can say how well these agree
    NONE = "not aligned"  # each begins at time 0


@dataclass(frozen=True, slots=True)
class Clock:
    """`shift`: ns added to a rank's own times. `error`: nine of ten collectives end within so many ns of when they do
    on the other ranks; None where there is nothing to measure by. `by`: collectives that were measured."""

    shift: int
    method: AlignmentMethod
    error: int | None = None
    collective_count: int = 0


@dataclass(frozen=True, eq=False)
class Rank:
    """One rank. `trace` is its own, with events and names numbered as in its file, on the common clock.

    Its event i is event `first + i` of the whole, and its lane k is lane `first_lane + k`; the line that stands for
    the whole rank is `first_lane - 1`.
    """

    number: int
    file: str  # as the user named it
    trace: Trace
    first: int
    first_lane: int
    clock: Clock

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
        return f"rank {self.number}"

    @cached_property
    def partial(self) -> bool:
        """Whether its file or the connection to it ended early: it did more than is here."""
        return any(problem.kind in INCOMPLETE_STREAM_KINDS for problem in self.trace.problems)

    @cached_property
    def steps(self) -> list[Step]:
        """Its steps, with events numbered as in the whole."""
        return [replace(step, event=step.event + self.first) for step in self.trace.steps]


@dataclass(frozen=True, slots=True)
class LostRank:
    """One that could not be opened: its `file` as the user named it, its `number` where its name says it, and `why` in
    a line that names the file."""

    number: int | None
    file: str
    reason: str

    def __str__(self) -> str:
        return self.reason if self.number is None else f"rank {self.number}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Ranks:
    """All ranks that could be opened, by number, and where they met; and those that could not."""

    all: tuple[Rank, ...]
    matched_collectives: MatchedCollectives
    lost: tuple[LostRank, ...] = ()

    def __len__(self) -> int:
        return len(self.all)

    def index_of_event(self, event: int) -> int:
        """Which of `all` an event belongs to."""
        return bisect_right(self._first_events, event) - 1

    def index_of_lane(self, lane: int) -> int:
        return bisect_right(self._header_lanes, lane) - 1

    def rank_of_event(self, event: int) -> Rank:
        return self.all[self.index_of_event(event)]

    def rank_of_lane(self, lane: int) -> Rank:
        return self.all[self.index_of_lane(lane)]

    def steps_of_event(self, event: int) -> list[Step]:
        return self.rank_of_event(event).steps

    @cached_property
    def has_gpu_work(self) -> bool:
        """Whether any rank recorded GPU work: then a rank's line is about that, also where it has none."""
        return any(rank.trace.links.gpu_events for rank in self.all)

    @property
    def unmeasured_ranks(self) -> list[Rank]:
        """Ranks whose clock no collective could be held against, where it could for others."""
        if all(rank.clock.error is None for rank in self.all):
            return []
        return [rank for rank in self.all if rank.clock.error is None and len(rank.trace)]

    def find_rank(self, number: int) -> Rank | None:
        """The rank of this number."""
        return next((rank for rank in self.all if rank.number == number), None)

    @cached_property
    def _first_events(self) -> list[int]:
        return [rank.first for rank in self.all]

    @cached_property
    def _header_lanes(self) -> list[int]:
        return [rank.header_lane for rank in self.all]


@dataclass(frozen=True, slots=True)
class MatchedCollectives:
    """m collectives that at least two ranks came to, by group, step and order. r ranks.

    `events` int32[m, r]: each rank's event, numbered as in its own trace, -1 for a rank that has none. `group`,
    `operation`, `dtype`: places in `texts`. `elements`: of the larger message, 0 where not told. `step`: the number
    of the step that it was launched in, -1 for none. `together`: whether none leaves before all have come.
    `differ`: whether ranks say another type or size, where that should be equal. `lacking`: how many ranks of the
    group do not have it. `alone` int64[r]: collectives of each rank that no other one has; `before` int64[r]: those
    that are left out because they were launched before its recording.
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
