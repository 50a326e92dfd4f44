"""Several ranks' traces put behind one another: one trace whose columns are theirs, on one clock.

Rank k's events are one run of the columns and its lanes one run of the lanes, under a line of its own that has no
events. So everything that asks about an event, a lane, a parent or a launch need not know that there are ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Array
from torchprof_tui.trace.core.problems import LOST_RANK, UNRELATED_RANKS, Problem, ProblemTally
from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.ranks import Clock, LostRank, Rank, Ranks
from torchprof_tui.trace.model.trace import EntryCounts, Links, MemoryEvents, SparseColumn, Trace
from torchprof_tui.trace.ranks.clock_alignment import align_clocks
from torchprof_tui.trace.ranks.collective_matching import match_collectives
from torchprof_tui.trace.ranks.collective_records import Collectives
from torchprof_tui.trace.ranks.run_consistency import find_mismatched_runs
from torchprof_tui.trace.text.rank_texts import RankTexts

_PROCESS_LOCAL_ARGS = frozenset({"external_id", "sequence", "python_id", "python_parent"})
"""Args that mean something within one process alone: apart from rank to rank, as correlations are."""

_RANK_SHIFT_BITS = 40
"""Bits that a rank's own numbers have: processes count theirs from 0."""


@dataclass(frozen=True, slots=True)
class OpenedRank:
    """One rank as it was opened: its `number`, the `file` as the user named it, what it recorded."""

    number: int
    file: str
    trace: Trace
    collectives: Collectives


def merge_ranks(opened_ranks: Sequence[OpenedRank], label: str, lost: Sequence[LostRank] = ()) -> Trace:
    """All ranks as one trace, by number. Costs a copy of all columns but names. `lost`: those that are missing."""
    ordered = sorted(opened_ranks, key=lambda each: each.number)
    traces = [each.trace for each in ordered]
    meetings = match_collectives(traces, [each.collectives for each in ordered])
    clocks = align_clocks(traces, meetings)
    shifts = [clock.shift for clock in clocks]
    first = _compute_offsets(len(trace) for trace in traces)
    own_lanes = _compute_offsets(len(trace.lanes) + 1 for trace in traces)
    first_lanes = [lane + 1 for lane in own_lanes]
    start = np.concatenate([trace.start + shift for trace, shift in zip(traces, shifts, strict=True)])
    ranks = Ranks(
        tuple(
            Rank(
                each.number,
                each.file,
                _shift_trace(each.trace, clock, start[at : at + len(each.trace)]),
                at,
                lane,
                clock,
            )
            for each, clock, at, lane in zip(ordered, clocks, first, first_lanes, strict=True)
        ),
        meetings,
        tuple(lost),
    )
    shifted = [rank.trace for rank in ranks.all]
    lanes, rows = _merge_lanes(ranks)
    names, name = _merge_names([(trace.names, trace.name) for trace in traces])
    categories, category = _merge_names([(trace.categories, trace.category) for trace in traces])

    def joined(column: str, offsets: Sequence[int], missing: bool = False) -> Any:
        """A column of numbers of something; `missing`: -1 stays -1."""
        parts: list[Array] = []
        for trace, offset in zip(traces, offsets, strict=True):
            values: Any = getattr(trace, column)
            moved = values + values.dtype.type(offset)
            parts.append(np.where(values < 0, values, moved) if missing else moved)
        return np.concatenate(parts)

    nothing = [0] * len(traces)
    row_order, row_first = _merge_row_order(traces, first, [lane.row_base for lane in lanes], rows, own_lanes)
    return Trace(
        label=label,
        format=traces[0].format,
        size=sum(trace.size for trace in traces),
        header=traces[0].header,
        start=start,
        duration=joined("duration", nothing),
        name=name.astype(np.int32),
        category=category.astype(np.uint16),
        kind=joined("kind", nothing),
        lane=joined("lane", first_lanes),
        row=joined("row", nothing),
        parent=joined("parent", first, missing=True),
        self_duration=joined("self_duration", nothing),
        correlation=joined("correlation", [k << _RANK_SHIFT_BITS for k in range(len(traces))], missing=True),
        ordinal=joined("ordinal", _compute_offsets(trace.counts.events for trace in traces)),
        names=names,
        categories=categories,
        lanes=lanes,
        counters=[
            replace(counter, lane=counter.lane + rank.first_lane)
            for rank in ranks.all
            for counter in rank.trace.counters
        ],
        steps=ranks.all[0].steps,
        span=(min(trace.span[0] for trace in shifted), max(trace.span[1] for trace in shifted)),
        links=_merge_links([trace.links for trace in traces], first),
        args=_merge_args(traces, first),
        counts=_merge_counts([trace.counts for trace in traces]),
        row_order=row_order,
        row_first=row_first,
        text=_merge_texts(traces),
        memory=_merge_memory(ranks),
        problems=_merge_problems(ranks, [_list_group_names(each.collectives) for each in ordered]),
        devices=traces[0].devices,
        world_size=traces[0].world_size,
        ranks=ranks,
    )


