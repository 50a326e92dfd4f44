"""A pattern of the cheatsheet and the three answers it can give: fired, absent, cannot tell.

Widgets are shown before the modules that check are imported: they need only the types of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial, wraps
from typing import TYPE_CHECKING

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.thresholds import Threshold
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.core.arrays import I64, argsort_stable
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.frame_names import SourceLine
    from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
    from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
    from torchprof_tui.trace.model.trace import Trace


MAX_HOST_GAPS = 50  # gaps of plain code that are kept: thousands of short ones lie between the ops of any program


@record
class EvidencePlaces:
    """k places at which time was lost, by `cost` (ns), largest first; of equal ones, the earliest first.

    `start`, `end`: when, int64[k], ns. `event`: row of the trace to select there, int64[k], -1 for none.
    `are_gaps`: whether the time lies between events; `event` is then beside the gap or begins in it.
    """

    start: I64
    end: I64
    event: I64
    cost: I64
    are_gaps: bool

    def __len__(self) -> int:
        return len(self.start)


def sort_places(start: I64, end: I64, event: I64, cost: I64, are_gaps: bool) -> EvidencePlaces:
    """Build places from int64[k] each (ns; rows), in any order."""
    is_by_start = not (start[1:] < start[:-1]).any()  # most are, and one sort is enough
    order = argsort_stable(-cost) if is_by_start else np.lexsort((start, -cost))
    return EvidencePlaces(start[order], end[order], event[order].astype(np.int64), cost[order], are_gaps)


def find_event_places(trace: Trace, events: I64, cost: I64 | None = None) -> EvidencePlaces:
    """Build the places of events, int64[k]; `cost`: ns that each costs, int64[k]; None: its duration."""
    start, duration = np.asarray(trace.start[events]), np.asarray(trace.duration[events])
    return sort_places(start, start + duration, events, duration if cost is None else cost, False)


def find_gap_places(trace: Trace, gaps: Intervals, inside: I64, beside: I64, lane: int) -> EvidencePlaces:
    """Build the places of the longest times without an op on a thread's `lane`, at most MAX_HOST_GAPS.

    `inside`, `beside`: rows, int64[n]. Each gap gets the first event of `inside` that begins in it, else the event of
    `beside` that begins next, else the last one before it.
    """
    longest = np.argsort(gaps.starts - gaps.ends, kind="stable")[:MAX_HOST_GAPS]
    start, end = gaps.starts[longest], gaps.ends[longest]
    inside, beside = (np.sort(rows[np.asarray(trace.lane[rows]) == lane]) for rows in (inside, beside))
    event = np.full(len(start), -1, dtype=np.int64)
    if len(beside):
        event = beside[np.minimum(np.searchsorted(trace.start[beside], end), len(beside) - 1)]
    if len(inside):
        inside_start = np.asarray(trace.start[inside])
        first = np.minimum(inside_start.searchsorted(start), len(inside) - 1)
        begins_inside = (inside_start[first] >= start) & (inside_start[first] < end)
        event = np.where(begins_inside, inside[first], event)
    return sort_places(start, end, event, end - start, True)


def merge_places(parts: Sequence[EvidencePlaces]) -> EvidencePlaces:
    """Merge the places of one finding on several ranks, costliest first."""
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "end", "event", "cost")]
    return sort_places(columns[0], columns[1], columns[2], columns[3], parts[0].are_gaps)


class State(TextEnum):
    """The answer of a check. A pattern that cannot be checked is CANNOT_TELL, never ABSENT."""

    FIRED = "fired"
    ABSENT = "absent"
    CANNOT_TELL = "cannot_tell"


class Severity(TextEnum):
    """What a fired pattern means to the reader."""

    PROBLEM = "problem"  # costs time that a change could save; only problems fail `check --fail-on fired`
    NOTICE = "notice"  # helps to read the trace; good or neutral
    ARTEFACT = "artefact"  # caused by the profiler; no time is at stake


class Section(TextEnum):
    TABLE = "Profiler table"
    CPU_LANE = "CPU lane"
    GPU_LANE = "GPU lane"
    DISPATCH = "Dispatch chain"
    COMPILE = "torch.compile"
    BEYOND = "Further causes"


@record
class Remedy:
    """What to do about a fired pattern: one action, and a line of code to paste, "" where no line helps."""

    action: str
    code: str = ""


@record
class Answer:
    """What a check found in its scope.

    `seen`: one line with this trace's numbers. `events`: rows of the trace that overlap the scope, in time order.
    `at_stake`: ns of the scope that a fix could save, at most the scope's length; 0 where nothing is lost.
    `reason`: what is missing, for CANNOT_TELL. `remedy`: chosen for the owner of the evidence and the GPU; None: that
    of the pattern. `spans`: when the time at stake was lost; None: during the evidence. `places`: where the evidence
    leads to, costliest first, for a pattern whose time lies between events or is not their duration; None: the events.
    `removed`: rows, int64[k], that are gone once a fault is mended; None: all of the evidence. `removed_gaps`: rows,
    int64[k, 2]: from the end of the first to the start of the second the thread's time is gone, too.
    `headline`: what the verdict says in place of the pattern's title, which covers several kinds.
    """

    state: State
    seen: str = ""
    events: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    at_stake: int = 0
    reason: str = ""
    remedy: Remedy | None = None
    spans: Intervals | None = None
    places: EvidencePlaces | None = None
    removed: I64 | None = None
    removed_gaps: I64 | None = None
    headline: str = ""

    @classmethod
    def fired(
        cls,
        seen: str,
        events: I64,
        at_stake: int = 0,
        remedy: Remedy | None = None,
        spans: Intervals | None = None,
        places: EvidencePlaces | None = None,
        removed: I64 | None = None,
        removed_gaps: I64 | None = None,
        headline: str = "",
    ) -> Answer:
        rows, lost = np.asarray(events, dtype=np.int64), max(int(at_stake), 0)
        return cls(State.FIRED, seen, rows, lost, "", remedy, spans, places, removed, removed_gaps, headline)

    @classmethod
    def absent(cls, seen: str = "") -> Answer:
        return cls(State.ABSENT, seen)

    @classmethod
    def cannot_tell(cls, reason: str) -> Answer:
        return cls(State.CANNOT_TELL, reason=reason)


CheckFunction = Callable[["ScopeView"], Answer]


@record
class Pattern:
    """One pattern of the cheatsheet. `decided`: its definition, shown to a reader who asks how it is decided."""

    id: str
    title: str
    meaning: str
    action: str
    decided: str
    check: CheckFunction
    thresholds: tuple[Threshold, ...] = ()
    severity: Severity = Severity.NOTICE
    code: str = ""  # a line to paste, if one line helps
    applies_to_all_ranks: bool = False  # its answer describes all ranks, whichever rank is checked
    fires_on_absence: bool = False  # fires by the absence of events: undecidable in a file that lost entries
    is_fault: bool = False  # work that the program can be without: it goes before what is true of most programs
    section: Section = Section.BEYOND


_REGISTRY: dict[str, Pattern] = {}


def register_pattern(
    title: str,
    *,
    meaning: str,
    action: str,
    decided: str,
    thresholds: tuple[Threshold, ...] = (),
    severity: Severity = Severity.PROBLEM,
    code: str = "",
    needs: tuple[Callable[[ScopeView], str], ...] = (),
    applies_to_all_ranks: bool = False,
    fires_on_absence: bool = False,
    is_fault: bool = False,
) -> Callable[[CheckFunction], CheckFunction]:
    """Register a check under its name, with dashes. Raises ValueError for a duplicate name.

    `needs`: what must have been recorded, each as a function that says what is missing, "" for nothing. Where it is,
    the pattern is undecidable for the first such reason, and the check is not made.
    """

    def register(check: CheckFunction) -> CheckFunction:
        @wraps(check)
        def check_if_possible(view: ScopeView) -> Answer:
            missing_reason = next(filter(None, (find_missing(view) for find_missing in needs)), "")
            return Answer.cannot_tell(missing_reason) if missing_reason else check(view)

        name = check.__name__.replace("_", "-")
        if name in _REGISTRY:
            raise ValueError(f"two patterns called {name}")
        details = (thresholds, severity, code, applies_to_all_ranks, fires_on_absence, is_fault)
        _REGISTRY[name] = Pattern(name, title, meaning, action, decided, check_if_possible, *details)
        return check_if_possible

    return register


register_notice = partial(register_pattern, severity=Severity.NOTICE)
register_artefact = partial(register_pattern, severity=Severity.ARTEFACT)
register_fault = partial(register_pattern, is_fault=True)


def registered_patterns() -> dict[str, Pattern]:
    """Return each pattern by its id, in the order in which their modules were imported."""
    return _REGISTRY


@record
class Finding:
    """A pattern's answer in a scope; `share` is what it costs of the scope, 0..1.

    Until costs are measured that is the time at stake over the scope's length. `cost`: ns, None until then. `line`:
    where in the user's code a problem comes from, if it is known. `won`: what its fix saves at most, as a share of the
    same time; None where that was not predicted. `is_leading`: whether the verdict is about it. `is_won_doubtful`:
    whether it is not claimed, since something else comes to another number.
    """

    pattern: Pattern
    answer: Answer
    share: float
    line: SourceLine | None = None
    won: float | None = None
    cost: int | None = None
    is_leading: bool = False
    is_won_doubtful: bool = False

    @property
    def id(self) -> str:
        return self.pattern.id

    @property
    def claimed(self) -> float | None:
        """What its fix is said to save at most, as a share; None where the trace cannot tell."""
        return None if self.is_won_doubtful else self.won

    @property
    def state(self) -> State:
        return self.answer.state

    @property
    def has_fired(self) -> bool:
        return self.answer.state is State.FIRED

    @property
    def remedy(self) -> Remedy:
        """What to do: chosen for this trace, else the pattern's own."""
        return self.answer.remedy or Remedy(self.pattern.action, self.pattern.code)

    def with_cost(self, cost: int, base: int) -> Finding:
        """Return the finding with what it costs of a time of `base` ns."""
        return replace(self, cost=cost, share=min(cost / base, 1.0) if base else 0.0)

    def with_event_offset(self, offset: int) -> Finding:
        """Return the finding with `offset` added to its events: from one rank's numbers to the merged trace's."""
        if not len(self.answer.events):
            return self
        answer, places = self.answer, self.answer.places
        if places is not None:
            places = replace(places, event=np.where(places.event >= 0, places.event + offset, -1))
        removed, gaps = (None if rows is None else rows + offset for rows in (answer.removed, answer.removed_gaps))
        moved = replace(answer, events=answer.events + offset, places=places, removed=removed, removed_gaps=gaps)
        return replace(self, answer=moved)

    def find_places(self, trace: Trace) -> EvidencePlaces:
        """Find where the evidence leads to: of a problem the costliest place first, else the events in time order."""
        events, places = self.answer.events, self.answer.places
        if places is not None:
            return places
        return find_event_places(trace, events, None if self.is_problem else np.zeros(len(events), dtype=np.int64))

    @property
    def is_note(self) -> bool:
        """Whether the pattern only helps to read the trace: it counts for no result, whatever its state."""
        return self.pattern.severity is Severity.NOTICE

    @property
    def is_problem(self) -> bool:
        return self.has_fired and self.pattern.severity is Severity.PROBLEM

    @property
    def is_significant(self) -> bool:
        """Whether this is a problem that costs enough time to be listed as one; `--fail-on fired` counts every one.

        One whose fix saves less is none, unless the verdict is about it.
        """
        smallest = limits.LISTED_SHARE.value
        saves = self.won is None or self.won >= smallest or self.is_leading
        return self.is_problem and self.share >= smallest and saves


def find_code_location(answer: Verdict | Finding) -> str | None:
    """Return "file:lineno" of the code behind an answer, the file alone if its line is unknown, None without a file.

    As recorded: `clean` it.
    """
    return None if answer.line is None else answer.line.location or None


def describe_code_line(answer: Verdict | Finding) -> str:
    """Describe the code behind an answer for a reader: "train.py(42): forward", "" if it is unknown. As recorded."""
    return "" if answer.line is None else answer.line.text
