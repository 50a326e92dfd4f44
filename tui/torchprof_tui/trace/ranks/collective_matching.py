"""Which collective of one rank is which of another: by process group and by order within it.

The order is that of their launches. Steps cut it where they were recorded, so that ranks whose recordings begin at
another step meet all the same, and one that lacks a collective is out of step with the others for that step alone.
Within a step (or without steps) equal sequences of operations are joined one by one. Where one is shorter, the place
of what it lacks is looked for: of all places that leave the same operations joined, the one at which the ends differ
most evenly, because a collective ends on all ranks at once whatever their clocks say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.ranks import MatchedCollectives
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.ranks.collective_records import Collectives

_MAX_GAP_POSITIONS = 500
"""Places for what a sequence lacks, tried one by one at the most."""

_MAX_OFFSET = 1000
"""By so many places two sequences may be apart that do not otherwise agree."""

_SIZE_BITS = 40
"""Of a sign, which is an operation and a size: a million million elements are more than any message has."""

_EQUAL_SIZE_OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "barrier")
"""Operations in which all ranks bring equally much. In an all-to-all with splits they do not."""

_SYNCHRONIZING_OPERATIONS = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier", "sendrecv")
"""Operations that no rank leaves before the last one has come: each needs something of every other. NCCL's kernel of
an all-to-all is called SendRecv."""


def match_collectives(traces: Sequence[Trace], collectives: Sequence[Collectives]) -> MatchedCollectives:
    """Join the collectives of all ranks."""
    texts: dict[str, int] = {}
    tables = [_build_rank_table(trace, found, texts) for trace, found in zip(traces, collectives, strict=True)]
    words = list(texts)
    plain = [word.lower().replace("_", "") for word in words]
    sized = np.array([any(name in word for name in _EQUAL_SIZE_OPERATIONS) for word in plain] or [False])
    if any(len(table.step) and not table.has_steps for table in tables):
        for table in tables:
            table.step[:] = -1  # one that recorded no steps has one sequence alone; so then have all
    parts = [
        part
        for group in sorted({int(code) for table in tables for code in np.unique(table.group)})
        for part in _match_group(tables, group, sized)
    ]
    places = np.concatenate(parts, axis=1).T if parts else np.zeros((0, len(tables)), np.int64)
    kept = places[(places >= 0).sum(axis=1) > 1]
    return _build_matched_collectives(
        tables, kept, words, plain, sized, [found.before_recording for found in collectives]
    )


@dataclass(slots=True)
class _RankTable:
    """One rank's collectives with its texts numbered as everywhere; `segment` ascends with `step`, see `_segments`."""

    events: I32
    group: I32
    operation: I32
    dtype: I32
    received: I64
    sent: I64
    segment: I64
    step: I64
    end: I64
    has_steps: bool


def _build_rank_table(trace: Trace, found: Collectives, texts: dict[str, int]) -> _RankTable:
    number = np.array([texts.setdefault(word, len(texts)) for word in found.texts] or [0], np.int32)
    launch = trace.links.launch_of[found.events]
    begun = trace.start[np.where(launch >= 0, launch, found.events)]
    segment, step = _assign_segments(trace, np.asarray(begun))
    return _RankTable(
        found.events,
        number[found.group],
        number[found.operation],
        number[found.dtype],
        found.received,
        found.sent,
        segment,
        step,
        np.asarray(trace.start[found.events] + trace.duration[found.events]),
        bool(trace.steps),
    )


def _assign_segments(trace: Trace, begun: I64) -> tuple[I64, I64]:
    """(a number that all ranks give to one stretch of the program, the step or -1), int64[k] each."""
    if not trace.steps:
        return np.full(len(begun), -1, np.int64), np.full(len(begun), -1, np.int64)
    starts = np.array([step.start for step in trace.steps], np.int64)
    ends = starts + np.array([step.duration for step in trace.steps], np.int64)
    numbers = np.array([step.number for step in trace.steps], np.int64)
    place = np.searchsorted(starts, begun, side="right") - 1
    at = np.maximum(place, 0)
    inside = (place >= 0) & (begun < ends[at])
    return np.where(place < 0, -1, numbers[at] * 2 + ~inside), np.where(inside, numbers[at], -1)


def _match_group(tables: Sequence[_RankTable], group: int, sized: Bool) -> list[I64]:
    """int64[r, k] for each stretch of the program: each rank's place in its table, -1 where it has none."""
    mine = [np.flatnonzero(table.group == group) for table in tables]
    stepped = all(table.has_steps for table, rows in zip(tables, mine, strict=True) if len(rows))
    segments = [
        table.segment[rows] if stepped else np.zeros(len(rows), np.int64) for table, rows in _zip_rows(tables, mine)
    ]
    found = []
    for segment in np.unique(np.concatenate(segments)).tolist():
        rows = [each[its == segment] for each, its in zip(mine, segments, strict=True)]
        signs = [_compute_signatures(table, each, sized) for table, each in _zip_rows(tables, rows)]
        first = max(range(len(rows)), key=lambda k: len(rows[k]))
        joined = np.full((len(rows), len(rows[first])), -1, np.int64)
        ends = [table.end[each] for table, each in _zip_rows(tables, rows)]
        for rank, each in enumerate(rows):
            place = match_sequences(signs[first], signs[rank], ends[first], ends[rank])
            joined[rank, place[place >= 0]] = each[place >= 0]
        found.append(joined)
    return found


def _zip_rows(tables: Sequence[_RankTable], rows: Sequence[I64]) -> list[tuple[_RankTable, I64]]:
    return list(zip(tables, rows, strict=True))


