"""Build sheets of the GPU work: kernels, copies and fills, collectives, and which rank came late to them."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np

from torchprof_tui.analysis.collectives.communication_records import ELEMENT_BYTES, compute_message_bytes
from torchprof_tui.analysis.collectives.communication_waiting import Arrivals
from torchprof_tui.analysis.kernel.kernel_summary import compute_duration_statistics
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.table.sheets import (
    CALLS_FIELD,
    NAME_FIELD,
    ArrivalTotals,
    Field,
    RankArrivals,
    Sheet,
    Unit,
    WorkTotals,
    compute_extremes,
    group_events,
    ratio,
)
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool, is_in
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import ReportChunks, read_entries

_TIME_FIELDS = (
    Field("total", "total", Unit.NS),
    Field("share", "%", Unit.SHARE),
    Field("avg", "avg", Unit.NS),
    Field("median", "median", Unit.NS),
    Field("min", "min", Unit.NS),
    Field("max", "max", Unit.NS),
)
_BYTE_FIELDS = (
    Field("bytes", "bytes", Unit.BYTES),
    Field("gb_s", "GB/s", Unit.GB_S),
    Field("max_gb_s", "best", Unit.GB_S),
)


def build_kernels_sheet(trace: Trace, event_mask: Bool | None = None) -> Sheet:
    """Build the sheet of kernels and collectives by name, with their class. `event_mask` bool[n] restricts it."""
    events = _select_events(trace, (Kind.KERNEL, Kind.COLLECTIVE), event_mask)
    name_ids, row = np.unique(trace.name[events], return_inverse=True)
    names = [trace.names[name_id] for name_id in name_ids.tolist()]
    decoded = [decode_kernel_name(name) for name in names]
    texts = {"name": names, "class": [kernel.kernel_class.label for kernel in decoded]}
    return _build_sheet("Kernels", trace, events, row, texts, (NAME_FIELD, Field("class", "class", Unit.TEXT)))


def build_copies_sheet(trace: Trace, event_mask: Bool | None = None) -> Sheet:
    """Build the sheet of copies and fills by name, with bytes and GB/s (overall, and of the fastest single one)."""
    events = _select_events(trace, (Kind.COPY, Kind.MEMSET), event_mask)
    name_ids, row = np.unique(trace.name[events], return_inverse=True)
    moved = np.maximum(trace.numbers_at("bytes", events, 0), 0)
    texts = {"name": [trace.names[name_id] for name_id in name_ids.tolist()]}
    return _build_sheet("Copies", trace, events, row, texts, (NAME_FIELD,), moved)


def build_collectives_sheet(trace: Trace, event_mask: Bool | None = None, report: ReportChunks | None = None) -> Sheet:
    """Build the sheet of collectives by operation, type and group where recorded, else by kernel.

    Bytes are those of the larger message; GB/s are bytes over the kernel's time, including its wait for other ranks.
    The args are read from the file: raises OSError, LookupError where it is gone or changed.
    """
    events = _select_events(trace, (Kind.COLLECTIVE,), event_mask)
    moved = np.zeros(len(events), np.int64)
    keys: dict[tuple[str, str, str], int] = {}
    row = np.zeros(len(events), np.int64)
    for index, entry in read_entries(trace, events, report):
        entry_args = entry.get("args")
        args = entry_args if isinstance(entry_args, dict) else {}
        name = str(args.get("Collective name") or trace.names[trace.name[events[index]]])
        group = str(args.get("Process Group Description") or args.get("Process Group Name") or "")
        size = args.get("Group size")
        if group and isinstance(size, int):
            group = f"{group} × {size}"
        elif not group and size is not None:
            group = str(size)
        key = (name, str(args.get("dtype") or ""), group)
        row[index] = keys.setdefault(key, len(keys))
        moved[index] = compute_message_bytes(args)
    fields = (NAME_FIELD, Field("dtype", "type", Unit.TEXT), Field("group", "group", Unit.TEXT))
    texts = {field.key: [key[column] for key in keys] for column, field in enumerate(fields)}
    return _build_sheet("Collectives", trace, events, row, texts, fields, moved)


def _select_events(trace: Trace, kinds: tuple[Kind, ...], event_mask: Bool | None) -> I32:
    mask = is_in(trace.kind, [int(kind) for kind in kinds])
    return np.flatnonzero(mask if event_mask is None else mask & event_mask).astype(np.int32)


def _build_sheet(
    title: str,
    trace: Trace,
    events: I32,
    row: I64,
    texts: dict[str, list[str]],
    fields: tuple[Field, ...],
    moved: I64 | None = None,
) -> Sheet:
    row_count = len(texts["name"])
    duration = np.asarray(trace.duration[events])
    members, first, sums = group_events(row, row_count, events)
    total = sums(duration)
    least, greatest = compute_extremes(row, row_count, duration)
    medians = [
        compute_duration_statistics(trace.duration[members[begin:end]]).median
        for begin, end in pairwise(first.tolist())
    ]
    columns: dict[str, list[str] | I64 | F64] = {
        **texts,
        "calls": np.diff(first),
        "total": total,
        "share": ratio(total, int(total.sum())),
        "avg": ratio(total, np.diff(first)),
        "median": np.array(medians, np.float64),
        "min": least,
        "max": greatest,
    }
    fields = (*fields, CALLS_FIELD, *_TIME_FIELDS)
    if moved is not None:
        has_bytes = moved > 0
        best_rate = np.zeros(row_count)
        np.maximum.at(best_rate, row[has_bytes], np.nan_to_num(ratio(moved[has_bytes], duration[has_bytes])))
        total_bytes, timed_duration = sums(moved), sums(np.where(has_bytes, duration, 0))
        fields = (*fields, *_BYTE_FIELDS)
        columns |= {
            "bytes": np.where(total_bytes > 0, total_bytes, np.nan),
            "gb_s": ratio(total_bytes, timed_duration),  # bytes per ns = GB per second
            "max_gb_s": np.where(best_rate > 0, best_rate, np.nan),
        }
    moved_bytes = int(moved.sum()) if moved is not None and moved.any() else None
    sums_of_all = WorkTotals(len(events), int(total.sum()), moved_bytes)
    return Sheet(
        title, fields, dict(columns), members, first, sums=sums_of_all, gpu_mask=np.ones(len(first) - 1, np.bool_)
    )


ARRIVAL_FIELDS = (
    NAME_FIELD,
    Field("step", "step", Unit.TEXT),
    Field("start", "first at", Unit.NS),
    Field("last_rank", "last rank", Unit.COUNT),
    Field("late_by", "late by", Unit.NS),
    Field("longest_wait", "longest wait", Unit.NS),
    Field("waited", "all waits", Unit.NS),
    Field("after", "then took", Unit.NS),
    Field("bytes", "bytes", Unit.BYTES),
    Field("dtype", "type", Unit.TEXT),
    Field("group", "group", Unit.TEXT),
)


RANKS_FIELD = Field("ranks", "ranks", Unit.TEXT)
"""Shown after the last rank where ranks of a group are missing: waits are then those of the present ranks alone."""

_RANKS_INDEX = 4

_RANK_LIST = re.compile(r"\[([0-9][0-9, ]*)\]$")
"""The list of a group's ranks at the end of its name; long lists are abbreviated with dots and do not match."""


