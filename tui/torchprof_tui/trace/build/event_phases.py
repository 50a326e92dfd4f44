"""Classify the entries of the file by phase: drawn (alone or as a pair), a counter point, or not drawn and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.build.begin_end_pairs import match_begin_end
from torchprof_tui.trace.core.arrays import I64, Array, Bool
from torchprof_tui.trace.core.problems import Problem, ProblemTally, excerpt
from torchprof_tui.trace.core.thread_tasks import bincount_parallel, find_indexes, run_blocks
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME, DecodedTrace, RawEvents
from torchprof_tui.trace.model.trace import EntryCounts


class EntryAccounting(ProblemTally):
    """Count the entries that are not drawn, by reason, and collect problems, so that every entry is accounted for."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__()
        self.not_drawn: dict[str, int] = {}
        for problem in problems:
            self.add(problem.kind, problem.example, problem.count)

    def count_not_drawn(self, reason: str, count: int) -> None:
        if count:
            self.not_drawn[reason] = self.not_drawn.get(reason, 0) + count

    def add_entry_problem(self, kind: str, events: RawEvents, ordinals: Array, remedy: str) -> None:
        """Report a problem of the entries with these ordinals; the first of them is the example."""
        if len(ordinals):
            first = int(ordinals[0])
            name = excerpt(events.names[events.name[first]])
            self.add(kind, f"entry {first}, {name}: {remedy}", len(ordinals))

    def build_counts(
        self, decoded: DecodedTrace, classified: ClassifiedEntries, by_category: dict[str, int]
    ) -> EntryCounts:
        """Sum up all entries, those that could not be read included."""
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

    drawn: Bool  # bool[entries]: events on lanes (of a pair, the begin)
    is_instant: Bool  # bool[entries]: drawn as an instant
    is_async: Bool  # bool[entries]: drawn on an async lane
    memory: I64  # ordinals of the `[memory]` instants
    begin: I64  # ordinals of the pairs' begins and ends, async ones included
    end: I64
    counter_points: int  # number of `C` entries that have a time
    drawn_entries: int  # number of entries that are drawn; a pair counts as two
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
    """Classify the entries by phase, match begins with ends, account for each.

    Writes the durations of pairs and instants into `events`.
    """
    counts = bincount_parallel(events.phase, 256).tolist()
    timed = _TimedEntries(events, counts)
    drawn = timed.select_phases(b"X")
    missing = find_indexes(lambda block: drawn[block] & (events.duration[block] == NO_DURATION), len(events))
    accounting.add_entry_problem("missing duration", events, missing, "drawn without")
    is_instant = timed.select_phases(b"iIR")
    is_async = timed.select_phases(b"nTp")
    drawn_entries = int(np.count_nonzero(drawn) + np.count_nonzero(is_instant) + np.count_nonzero(is_async))
    memory = np.zeros(0, np.int64)
    if "[memory]" in events.names:
        wanted = events.names.index("[memory]")
        found = find_indexes(lambda block: is_instant[block] & (events.name[block] == wanted), len(events))
        memory = found.astype(np.int64)
        is_instant[memory] = False

    def draw_instants(block: slice) -> None:
        is_instant[block] |= is_async[block]
        drawn[block] |= is_instant[block]
        events.duration[block][is_instant[block]] = 0

    run_blocks(draw_instants, len(events))

    begin, end, unclosed = _match_pairs(events, timed, drawn, is_async, accounting)
    drawn_entries += 2 * len(begin) + len(unclosed)
    accounting.add_entry_problem("unclosed begin", events, unclosed, "drawn to the end of its lane")
    _close_at_end(events, drawn, unclosed)

    counter_points = len(timed.find_phases(b"C"))
    _count_entries_not_drawn(counts, timed.count, accounting)
    return ClassifiedEntries(
        drawn=drawn,
        is_instant=is_instant,
        is_async=is_async,
        memory=memory,
        begin=begin,
        end=end,
        counter_points=counter_points,
        drawn_entries=drawn_entries,
        metadata=sum(counts[phase] for phase in _METADATA_PHASES),
        flows=sum(counts[phase] for phase in _FLOW_PHASES),
    )


