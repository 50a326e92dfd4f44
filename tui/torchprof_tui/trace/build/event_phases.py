"""Classify the entries of the file by phase: drawn (alone or as a pair), a counter point, or not drawn and why.

Begins are matched with ends: B/E on threads, b/e and S/F of async events. The rules, for one stack (a thread; an async
id), by time, at equal times in file order:

1. An end closes the innermost open begin of its name. An end without a name closes the innermost open begin.
2. An end whose begin follows it in the file at the same time closes that begin.
3. An end that finds no begin of its name closes the innermost open begin, unless another end claims that begin:
   writers do rename (`begin("alpha") … end("beta")`), and nesting is what the format promises.
4. What is left over is returned: begins to be drawn open-ended, ends to be counted.

Begins that a pair jumps over (`A( B( )A`) stay open: their own end may still follow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Array, Bool
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
        memory = find_indexes(lambda block: is_instant[block] & (events.name[block] == wanted), len(events)).astype(
            np.int64
        )
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

        def select(block: slice) -> None:
            selected[block] = condition(block)

        run_blocks(select, len(selected))
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
    begins: list[I64] = []
    ends: list[I64] = []
    open_ended: list[I64] = []
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
        begins.append(begin)
        ends.append(end)
        open_ended.append(unclosed)
        accounting.count_not_drawn(orphan_reason, len(pairs.orphans))
        accounting.add_entry_problem("renamed end", events, ordinals[pairs.renamed], "closes a begin of another name")
    return _concatenate(begins), _concatenate(ends), _concatenate(open_ended)


def _pairing_keys(events: RawEvents, ordinals: I64, phases: bytes) -> I64:
    """Number what the entries are paired within: the thread, or category and id (old async events: and name)."""
    if phases == b"BE":
        return events.track[ordinals].astype(np.int64)
    key = events.category[ordinals].astype(np.int64) << 32 | (events.id[ordinals].astype(np.int64) + 1)
    if phases == b"SF":
        _, key = np.unique(key, return_inverse=True)
        key = key << 32 | events.name[ordinals]
    return key


def _concatenate(parts: list[I64]) -> I64:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


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


@dataclass(frozen=True, slots=True)
class Pairs:
    """Indexes into the arrays passed to `match_begin_end`: `begin[k]` and `end[k]` are a pair."""

    begin: I64
    end: I64
    unclosed: I64
    orphans: I64
    renamed: I64  # the ends matched by rule 3, which are in `end` too


def match_begin_end(stack: I64, time: I64, name: I32, is_begin: Bool, empty_name: int) -> Pairs:
    """Match begins and ends given in file order. `empty_name`: the number of the empty name, -1 if there is none.

    Stacks whose names match as brackets do are matched all at once, the others one by one; linear but for sorts.
    """
    if not len(stack):
        nothing = np.zeros(0, np.int64)
        return Pairs(nothing, nothing, nothing, nothing, nothing)
    order = np.lexsort((time, stack))
    stack, name, is_begin = stack[order], name[order], is_begin[order]
    changes = np.flatnonzero(np.concatenate([[True], stack[1:] != stack[:-1]]))
    sizes = np.diff(np.append(changes, len(stack)))
    group = np.repeat(np.arange(len(changes)), sizes)

    begin, end, is_irregular = _match_brackets(group, changes, name, is_begin, empty_name)
    closed = np.zeros(len(stack), np.bool_)
    closed[begin] = True
    unclosed = np.flatnonzero(~is_irregular[group] & is_begin & ~closed)
    orphans = np.zeros(0, np.int64)
    renamed = np.zeros(0, np.int64)
    if is_irregular.any():
        matcher = _StackMatcher(empty_name)
        columns = (name, is_begin, time[order])
        for irregular in np.flatnonzero(is_irregular).tolist():
            low, high = int(changes[irregular]), int(changes[irregular] + sizes[irregular])
            matcher.match_stack(low, *(column[low:high].tolist() for column in columns))
        begin, end = np.append(begin, matcher.begin).astype(np.int64), np.append(end, matcher.end).astype(np.int64)
        unclosed = np.append(unclosed, matcher.unclosed).astype(np.int64)
        orphans = np.array(matcher.orphans, np.int64)
        renamed = np.array(matcher.renamed, np.int64)
    return Pairs(order[begin], order[end], np.sort(order[unclosed]), np.sort(order[orphans]), np.sort(order[renamed]))


def _match_brackets(group: I64, changes: I64, name: I32, is_begin: Bool, empty_name: int) -> tuple[I64, I64, Bool]:
    """Match the stacks that are well-formed brackets: begins, their ends, and bool[stacks]: which are not.

    Tokens are sorted by stack, then time. `group` int64[n]: the stack of each; `changes` int64[stacks]: the first token
    of each stack.
    """
    depth_after = np.cumsum(np.where(is_begin, 1, -1))
    base = np.concatenate([[0], depth_after[changes[1:] - 1]])
    depth_after -= base[group]
    depth = np.where(is_begin, depth_after - 1, depth_after)  # equal for a begin and its end
    is_irregular = np.zeros(len(changes), np.bool_)
    is_irregular[group[depth < 0]] = True  # more ends than begins

    brackets = np.lexsort((depth, group))
    first, second = brackets[:-1], brackets[1:]
    is_pair = is_begin[first] & ~is_begin[second] & (group[first] == group[second]) & (depth[first] == depth[second])
    first, second = first[is_pair], second[is_pair]
    is_irregular[group[first[(name[first] != name[second]) & (name[second] != empty_name)]]] = True
    regular = ~is_irregular[group[first]]
    return first[regular], second[regular], is_irregular


class _StackMatcher:
    """Apply the rules token by token, for stacks that are not well-formed. Every begin is pushed and popped once."""

    def __init__(self, empty_name: int) -> None:
        self.empty_name = empty_name
        self.begin: list[int] = []
        self.end: list[int] = []
        self.unclosed: list[int] = []
        self.orphans: list[int] = []
        self.renamed: list[int] = []

    def match_stack(self, low: int, names: list[int], opens: list[bool], times: list[int]) -> None:
        """Match one stack. `low`: the index of its first token."""
        closer = self._match_by_name(names, opens, times)
        claimed = set(closer.values())
        stack: list[int] = []  # begins, innermost last; closed ones are dropped when they come to the top
        for index, is_begin in enumerate(opens):
            if is_begin:
                stack.append(index)
            elif index not in claimed:
                while stack and closer.get(stack[-1], index) < index:
                    stack.pop()
                if stack and stack[-1] not in closer:
                    closer[stack.pop()] = index
                    self.renamed.append(low + index)
                else:
                    self.orphans.append(low + index)
        for index, is_begin in enumerate(opens):
            if is_begin and index in closer:
                self.begin.append(low + index)
                self.end.append(low + closer[index])
            elif is_begin:
                self.unclosed.append(low + index)

    def _match_by_name(self, names: list[int], opens: list[bool], times: list[int]) -> dict[int, int]:
        """Apply rules 1 and 2: begin -> end."""
        closer: dict[int, int] = {}
        stack: list[int] = []
        by_name: defaultdict[int, list[int]] = defaultdict(list)
        early_ends: dict[int, list[int]] = {}  # ends at the current time whose begin may follow, by name
        now = None
        for index, (name, is_begin, time) in enumerate(zip(names, opens, times, strict=True)):
            if time != now:
                early_ends.clear()
                now = time
            if is_begin:
                if early_ends.get(name):
                    closer[index] = early_ends[name].pop(0)
                else:
                    stack.append(index)
                    by_name[name].append(index)
            elif name == self.empty_name:
                while stack and stack[-1] in closer:
                    stack.pop()
                if stack:
                    top = stack.pop()
                    closer[top] = index
                    by_name[names[top]].pop()
            elif by_name[name]:
                closer[by_name[name].pop()] = index
            else:
                early_ends.setdefault(name, []).append(index)
        return closer
