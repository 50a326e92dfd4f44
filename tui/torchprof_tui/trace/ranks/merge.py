"""Merge the traces of several ranks: concatenate their columns into one trace, on one clock.

Rank k's events are one range of the columns and its lanes one range of the lanes, under a header lane that has no
events. So code that asks about an event, a lane, a parent or a launch need not know that there are ranks.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import accumulate
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Array
from torchprof_tui.trace.core.problems import LOST_RANK, UNRELATED_RANKS, Problem, ProblemTally
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.ranks import AlignmentMethod, Clock, LostRank, Rank, Ranks
from torchprof_tui.trace.model.trace import LINK_COUNTS, EntryCounts, Links, MemoryEvents, SparseColumn, Trace
from torchprof_tui.trace.ranks.clock_alignment import align_clocks
from torchprof_tui.trace.ranks.collective_matching import Collectives, match_collectives
from torchprof_tui.trace.text.block_text import RankTexts

_PROCESS_LOCAL_ARGS = frozenset({"external_id", "sequence", "python_id", "python_parent"})
"""Args that are unique within one process alone; they are kept apart from rank to rank, as correlations are."""

_RANK_SHIFT_BITS = 40  # bits of a rank's own numbers, which processes count from 0; above them is the index of the rank


@record
class OpenedRank:
    """One rank as it was opened: its `number`, the `file` as the user named it, what it recorded."""

    number: int
    file: str
    trace: Trace
    collectives: Collectives


def merge_ranks(opened_ranks: Sequence[OpenedRank], label: str, lost: Sequence[LostRank] = ()) -> Trace:
    """Merge all ranks into one trace, by number. `lost`: the ranks that are missing.

    Copies all columns except the names.
    """
    ordered = sorted(opened_ranks, key=lambda rank: rank.number)
    traces = [rank.trace for rank in ordered]
    offsets = _Offsets(
        events=_compute_offsets(len(trace) for trace in traces),
        lanes=[lane + 1 for lane in _compute_offsets(len(trace.lanes) + 1 for trace in traces)],
        entries=_compute_offsets(trace.counts.events for trace in traces),
    )
    ranks, start = _align_ranks(ordered, offsets, lost)
    lanes, total_rows = _merge_lanes(ranks)
    names, name = _merge_names([(trace.names, trace.name) for trace in traces])
    categories, category = _merge_names([(trace.categories, trace.category) for trace in traces])
    row_order, row_first = _merge_row_order(traces, offsets, lanes, total_rows)
    return Trace(
        label=label,
        format=traces[0].format,
        size=sum(trace.size for trace in traces),
        header=traces[0].header,
        start=start,
        duration=_merge_column(traces, "duration"),
        name=name.astype(np.int32),
        category=category.astype(np.uint16),
        kind=_merge_column(traces, "kind"),
        lane=_merge_column(traces, "lane", offsets.lanes),
        row=_merge_column(traces, "row"),
        parent=_merge_column(traces, "parent", offsets.events),
        self_duration=_merge_column(traces, "self_duration"),
        correlation=_merge_column(traces, "correlation", [k << _RANK_SHIFT_BITS for k in range(len(traces))]),
        ordinal=_merge_column(traces, "ordinal", offsets.entries),
        names=names,
        categories=categories,
        lanes=lanes,
        counters=[
            replace(counter, lane=counter.lane + rank.first_lane)
            for rank in ranks.all
            for counter in rank.trace.counters
        ],
        steps=ranks.all[0].steps,
        span=(min(rank.trace.span[0] for rank in ranks.all), max(rank.trace.span[1] for rank in ranks.all)),
        links=_merge_links([trace.links for trace in traces], offsets.events),
        args=_merge_args(traces, offsets),
        counts=_merge_counts([trace.counts for trace in traces]),
        row_order=row_order,
        row_first=row_first,
        text=RankTexts([trace.text for trace in traces], np.array(offsets.entries, np.int64)),
        memory=_merge_memory(ranks, offsets),
        problems=_merge_problems(ranks, [rank.collectives for rank in ordered]),
        metadata=traces[0].metadata,
        merged_ranks=ranks,
    )


@record
class _Offsets:
    """Where each rank begins in the merged trace: its first event, lane (after its header lane) and entry."""

    events: list[int]
    lanes: list[int]
    entries: list[int]


def _merge_counts(counts: Sequence[EntryCounts]) -> EntryCounts:
    return EntryCounts(
        **{name: sum(getattr(part, name) for part in counts) for name in ("events", "drawn", "metadata", "flows")},
        not_drawn=dict(sum((Counts(part.not_drawn) for part in counts), Counts())),
        by_category=dict(sum((Counts(part.by_category) for part in counts), Counts())),
    )


def _compute_offsets(sizes: Iterable[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))[:-1]


def _merge_column(owners: Sequence[Trace] | Sequence[Links], name: str, offsets: Sequence[int] | None = None) -> Any:
    """Concatenate a column of all ranks, each with its offset added, except to negative values, which mean none."""
    columns: list[Any] = [getattr(owner, name) for owner in owners]
    if offsets is not None:
        columns = [
            np.where(column < 0, column, column + column.dtype.type(offset))
            for column, offset in zip(columns, offsets, strict=True)
        ]
    return np.concatenate(columns)


def _align_ranks(ordered: Sequence[OpenedRank], offsets: _Offsets, lost: Sequence[LostRank]) -> tuple[Ranks, I64]:
    """Match the collectives and put all ranks on one clock; returns them with the merged start times."""
    traces = [rank.trace for rank in ordered]
    matched_collectives = match_collectives(traces, [rank.collectives for rank in ordered])
    clocks = align_clocks(traces, matched_collectives)
    start = np.concatenate([trace.start + clock.shift for trace, clock in zip(traces, clocks, strict=True)])
    aligned = tuple(
        Rank(
            rank.number,
            rank.file,
            _shift_trace(rank.trace, clock, start[first : first + len(rank.trace)]),
            first,
            first_lane,
            clock,
        )
        for rank, clock, first, first_lane in zip(ordered, clocks, offsets.events, offsets.lanes, strict=True)
    )
    return Ranks(aligned, matched_collectives, tuple(lost)), start


def _shift_trace(trace: Trace, clock: Clock, start: I64) -> Trace:
    """Put a rank's trace on the common clock; `start` is its part of the merged column."""
    shift = clock.shift
    memory = trace.memory
    return replace(
        trace,
        start=start,
        counters=[replace(counter, times=counter.times + shift) for counter in trace.counters],
        steps=[replace(step, start=step.start + shift) for step in trace.steps],
        span=(trace.span[0] + shift, trace.span[1] + shift),
        memory=None if memory is None else replace(memory, time=memory.time + shift),
        origin=trace.origin - shift,
        stored_index=None,  # its starts are on the rank's own clock, so it is rebuilt on request
    )