class _TimedEntries:
    """Select the entries of some phases that have a time; `count` is the number of all that were selected."""

    def __init__(self, events: RawEvents, counts: list[int]) -> None:
        self._phase = events.phase
        self._time = events.time
        self._counts = counts
        self.count = 0

    def select_phases(self, phases: bytes) -> Bool:
        """Select them: bool[entries]. `counts` of the constructor: the number of entries of each phase."""
        selected = np.zeros(len(self._phase), np.bool_)
        if not any(self._counts[phase] for phase in phases):
            return selected
        condition = self._create_condition(phases)
        run_blocks(lambda block: np.copyto(selected[block], condition(block)), len(selected))
        self.count += int(np.count_nonzero(selected))
        return selected

    def find_phases(self, phases: bytes) -> I64:
        """Find their ordinals."""
        if not any(self._counts[phase] for phase in phases):
            return np.zeros(0, np.int64)
        found = find_indexes(self._create_condition(phases), len(self._phase)).astype(np.int64)
        self.count += len(found)
        return found

    def _create_condition(self, phases: bytes) -> Callable[[slice], Bool]:
        is_wanted = np.zeros(256, np.bool_)
        is_wanted[list(phases)] = True
        return lambda block: is_wanted[self._phase[block]] & (self._time[block] != NO_TIME)


def _match_pairs(
    events: RawEvents, timed: _TimedEntries, drawn: Bool, is_async: Bool, accounting: EntryAccounting
) -> tuple[I64, I64, I64]:
    """Match begins with ends: the ordinals of the begins, of their ends, and of the unclosed begins.

    Marks the begins in `drawn` and `is_async`, and writes the durations of the pairs.
    """
    parts = [(np.zeros(0, np.int64),) * 3]
    empty_name = events.names.index("") if "" in events.names else -1
    for phases, orphan_reason in _PAIR_PHASES:
        ordinals = timed.find_phases(phases)
        if not len(ordinals):
            continue
        opens = events.phase[ordinals] == phases[0]
        stacks = _pairing_keys(events, ordinals, phases)
        pairs = match_begin_end(stacks, events.time[ordinals], events.name[ordinals], opens, empty_name)
        begin, end, unclosed = ordinals[pairs.begin], ordinals[pairs.end], ordinals[pairs.unclosed]
        events.duration[begin] = events.time[end] - events.time[begin]
        drawn[begin] = drawn[unclosed] = True
        if phases != b"BE":
            is_async[begin] = is_async[unclosed] = True
        parts.append((begin, end, unclosed))
        accounting.count_not_drawn(orphan_reason, len(pairs.orphans))
        accounting.add_entry_problem("renamed end", events, ordinals[pairs.renamed], "closes a begin of another name")
    begin, end, unclosed = map(np.concatenate, zip(*parts, strict=True))
    return begin, end, unclosed


def _pairing_keys(events: RawEvents, ordinals: I64, phases: bytes) -> I64:
    """Number what the entries are paired within: the thread, or category and id (old async events: and name)."""
    if phases == b"BE":
        return events.track[ordinals].astype(np.int64)
    key = events.category[ordinals].astype(np.int64) << 32 | (events.id[ordinals].astype(np.int64) + 1)
    if phases == b"SF":
        _, key = np.unique(key, return_inverse=True)
        key = key << 32 | events.name[ordinals]
    return key


def _close_at_end(events: RawEvents, drawn: Bool, unclosed: I64) -> None:
    """End unclosed begins where the last event of their track ends, or the trace, if that is no later.

    All of one track end together: they were open inside each other, and stay so.
    """
    if not len(unclosed):
        return
    events.duration[unclosed] = 0
    ordinals = np.flatnonzero(drawn)
    ends = events.time[ordinals] + np.maximum(events.duration[ordinals], 0)
    last_end = np.full(len(events.tracks), NO_TIME, np.int64)
    last_begin = last_end.copy()
    np.maximum.at(last_end, events.track[ordinals], ends)
    np.maximum.at(last_begin, events.track[unclosed], events.time[unclosed])
    end_of_track = np.where(last_end > last_begin, last_end, ends.max())
    events.duration[unclosed] = end_of_track[events.track[unclosed]] - events.time[unclosed]


def _count_entries_not_drawn(counts: list[int], timed: int, accounting: EntryAccounting) -> None:
    """Account for the entries that are not drawn because of their phase or a missing time.

    `counts`: the number of entries of each phase; `timed`: the number of entries of drawn phases that have a time.
    """
    accounting.count_not_drawn("no time", sum(counts[phase] for phase in _DRAWN_PHASES) - timed)
    for reason, phases in _NOT_DRAWN_PHASES.items():
        accounting.count_not_drawn(reason, sum(counts[phase] for phase in phases))
    accounting.count_not_drawn("no phase", counts[0])
    known = _DRAWN_PHASES + _METADATA_PHASES + _FLOW_PHASES + b"".join(_NOT_DRAWN_PHASES.values())
    accounting.count_not_drawn("unknown phase", sum(counts[phase] for phase in range(1, 256) if phase not in known))
