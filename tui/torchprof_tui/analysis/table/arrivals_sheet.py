"""The collectives of several ranks as a sheet: who came late, by how much, how long the others waited."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.collectives.late_arrivals import Arrivals
from torchprof_tui.analysis.table.gpu_sheets import ELEMENT_BYTES
from torchprof_tui.analysis.table.sheets import NAME_FIELD, Field, Sheet, Unit
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration, format_time

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
"""Behind the rank that came last, where not all of a group's ranks are there: waits are those of the others alone."""

_RANKS_INDEX = 4

_RANK_LIST = re.compile(r"\[([0-9][0-9, ]*)\]$")
"""All ranks of a group, at the end of what it is called; long lists have dots in them."""


def build_arrivals_sheet(arrivals: Arrivals) -> Sheet:
    """A row a collective, in the order in which they began. `late_by`: after the last of the others; `waited`: by all
    ranks together; `after`: how long it took once all were there. Members are its kernels, numbered over all ranks."""
    meetings = arrivals.ranks.matched_collectives
    chosen = arrivals.collective_index
    firsts = np.array([rank.first for rank in arrivals.ranks.all], np.int64)
    events = np.where(arrivals.present, meetings.events[chosen] + firsts, -1)
    dtypes = [meetings.texts[code] for code in meetings.dtype[chosen].tolist()]
    size = meetings.elements[chosen] * np.array([ELEMENT_BYTES.get(dtype, 0) for dtype in dtypes], np.int64)
    steps = meetings.step[chosen].tolist()
    columns = {
        "name": [meetings.texts[code] for code in meetings.operation[chosen].tolist()],
        "step": [f"#{step}" if step >= 0 else "" for step in steps],
        "group": [meetings.texts[code] for code in meetings.group[chosen].tolist()],
        "dtype": dtypes,
        "bytes": np.where(size > 0, size.astype(np.float64), np.nan),
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
    came, of = arrivals.present.sum(axis=1), _expected_ranks(arrivals)
    fields: tuple[Field, ...] = ARRIVAL_FIELDS
    if (came < of).any():
        fields = (*ARRIVAL_FIELDS[:_RANKS_INDEX], RANKS_FIELD, *ARRIVAL_FIELDS[_RANKS_INDEX:])
        columns["ranks"] = [f"{k} of {n}" for k, n in zip(came.tolist(), of.tolist(), strict=True)]
    return Sheet("Arrivals", fields, dict(columns), members, first, tuple(_format_totals(arrivals)))


def _expected_ranks(found: Arrivals) -> I64:
    """int64[m]: of how many ranks each collective is: as many as its group lists, at least those that took part or are
    known to lack it. Where no group is told, all ranks of the run are meant."""
    meetings = found.ranks.matched_collectives
    known = found.present.sum(axis=1) + meetings.missing_ranks[found.collective_index]
    everybody = max(len(found.ranks), found.ranks.all[0].trace.world_size or 0)
    listed = [_RANK_LIST.search(text) for text in meetings.texts]
    size = [everybody if not text else 0 for text in meetings.texts]
    for code, members in enumerate(listed):
        if members is not None:
            size[code] = members[1].count(",") + 1
    expected: I64 = np.maximum(known, np.array(size or [0], np.int64)[meetings.group[found.collective_index]])
    return expected


def format_rank_arrivals(arrivals: Arrivals, row: int) -> tuple[str, ...]:
    """When each rank came to one collective, the first one first."""
    order = np.argsort(np.where(arrivals.present[row], arrivals.start[row], np.iinfo(np.int64).max), kind="stable")
    lines = []
    for place in order[: int(arrivals.present[row].sum())].tolist():
        wait = int(arrivals.wait_times[row, place])
        waited = f"waited {format_duration(wait)}" if wait else "and nobody had to wait any more"
        lines.append(
            f"{arrivals.ranks.all[place].label} came at {format_time(int(arrivals.start[row, place]))}, {waited}"
        )
    return tuple(lines)


def _format_totals(found: Arrivals) -> list[str]:
    """For each rank how often it came last and how long it waited; what was not joined."""
    lines = []
    last = np.bincount(found.last_rank, minlength=len(found.ranks))
    for place, rank in enumerate(found.ranks.all):
        if len(found) and not found.present[:, place].any():
            lines.append(f"{rank.label}: came to none of these collectives; waits are told without it")
            continue
        waited = format_duration(found.wait_intervals(place).total)
        lines.append(f"{rank.label}: last {int(last[place])} of {int(found.present[:, place].sum())}, waited {waited}")
    return [*lines, *format_unmatched(found)]


def format_unmatched(arrivals: Arrivals) -> list[str]:
    """What is to be said of collectives that could not be joined, a line each; nothing where all could."""
    meetings = arrivals.ranks.matched_collectives
    lines = []
    alone, before = int(meetings.unmatched.sum()), int(meetings.before_recording.sum())
    lacking, differ = int(np.count_nonzero(meetings.missing_ranks)), int(np.count_nonzero(meetings.is_mismatched))
    if alone:
        lines.append(f"{alone} with no counterpart on another rank")
    if before:
        lines.append(f"{before} launched before the recording, left out")
    if lacking:
        lines.append(f"{lacking} that a rank of the group lacks")
    if differ:
        lines.append(f"{differ} of which the ranks say another type or size")
    return lines
