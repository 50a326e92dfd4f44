"""The collectives of several ranks as a sheet: who came late, by how much, how long the others waited."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.collectives.late_arrivals import Arrivals
from torchprof_tui.analysis.table.gpu_sheets import ELEMENT_BYTES
from torchprof_tui.analysis.table.sheets import NAME, Field, Sheet, Unit
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration, format_time

FIELDS = (
    NAME,
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


RANKS = Field("ranks", "ranks", Unit.TEXT)
"""Behind the rank that came last, where not all of a group's ranks are there: waits are those of the others alone."""

_RANKS_AT = 4

_LISTED = re.compile(r"\[([0-9][0-9, ]*)\]$")
"""All ranks of a group, at the end of what it is called; long lists have dots in them."""


def arrivals_sheet(found: Arrivals) -> Sheet:
    """A row a collective, in the order in which they began. `late_by`: after the last of the others; `waited`: by all
    ranks together; `after`: how long it took once all were there. Members are its kernels, numbered over all ranks."""
    meetings = found.ranks.meetings
    chosen = found.meeting
    firsts = np.array([rank.first for rank in found.ranks.all], np.int64)
    events = np.where(found.present, meetings.events[chosen] + firsts, -1)
    dtypes = [meetings.texts[code] for code in meetings.dtype[chosen].tolist()]
    size = meetings.elements[chosen] * np.array([ELEMENT_BYTES.get(dtype, 0) for dtype in dtypes], np.int64)
    steps = meetings.step[chosen].tolist()
    columns = {
        "name": [meetings.texts[code] for code in meetings.operation[chosen].tolist()],
        "step": [f"#{step}" if step >= 0 else "" for step in steps],
        "group": [meetings.texts[code] for code in meetings.group[chosen].tolist()],
        "dtype": dtypes,
        "bytes": np.where(size > 0, size.astype(np.float64), np.nan),
        "start": found.first_start,
        "last_rank": np.array([rank.number for rank in found.ranks.all], np.int64)[found.last],
        "late_by": found.late_by,
        "longest_wait": found.spread,
        "waited": found.waits.sum(axis=1),
        "after": np.maximum(np.where(found.present, found.end, 0).max(axis=1, initial=0) - found.last_start, 0),
    }
    members = events[events >= 0].astype(np.int32)
    first = np.concatenate([[0], np.cumsum(found.present.sum(axis=1))]).astype(np.int64)
    came, of = found.present.sum(axis=1), _expected(found)
    fields: tuple[Field, ...] = FIELDS
    if (came < of).any():
        fields = (*FIELDS[:_RANKS_AT], RANKS, *FIELDS[_RANKS_AT:])
        columns["ranks"] = [f"{k} of {n}" for k, n in zip(came.tolist(), of.tolist(), strict=True)]
    return Sheet("Arrivals", fields, dict(columns), members, first, tuple(_totals(found)))


def _expected(found: Arrivals) -> I64:
    """int64[m]: of how many ranks each collective is: as many as its group lists, at least those that took part or are
    known to lack it. Where no group is told, all ranks of the run are meant."""
    meetings = found.ranks.meetings
    known = found.present.sum(axis=1) + meetings.lacking[found.meeting]
    everybody = max(len(found.ranks), found.ranks.all[0].trace.world_size or 0)
    listed = [_LISTED.search(text) for text in meetings.texts]
    size = [everybody if not text else 0 for text in meetings.texts]
    for code, members in enumerate(listed):
        if members is not None:
            size[code] = members[1].count(",") + 1
    expected: I64 = np.maximum(known, np.array(size or [0], np.int64)[meetings.group[found.meeting]])
    return expected


def row_lines(found: Arrivals, row: int) -> tuple[str, ...]:
    """When each rank came to one collective, the first one first."""
    order = np.argsort(np.where(found.present[row], found.start[row], np.iinfo(np.int64).max), kind="stable")
    lines = []
    for place in order[: int(found.present[row].sum())].tolist():
        wait = int(found.waits[row, place])
        waited = f"waited {format_duration(wait)}" if wait else "and nobody had to wait any more"
        lines.append(f"{found.ranks.all[place].label} came at {format_time(int(found.start[row, place]))}, {waited}")
    return tuple(lines)


def _totals(found: Arrivals) -> list[str]:
    """For each rank how often it came last and how long it waited; what was not joined."""
    lines = []
    last = np.bincount(found.last, minlength=len(found.ranks))
    for place, rank in enumerate(found.ranks.all):
        if len(found) and not found.present[:, place].any():
            lines.append(f"{rank.label}: came to none of these collectives; waits are told without it")
            continue
        waited = format_duration(found.waiting(place).total)
        lines.append(f"{rank.label}: last {int(last[place])} of {int(found.present[:, place].sum())}, waited {waited}")
    return [*lines, *unmatched(found)]


def unmatched(found: Arrivals) -> list[str]:
    """What is to be said of collectives that could not be joined, a line each; nothing where all could."""
    meetings = found.ranks.meetings
    lines = []
    alone, before = int(meetings.alone.sum()), int(meetings.before.sum())
    lacking, differ = int(np.count_nonzero(meetings.lacking)), int(np.count_nonzero(meetings.differ))
    if alone:
        lines.append(f"{alone} with no counterpart on another rank")
    if before:
        lines.append(f"{before} launched before the recording, left out")
    if lacking:
        lines.append(f"{lacking} that a rank of the group lacks")
    if differ:
        lines.append(f"{differ} of which the ranks say another type or size")
    return lines