def _merge_lanes(ranks: Ranks) -> tuple[list[Lane], int]:
    """Merge the lanes, those of each rank after its header lane; returns them with their total number of rows."""
    lanes: list[Lane] = []
    row_base = 0
    for rank in ranks.all:
        lanes.append(
            Lane(Role.RANK, "", "", rank.label, rank.label, rank.first, rank.first, 1, row_base, rank=rank.number)
        )
        lanes += [
            replace(
                lane,
                group=f"{rank.label} {lane.group}",
                first=lane.first + rank.first,
                last=lane.last + rank.first,
                row_base=lane.row_base + row_base + 1,
                rank=rank.number,
            )
            for lane in rank.trace.lanes
        ]
        row_base += 1 + rank.trace.total_rows
    return lanes, row_base


def _merge_row_order(
    traces: Sequence[Trace], offsets: _Offsets, lanes: Sequence[Lane], total_rows: int
) -> tuple[I32, I64]:
    """Merge `Trace.row_order` and `row_first`, with an empty row for each header lane."""
    order = np.concatenate(
        [trace.row_order + np.int32(offset) for trace, offset in zip(traces, offsets.events, strict=True)]
    )
    bounds = np.zeros(total_rows + 1, np.int64)
    for trace, offset, first_lane in zip(traces, offsets.events, offsets.lanes, strict=True):
        row_base = lanes[first_lane - 1].row_base
        bounds[row_base] = offset
        bounds[row_base + 1 : row_base + 1 + len(trace.row_first)] = trace.row_first + offset
    return order, bounds


def _merge_names(parts: Sequence[tuple[list[str], Array]]) -> tuple[list[str], Array]:
    """Merge tables of texts and the columns of indexes into them; every text occurs once in the result."""
    index_of: dict[str, int] = {}
    columns = []
    for texts, column in parts:
        codes = np.array([index_of.setdefault(text, len(index_of)) for text in texts], np.int32)
        columns.append(codes[column])
    return list(index_of), np.concatenate(columns)


_LINKED_EVENTS = [field.name for field in fields(Links) if field.name not in (*LINK_COUNTS, "work_first")]


def _merge_links(links: Sequence[Links], first_events: list[int]) -> Links:
    offsets = _compute_offsets(len(part.work_order) for part in links)
    work_first = [part.work_first[:-1] + offset for part, offset in zip(links, offsets, strict=True)]
    return Links(
        work_first=np.concatenate([*work_first, [sum(len(part.work_order) for part in links)]]).astype(np.int32),
        **{name: _merge_column(links, name, first_events) for name in _LINKED_EVENTS},
        **{name: sum(getattr(part, name) for part in links) for name in LINK_COUNTS},
    )


def _merge_args(traces: Sequence[Trace], offsets: _Offsets) -> dict[str, SparseColumn]:
    merged: dict[str, SparseColumn] = {}
    for name in dict.fromkeys(name for trace in traces for name in trace.args):
        events, values = [], []
        for k, trace in enumerate(traces):
            arg = trace.args.get(name)
            if arg is not None:
                events.append(arg.events + np.int32(offsets.events[k]))
                own: Any = arg.values
                offset = offsets.entries[k] if name == "end_ordinal" else 0
                if name in _PROCESS_LOCAL_ARGS:
                    offset = k << _RANK_SHIFT_BITS
                values.append(np.where(own < 0, own, own + offset) if offset else own)
        merged[name] = SparseColumn(np.concatenate(events).astype(np.int32), np.concatenate(values))
    return merged