def build_arrivals_sheet(arrivals: Arrivals) -> Sheet:
    """Build one row per collective, in the order in which they began. Members are its kernels, numbered over all ranks.

    `late_by`: after the last of the other ranks; `waited`: by all ranks together; `after`: how long it took once all
    ranks had arrived.
    """
    matched = arrivals.ranks.matched_collectives
    collectives = arrivals.collective_index
    rank_offsets = np.array([rank.first for rank in arrivals.ranks.all], np.int64)
    events = np.where(arrivals.present, matched.events[collectives] + rank_offsets, -1)
    dtypes = [matched.texts[code] for code in matched.dtype[collectives].tolist()]
    message_bytes = matched.elements[collectives] * np.array(
        [ELEMENT_BYTES.get(dtype, 0) for dtype in dtypes], np.int64
    )
    steps = matched.step[collectives].tolist()
    columns = {
        "name": [matched.texts[code] for code in matched.operation[collectives].tolist()],
        "step": [f"#{step}" if step >= 0 else "" for step in steps],
        "group": [matched.texts[code] for code in matched.group[collectives].tolist()],
        "dtype": dtypes,
        "bytes": np.where(message_bytes > 0, message_bytes.astype(np.float64), np.nan),
        "start": arrivals.first_start,
        "last_rank": np.array([rank.number for rank in arrivals.ranks.all], np.int64)[arrivals.last_rank],
        "late_by": arrivals.late_by,
        "longest_wait": arrivals.spread,
        "waited": arrivals.wait_times.sum(axis=1),
        "after": np.maximum(
            np.where(arrivals.present, arrivals.end, 0).max(axis=1, initial=0) - arrivals.last_start, 0
        ),
    }
    members = events[events >= 0].astype(np.int32)
    first = np.concatenate([[0], np.cumsum(arrivals.present.sum(axis=1))]).astype(np.int64)
    present_ranks, expected_ranks = arrivals.present.sum(axis=1), _expected_ranks(arrivals)
    fields: tuple[Field, ...] = ARRIVAL_FIELDS
    if (present_ranks < expected_ranks).any():
        fields = (*ARRIVAL_FIELDS[:_RANKS_INDEX], RANKS_FIELD, *ARRIVAL_FIELDS[_RANKS_INDEX:])
        columns["ranks"] = [
            f"{present} of {expected}"
            for present, expected in zip(present_ranks.tolist(), expected_ranks.tolist(), strict=True)
        ]
    totals = measure_totals(arrivals)
    lines = [
        f"{rank.label}: took part in none of these collectives; waits are computed without it"
        if rank.waited is None
        else f"{rank.label}: last {rank.last} of {rank.collectives}, waited {format_duration(rank.waited)}"
        for rank in totals.ranks
    ]
    not_matched = {
        "without a match on another rank": totals.unmatched,
        "launched before the recording, left out": totals.before_recording,
        "missing on a rank of the group": totals.incomplete,
        "with another type or size on some ranks": totals.mismatched,
    }
    lines += [f"{count} {text}" for text, count in not_matched.items() if count]
    return Sheet("Arrivals", fields, dict(columns), members, first, tuple(lines), totals)


