"""What a pattern of the cheatsheet is, and what it can answer: fired, absent, cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from torchprof_tui.trace.core.arrays import I64

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView


class State(str, Enum):
    """Never two answers: what cannot be checked is not absent."""

    FIRED = "fired"
    ABSENT = "absent"
    CANNOT_TELL = "cannot_tell"


class Severity(str, Enum):
    """What a fired pattern means for its reader."""

    PROBLEM = "problem"  # costs time that a change could win back; only these fail `check --fail-on fired`
    NOTICE = "notice"  # how this trace is to be read; good or neutral
    ARTEFACT = "artefact"  # the profiler's own doing; never billed


class Section(str, Enum):
    TABLE = "Profiler table"
    CPU_LANE = "CPU lane"
    GPU_LANE = "GPU lane"
    DISPATCH = "Dispatch chain"
    COMPILE = "torch.compile"
    BEYOND = "Beyond Part 1"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that a decision hangs on, and why it is this one."""

    name: str
    value: float
    unit: str
    reason: str


def _no_events() -> I64:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a check found in its scope.

    `events`: rows of the trace, each with a part in the scope, in time order. `at_stake`: ns of the scope that hang on
    it, at most the scope; 0 where nothing is lost. `seen`: one line with this trace's numbers. `reason`: what is
    missing, for `cannot tell`.
    """

    state: State
    seen: str = ""
    events: I64 = field(default_factory=_no_events)
    at_stake: int = 0
    reason: str = ""


def fired_answer(seen: str, events: I64, at_stake: int = 0) -> Answer:
    return Answer(State.FIRED, seen, np.asarray(events, dtype=np.int64), max(int(at_stake), 0))


def absent_answer(seen: str = "") -> Answer:
    return Answer(State.ABSENT, seen)


def cannot_tell_answer(reason: str) -> Answer:
    return Answer(State.CANNOT_TELL, reason=reason)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One entry of the cheatsheet. `decided`: its definition, for a reader who asks how the answer came about."""

    id: str
    section: Section
    title: str
    meaning: str
    action: str
    decided: str
    check: Callable[[ScopeView], Answer]
    thresholds: tuple[Threshold, ...] = ()
    severity: Severity = Severity.NOTICE
    code: str = ""  # a line to paste, where one fits
    applies_to_all_ranks: bool = False  # of several ranks, what it sees is said of all of them, whichever is asked
    fires_on_absence: bool = (
        False  # it fires because of what is not there: of a file that lost entries this proves nothing
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """A pattern's answer in a scope; `share` is the time at stake over the scope's length, 0..1."""

    pattern: Pattern
    answer: Answer
    share: float

    @property
    def id(self) -> str:
        return self.pattern.id

    @property
    def state(self) -> State:
        return self.answer.state

    @property
    def has_fired(self) -> bool:
        return self.answer.state is State.FIRED

    def with_event_offset(self, offset: int) -> Finding:
        """The same with its events numbered from `offset` on: those of one rank among all."""
        if not len(self.answer.events):
            return self
        return replace(self, answer=replace(self.answer, events=self.answer.events + offset))

    @property
    def is_problem(self) -> bool:
        return self.has_fired and self.pattern.severity is Severity.PROBLEM
