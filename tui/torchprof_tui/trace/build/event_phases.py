"""What becomes of each entry of the file: drawn (alone or as a pair), a point, or not drawn and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.build import begin_end_pairs
from torchprof_tui.trace.core.arrays import I64, Array, Bool
from torchprof_tui.trace.core.factorize import bincount_chunked
from torchprof_tui.trace.core.problems import Problem, ProblemTally, excerpt
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME, DecodedTrace, RawEvents
from torchprof_tui.trace.model.trace import EntryCounts


class EntryAccounting:
    """What is not drawn, by reason, and what was odd: every entry is accounted for here."""

    def __init__(self, problems: list[Problem]) -> None:
        self.not_drawn: dict[str, int] = {}
        self._tally = ProblemTally()
        for problem in problems:
            self._tally.add(problem.kind, problem.example, problem.count)

    def count_not_drawn(self, reason: str, count: int) -> None:
        if count:
            self.not_drawn[reason] = self.not_drawn.get(reason, 0) + count

    def add_entry_problem(self, kind: str, events: RawEvents, ordinals: Array, remedy: str) -> None:
        """The entries at these ordinals have it; the first serves as the example."""
        if len(ordinals):
            first = int(ordinals[0])
            named = excerpt(events.names[events.name[first]])
            self._tally.add(kind, f"entry {first}, {named}: {remedy}", len(ordinals))

    def add_problem(self, kind: str, example: str, count: int) -> None:
        self._tally.add(kind, example, count)

    @property
    def problems(self) -> list[Problem]:
        return self._tally.problems()

    def build_counts(
        self, decoded: DecodedTrace, classified: ClassifiedEntries, by_category: dict[str, int]
    ) -> EntryCounts:
        self.count_not_drawn("unreadable", decoded.unreadable)
        self.count_not_drawn("not an object", decoded.not_objects)
        return EntryCounts(
            events=len(decoded.events) + decoded.unreadable + decoded.not_objects,
            drawn=classified.drawn_entries,
            metadata=classified.metadata,
            flows=classified.flows,
            not_drawn=self.not_drawn,
            by_category=by_category,
        )


@dataclass(slots=True)
class ClassifiedEntries:
    """What becomes of each entry."""

    drawn: Bool  # bool[entries]: those that are events on lanes (the B of a pair)
    is_instant: Bool  # bool[entries]: drawn as an instant
    is_async: Bool  # bool[entries]: drawn on an async lane
    memory: I64  # entries that are `[memory]` instants
    begin: I64  # entries of the pairs' begins and ends, async ones included
    end: I64
    counter_points: int  # `C` entries that have a time
    drawn_entries: int  # how many entries are drawn, each of a pair's counted
    metadata: int
    flows: int


_NOT_DRAWN_PHASES = {
    "object snapshot": b"NOD",
    "sample": b"P",
    "memory dump": b"vV",
    "clock sync": b"c",
    "context": b"()",
}
_PAIR_PHASES = ((b"BE", "end without begin"), (b"be", "async end without begin"), (b"SF", "async end without begin"))
_DRAWN_PHASES = b"XiIRnTpC" + b"".join(phases for phases, _ in _PAIR_PHASES)
_METADATA_PHASES, _FLOW_PHASES = b"M", b"stf"


def classify_entries(events: RawEvents, accounting: EntryAccounting) -> ClassifiedEntries:
    """Sort the entries by phase, pair begins with ends, account for each. Durations of pairs and marks are written."""
    many = bincount_chunked(events.phase, 256).tolist()
    timed = _TimedEntries(events)
    drawn = timed.select_phases(b"X")
    accounting.add_entry_problem(
        "missing duration", events, _indices_of_both(drawn, events.duration == NO_DURATION), "drawn without"
    )
    mark = timed.select_phases(b"iIR")
    waits = timed.select_phases(b"nTp")
    entries = int(np.count_nonzero(drawn) + np.count_nonzero(mark) + np.count_nonzero(waits))
    memory = np.zeros(0, np.int64)
    if "[memory]" in events.names:
        memory = _indices_of_both(mark, events.name == events.names.index("[memory]"))
        mark[memory] = False
    mark |= waits
    drawn |= mark
    events.duration[mark] = 0

    begins: list[I64] = []
    ends: list[I64] = []
    open_ended: list[I64] = []
    unnamed = events.names.index("") if "" in events.names else -1
    for phases, lost in _PAIR_PHASES:
        chosen = np.flatnonzero(timed.select_phases(phases))
        if not len(chosen):
            continue
        opens = events.phase[chosen] == phases[0]
        stacks = _pairing_keys(events, chosen, phases)
        found = begin_end_pairs.match_begin_end(stacks, events.time[chosen], events.name[chosen], opens, unnamed)
        begin, end, unclosed = chosen[found.begin], chosen[found.end], chosen[found.unclosed]
        events.duration[begin] = events.time[end] - events.time[begin]
        drawn[begin] = drawn[unclosed] = True
        if phases != b"BE":
            waits[begin] = waits[unclosed] = True
        entries += 2 * len(begin) + len(unclosed)
        begins.append(begin)
        ends.append(end)
        open_ended.append(unclosed)
        accounting.count_not_drawn(lost, len(found.orphans))
        accounting.add_entry_problem("renamed end", events, chosen[found.renamed], "closes a begin of another name")
    unclosed = _concatenate(open_ended)
    accounting.add_entry_problem("unclosed begin", events, unclosed, "drawn to the end of its lane")
    _close_at_end(events, drawn, unclosed)

    points = int(np.count_nonzero(timed.select_phases(b"C")))
    accounting.count_not_drawn("no time", sum(many[p] for p in _DRAWN_PHASES) - timed.count)
    for reason, phases in _NOT_DRAWN_PHASES.items():
        accounting.count_not_drawn(reason, sum(many[p] for p in phases))
    accounting.count_not_drawn("no phase", many[0])
    known = _DRAWN_PHASES + _METADATA_PHASES + _FLOW_PHASES + b"".join(_NOT_DRAWN_PHASES.values())
    accounting.count_not_drawn("unknown phase", sum(many[p] for p in range(1, 256) if p not in known))
    return ClassifiedEntries(
        drawn=drawn,
        is_instant=mark,
        is_async=waits,
        memory=memory,
        begin=_concatenate(begins),
        end=_concatenate(ends),
        counter_points=points,
        drawn_entries=entries,
        metadata=sum(many[p] for p in _METADATA_PHASES),
        flows=sum(many[p] for p in _FLOW_PHASES),
    )


class _TimedEntries:
    """The entries of some phases that have a time; `count` adds them up."""

    def __init__(self, events: RawEvents) -> None:
        self._phase = events.phase
        self._timed = events.time != NO_TIME
        self.count = 0

    def select_phases(self, phases: bytes) -> Bool:
        wanted = np.zeros(256, np.bool_)
        wanted[list(phases)] = True
        found: Bool = wanted[self._phase] & self._timed
        self.count += int(np.count_nonzero(found))
        return found


def _indices_of_both(mask: Bool, also: Bool) -> I64:
    return np.flatnonzero(mask & also)


def _pairing_keys(events: RawEvents, chosen: I64, phases: bytes) -> I64:
    """What the entries are paired within: the thread, or category and id (old async events: and name)."""
    if phases == b"BE":
        return events.track[chosen].astype(np.int64)
    key = events.category[chosen].astype(np.int64) << 32 | (events.id[chosen].astype(np.int64) + 1)
    if phases == b"SF":
        _, key = np.unique(key, return_inverse=True)
        key = key << 32 | events.name[chosen]
    return key


def _concatenate(parts: list[I64]) -> I64:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _close_at_end(events: RawEvents, drawn: Bool, unclosed: I64) -> None:
    """What nothing closes lasts until the last event of its track ends; the trace, where that is no later.

    All of a track's last equally long: they were open inside each other, and stay so.
    """
    if not len(unclosed):
        return
    events.duration[unclosed] = 0
    shown = np.flatnonzero(drawn)
    ends = events.time[shown] + np.maximum(events.duration[shown], 0)
    last_end = np.full(len(events.tracks), NO_TIME, np.int64)
    last_begin = last_end.copy()
    np.maximum.at(last_end, events.track[shown], ends)
    np.maximum.at(last_begin, events.track[unclosed], events.time[unclosed])
    until = np.where(last_end > last_begin, last_end, ends.max())
    events.duration[unclosed] = until[events.track[unclosed]] - events.time[unclosed]