def _merge_memory(ranks: Ranks, offsets: _Offsets) -> MemoryEvents | None:
    """Merge the `[memory]` instants of all ranks by time; None where no rank has any."""
    parts = [
        (rank, rank.trace.memory, first_entry)
        for rank, first_entry in zip(ranks.all, offsets.entries, strict=True)
        if rank.trace.memory is not None
    ]
    if not parts:
        return None
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(memory, name) for _, memory, _ in parts])
        for name in ("time", "device_type", "device_id", "bytes", "allocated", "reserved", "address")
    }
    columns["lane"] = np.concatenate(
        [np.where(memory.lane < 0, memory.lane, memory.lane + rank.first_lane) for rank, memory, _ in parts]
    )
    columns["ordinal"] = np.concatenate([memory.ordinal + first_entry for _, memory, first_entry in parts])
    order = np.argsort(columns["time"], kind="stable")
    dtypes = {"lane": np.int32, "ordinal": np.int32}
    return MemoryEvents(**{name: column[order].astype(dtypes.get(name, np.int64)) for name, column in columns.items()})


def _merge_problems(ranks: Ranks, collectives: Sequence[Collectives]) -> list[Problem]:
    """Report ranks that are missing or of another run, then the problems of all ranks by kind, with one example."""
    tally = ProblemTally()
    for lost in ranks.lost:
        tally.add(LOST_RANK, str(lost))
    group_names = [[each.texts[code] for code in np.unique(each.group).tolist()] for each in collectives]
    for line in find_mismatched_runs(ranks.all, ranks.matched_collectives.events, group_names):
        tally.add(UNRELATED_RANKS, line)
    for rank in ranks.all:
        for problem in rank.trace.problems:
            tally.add(problem.kind, f"{rank.label}: {problem.example}", problem.count)
    return tally.problems()


_DEFAULT_GROUP_PREFIX = "0 "  # prefix of a group name from `collective_matching.py` if it is the group of all ranks
_COMPARABLE_CLOCKS = frozenset((AlignmentMethod.BASE, AlignmentMethod.WALL))


def find_mismatched_runs(ranks: Sequence[Rank], events: I32, groups: Sequence[Sequence[str]]) -> list[str]:
    """Find the ranks that seem to be of another run than the first ones: a line for each that says why.

    Files do not record their run. Ranks of one run share collectives, but ranks without a common one may still be of
    one run (a recording was cut, or they communicate with other ranks only). So more is required: that they were
    recorded at different times, or describe their default process group differently.

    `events` int32[m, r]: of `MatchedCollectives`; `groups` [r]: the names of each rank's process groups.
    """
    first_of_group = _group_ranks(events, len(ranks))
    mismatches = []
    for index, rank in enumerate(ranks):
        unconnected = [k for k in range(index) if first_of_group[k] != first_of_group[index]]
        if not unconnected or not len(rank.trace):
            continue
        if first_of_group[index] != index:  # reported for the first rank of those that share collectives
            continue
        gaps = [gap for k in unconnected if (gap := _compute_recording_gap(ranks[k], rank)) > 0]
        defaults = [{name for name in names if name.startswith(_DEFAULT_GROUP_PREFIX)} for names in groups]
        first = ranks[unconnected[0]].label
        if len(gaps) == len(unconnected):
            mismatches.append(
                f"{rank.label} shares no collective with {first}, and was recorded {format_duration(min(gaps))} apart"
            )
        elif defaults[index] and all(defaults[k] and defaults[k].isdisjoint(defaults[index]) for k in unconnected):
            mismatches.append(
                f"{rank.label} shares no collective with {first}, and its default process group has another name"
            )
    return mismatches


def _group_ranks(events: I32, count: int) -> list[int]:
    """Group ranks that share collectives: for each rank the first one of its group, itself where it shares none."""
    first_of_group = list(range(count))
    for row in np.unique(np.packbits(events >= 0, axis=1), axis=0):
        members = np.flatnonzero(np.unpackbits(row, count=count)).tolist()
        joined = {first_of_group[k] for k in members}
        if joined:
            lowest = min(joined)
            first_of_group = [lowest if first in joined else first for first in first_of_group]
    return first_of_group


def _compute_recording_gap(rank: Rank, other: Rank) -> int:
    """Compute the ns from the end of one recording to the beginning of the other; 0 where clocks cannot be compared."""
    methods = {rank.clock.method, other.clock.method}
    if not len(rank.trace) or not methods <= _COMPARABLE_CLOCKS:
        return 0
    (start, end), (other_start, other_end) = rank.trace.span, other.trace.span
    return max(other_start - end, start - other_end)