def _compute_offsets(sizes: Iterable[int]) -> list[int]:
    """How much lies before each."""
    return list(accumulate(sizes, initial=0))[:-1]


def _shift_trace(trace: Trace, clock: Clock, start: I64) -> Trace:
    """A rank's trace on the common clock; `start` is its part of the whole's column."""
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
        stored_index=None,  # made anew where it is asked for: its starts are the rank's own
    )


def _merge_lanes(ranks: Ranks) -> tuple[list[Lane], int]:
    """A line for each rank and its lanes beneath; and how many rows they have together."""
    lanes: list[Lane] = []
    below = 0
    for rank in ranks.all:
        lanes.append(
            Lane(Role.RANK, "", "", rank.label, rank.label, rank.first, rank.first, 1, below, rank=rank.number)
        )
        lanes += [_shift_lane(lane, rank, below + 1) for lane in rank.trace.lanes]
        below += 1 + rank.trace.total_rows
    return lanes, below


def _shift_lane(lane: Lane, rank: Rank, below: int) -> Lane:
    return replace(
        lane,
        group=f"{rank.label} {lane.group}",
        first=lane.first + rank.first,
        last=lane.last + rank.first,
        row_base=lane.row_base + below,
        rank=rank.number,
    )


def _merge_row_order(
    traces: Sequence[Trace], first: list[int], bases: list[int], rows: int, own_lanes: list[int]
) -> tuple[I32, I64]:
    """As `Trace.row_order` and `row_first`, with a row without events for each rank's own line."""
    order = np.concatenate([trace.row_order + np.int32(before) for trace, before in zip(traces, first, strict=True)])
    bounds = np.zeros(rows + 1, np.int64)
    for trace, before, lane in zip(traces, first, own_lanes, strict=True):
        base = bases[lane]
        bounds[base] = before
        bounds[base + 1 : base + 1 + len(trace.row_first)] = trace.row_first + before
    return order, bounds


def _merge_names(parts: Sequence[tuple[list[str], Array]]) -> tuple[list[str], Array]:
    """All texts once, and the columns that number them."""
    number: dict[str, int] = {}
    columns = []
    for texts, column in parts:
        codes = np.array([number.setdefault(text, len(number)) for text in texts] or [0], np.int32)
        columns.append(codes[column])
    return list(number), np.concatenate(columns)


def _merge_links(links: Sequence[Links], first: list[int]) -> Links:
    def joined(column: str) -> I32:
        parts = [np.asarray(getattr(one, column)) for one in links]
        moved = [np.where(part < 0, part, part + before) for part, before in zip(parts, first, strict=True)]
        return np.concatenate(moved).astype(np.int32)

    order = _compute_offsets(len(one.work_order) for one in links)
    work_first = [one.work_first[:-1] + before for one, before in zip(links, order, strict=True)]
    return Links(
        launch_of=joined("launch_of"),
        work_order=joined("work_order"),
        work_first=np.concatenate([*work_first, [sum(len(one.work_order) for one in links)]]).astype(np.int32),
        forward=joined("forward"),
        backward=joined("backward"),
        launches=sum(one.launches for one in links),
        gpu_events=sum(one.gpu_events for one in links),
        linked_gpu_events=sum(one.linked_gpu_events for one in links),
    )