def _expected_ranks(arrivals: Arrivals) -> I64:
    """Return the number of ranks in each collective's group: int64[m].

    As many as its group lists, at least those that took part or are known to miss it. All ranks of the run where no
    group was recorded.
    """
    matched, index = arrivals.ranks.matched_collectives, arrivals.collective_index
    known_ranks = arrivals.present.sum(axis=1) + matched.missing_ranks[index]
    run_size = max(len(arrivals.ranks), arrivals.ranks.all[0].trace.world_size or 0)
    group_sizes = [0]
    for text in matched.texts:
        ranks = _RANK_LIST.search(text)
        group_sizes.append(ranks[1].count(",") + 1 if ranks else 0 if text else run_size)
    expected: I64 = np.maximum(known_ranks, np.array(group_sizes[1:] or [0], np.int64)[matched.group[index]])
    return expected


def format_rank_arrivals(arrivals: Arrivals, row: int) -> tuple[str, ...]:
    """Format when each rank arrived at one collective, first one first."""
    order = np.argsort(np.where(arrivals.present[row], arrivals.start[row], np.iinfo(np.int64).max), kind="stable")
    lines = []
    for index in order[: int(arrivals.present[row].sum())].tolist():
        wait = int(arrivals.wait_times[row, index])
        wait_text = f"waited {format_duration(wait)}" if wait else "last, so the waiting ended"
        time = format_time(int(arrivals.start[row, index]))
        lines.append(f"{arrivals.ranks.all[index].label} arrived at {time}, {wait_text}")
    return tuple(lines)


def measure_totals(arrivals: Arrivals) -> ArrivalTotals:
    """Measure for each rank how often it came last and how long it waited, and count what was not matched."""
    matched = arrivals.ranks.matched_collectives
    last_count = np.bincount(arrivals.last_rank, minlength=len(arrivals.ranks))
    ranks = []
    for rank_index, rank in enumerate(arrivals.ranks.all):
        present = int(arrivals.present[:, rank_index].sum())
        is_absent = bool(len(arrivals)) and not present
        waited = None if is_absent else int(arrivals.wait_intervals(rank_index).total)
        ranks.append(RankArrivals(rank.number, rank.label, present, int(last_count[rank_index]), waited))
    return ArrivalTotals(
        tuple(ranks),
        unmatched=int(matched.unmatched.sum()),
        before_recording=int(matched.before_recording.sum()),
        incomplete=int(np.count_nonzero(matched.missing_ranks)),
        mismatched=int(np.count_nonzero(matched.is_mismatched)),
    )