def _compute_signatures(table: _RankTable, rows: I64, sized: Bool) -> I64:
    """int64[k]: equal for what may be one collective: the same operation, of the same size where sizes are equal."""
    operation = table.operation[rows].astype(np.int64)
    size = table.received[rows] & ((1 << _SIZE_BITS) - 1)
    return operation << _SIZE_BITS | np.where(sized[operation], size, 0)


def match_sequences(signatures: I64, other_signatures: I64, ends: I64, other_ends: I64) -> I64:
    """int64[len(others)]: which of `signs` each of `others` is, ascending, -1 for none. `ends` in ns on any clock."""
    if len(signatures) == len(other_signatures) and np.array_equal(signatures, other_signatures):
        return np.arange(len(other_signatures), dtype=np.int64)
    if len(signatures) < len(other_signatures):
        back = match_sequences(other_signatures, signatures, other_ends, ends)
        place = np.full(len(other_signatures), -1, np.int64)
        place[back[back >= 0]] = np.flatnonzero(back >= 0)
        return place
    if not len(other_signatures):
        return np.zeros(0, np.int64)
    found = _match_with_gap(signatures, other_signatures, ends, other_ends)
    return _match_with_offset(signatures, other_signatures, ends, other_ends) if found is None else found


def _match_with_gap(signs: I64, others: I64, ends: I64, their_ends: I64) -> I64 | None:
    """`others` is `signs` without one stretch of it: where that is; None where it is not so."""
    short, more = len(others), len(signs) - len(others)
    front = np.concatenate([[True], np.logical_and.accumulate(signs[:short] == others)])
    back = np.concatenate([np.logical_and.accumulate((signs[more:] == others)[::-1])[::-1], [True]])
    possible = np.flatnonzero(front & back)
    if not len(possible):
        return None
    if len(possible) > _MAX_GAP_POSITIONS:
        possible = possible[np.linspace(0, len(possible) - 1, _MAX_GAP_POSITIONS).astype(np.int64)]
    ahead, behind = their_ends - ends[:short], their_ends - ends[more:]
    unevenness = [_sum_deviations(np.concatenate([ahead[:cut], behind[cut:]])) for cut in possible.tolist()]
    cut = int(possible[int(np.argmin(unevenness))])
    place = np.arange(short, dtype=np.int64)
    place[cut:] += more
    return place


def _match_with_offset(signs: I64, others: I64, ends: I64, their_ends: I64) -> I64:
    """The offset at which most agree. What is there another operation is left out; what only is of another size is not:
    that the ranks say so is told of it."""
    best, place = (0, 0, 0.0), np.full(len(others), -1, np.int64)
    at = np.arange(len(others))
    for offset in range(max(1 - len(others), -_MAX_OFFSET), min(len(signs), _MAX_OFFSET)):
        target = at + offset
        inside = np.flatnonzero((target >= 0) & (target < len(signs)))
        sized = int(np.count_nonzero(signs[target[inside]] == others[inside]))
        same = inside[signs[target[inside]] >> _SIZE_BITS == others[inside] >> _SIZE_BITS]
        if not len(same) or (sized, len(same)) < best[:2]:
            continue
        score = (sized, len(same), -_sum_deviations(their_ends[same] - ends[same + offset]))
        if score > best or best[1] == 0:
            best = score
            place = np.full(len(others), -1, np.int64)
            place[same] = same + offset
    return place


def _sum_deviations(differences: I64) -> float:
    return float(np.abs(differences - np.median(differences)).sum())


def _build_matched_collectives(
    tables: Sequence[_RankTable], places: I64, words: list[str], plain: list[str], sized: Bool, before: list[int]
) -> MatchedCollectives:
    """`places` int64[m, r] in the tables."""
    present = places >= 0
    if not len(places):
        nothing = np.zeros(0, np.int64)
        small = nothing.astype(np.int32)
        no = nothing.astype(np.bool_)
        alone = np.array([len(table.events) for table in tables], np.int64)
        events = np.zeros((0, len(tables)), np.int32)
        counts = np.array(before, np.int64)
        return MatchedCollectives(events, small, small, small, nothing, nothing, no, no, nothing, alone, counts, words)

    def column(name: str, missing: int = -1) -> I64:
        out = np.full(places.shape, missing, np.int64)
        for rank, table in enumerate(tables):
            mine = present[:, rank]
            out[mine, rank] = getattr(table, name)[places[mine, rank]]
        return out

    first = present.argmax(axis=1)
    row = np.arange(len(places))

    def of_first(values: I64) -> I64:
        found: I64 = values[row, first]
        return found

    group, operation, dtype = column("group"), column("operation"), column("dtype")
    elements = np.maximum(column("received"), column("sent"))
    kind = of_first(operation)
    unlike = present & ((dtype != of_first(dtype)[:, None]) | (elements != of_first(elements)[:, None]))
    members = {int(code): sum(bool((table.group == code).any()) for table in tables) for code in np.unique(group)}
    return MatchedCollectives(
        events=column("events").astype(np.int32),
        group=of_first(group).astype(np.int32),
        operation=kind.astype(np.int32),
        dtype=of_first(dtype).astype(np.int32),
        elements=elements.max(axis=1),
        step=of_first(column("step")),
        is_synchronizing=np.array([any(name in word for name in _SYNCHRONIZING_OPERATIONS) for word in plain])[kind],
        is_mismatched=unlike.any(axis=1) & sized[kind],
        missing_ranks=np.array([members[int(code)] for code in of_first(group)], np.int64) - present.sum(axis=1),
        unmatched=np.array([len(table.events) for table in tables], np.int64) - present.sum(axis=0),
        before_recording=np.array(before, np.int64),
        texts=words,
    )