def _merge_args(traces: Sequence[Trace], first: list[int]) -> dict[str, SparseColumn]:
    found: dict[str, SparseColumn] = {}
    ordinals = _compute_offsets(trace.counts.events for trace in traces)
    for key in dict.fromkeys(key for trace in traces for key in trace.args):
        events, values = [], []
        for k, trace in enumerate(traces):
            arg = trace.args.get(key)
            if arg is None:
                continue
            events.append(arg.events + np.int32(first[k]))
            offset = k << _RANK_SHIFT_BITS if key in _PROCESS_LOCAL_ARGS else ordinals[k] if key == "end_ordinal" else 0
            own: Any = arg.values
            values.append(np.where(own < 0, own, own + offset) if offset else own)
        found[key] = SparseColumn(np.concatenate(events).astype(np.int32), np.concatenate(values))
    return found


def _merge_counts(counts: Sequence[EntryCounts]) -> EntryCounts:
    def added(tables: Iterable[dict[str, int]]) -> dict[str, int]:
        total: dict[str, int] = {}
        for table in tables:
            for key, count in table.items():
                total[key] = total.get(key, 0) + count
        return total

    return EntryCounts(
        events=sum(one.events for one in counts),
        drawn=sum(one.drawn for one in counts),
        metadata=sum(one.metadata for one in counts),
        flows=sum(one.flows for one in counts),
        not_drawn=added(one.not_drawn for one in counts),
        by_category=added(one.by_category for one in counts),
    )


def _merge_texts(traces: Sequence[Trace]) -> RankTexts:
    before = _compute_offsets(trace.counts.events for trace in traces)
    return RankTexts([trace.text for trace in traces], np.array(before, np.int64))


def _merge_memory(ranks: Ranks) -> MemoryEvents | None:
    """All `[memory]` instants by time."""
    ordinals = _compute_offsets(rank.trace.counts.events for rank in ranks.all)
    told = [
        (rank, rank.trace.memory, before)
        for rank, before in zip(ranks.all, ordinals, strict=True)
        if rank.trace.memory is not None
    ]
    if not told:
        return None
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(memory, name) for _, memory, _ in told])
        for name in ("time", "device_type", "device_id", "bytes", "allocated", "reserved", "address")
    }
    columns["lane"] = np.concatenate([np.where(m.lane < 0, m.lane, m.lane + r.first_lane) for r, m, _ in told])
    columns["ordinal"] = np.concatenate([memory.ordinal + before for _, memory, before in told])
    order = np.argsort(columns["time"], kind="stable")
    small = ("lane", "ordinal")
    return MemoryEvents(
        **{key: column[order].astype(np.int32 if key in small else np.int64) for key, column in columns.items()}
    )


def _list_group_names(found: Collectives) -> list[str]:
    """What a rank calls its process groups."""
    return [found.texts[code] for code in np.unique(found.group).tolist()]


def _merge_problems(ranks: Ranks, groups: Sequence[Sequence[str]]) -> list[Problem]:
    """Ranks that are missing, or of another run; then the same of all ranks together, with one example."""
    tally = ProblemTally()
    for lost in ranks.lost:
        tally.add(LOST_RANK, str(lost))
    for line in find_mismatched_runs(ranks.all, ranks.matched_collectives.events, groups):
        tally.add(UNRELATED_RANKS, line)
    for rank in ranks.all:
        for problem in rank.trace.problems:
            tally.add(problem.kind, f"{rank.label}: {problem.example}", problem.count)
    return tally.problems()
