"""Whether ranks that were opened together may be of different runs: files alone do not say of which run they are.

What joins ranks is a collective that they share. Ranks without one may still be of one run (one was cut, or they talk
to others alone), so more than that must speak against it: that they were not recorded at one time, or describe their
default process group in different words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.ranks import AlignmentMethod, Rank

_DEFAULT_GROUP_PREFIX = "0 "
"""How what is called by `collectives.py` begins, where it is the group of all ranks."""

_COMPARABLE_CLOCKS = frozenset((AlignmentMethod.BASE, AlignmentMethod.WALL))


def find_mismatched_runs(ranks: Sequence[Rank], events: I32, groups: Sequence[Sequence[str]]) -> list[str]:
    """A line for each rank that seems not to belong to the first ones, why; nothing where all may be of one run.

    `events` [m, r]: of `Meetings`; `groups` [r]: what each rank calls its process groups.
    """
    joined = _group_ranks(events, len(ranks))
    found = []
    for place, rank in enumerate(ranks):
        others = [k for k in range(place) if joined[k] != joined[place]]
        if not others or not len(rank.trace):
            continue
        apart = [gap for k in others if (gap := _compute_recording_gap(ranks[k], rank)) > 0]
        named = [k for k in others if _has_other_default_group(groups[k], groups[place])]
        if joined[place] != place:  # told of the first of those that share collectives
            continue
        first = ranks[others[0]].label
        if len(apart) == len(others):
            found.append(
                f"{rank.label} shares no collective with {first}, and was recorded {format_duration(min(apart))} apart"
            )
        elif len(named) == len(others):
            found.append(f"{rank.label} shares no collective with {first}, and calls its default process group another")
    return found


def _group_ranks(events: I32, count: int) -> list[int]:
    """For each rank the first one that collectives join it with, itself where none does."""
    first = list(range(count))
    for row in np.unique(np.packbits(events >= 0, axis=1), axis=0):
        mine = np.flatnonzero(np.unpackbits(row, count=count)).tolist()
        together = {first[k] for k in mine}
        if together:
            least = min(together)
            first = [least if each in together else each for each in first]
    return first


def _compute_recording_gap(one: Rank, other: Rank) -> int:
    """ns between the end of one recording and the beginning of the other, where their clocks can be compared."""
    if not len(one.trace) or one.clock.method not in _COMPARABLE_CLOCKS or other.clock.method not in _COMPARABLE_CLOCKS:
        return 0
    (a, b), (c, d) = one.trace.span, other.trace.span
    return max(c - b, a - d)


def _has_other_default_group(one: Sequence[str], other: Sequence[str]) -> bool:
    mine = {text for text in one if text.startswith(_DEFAULT_GROUP_PREFIX)}
    theirs = {text for text in other if text.startswith(_DEFAULT_GROUP_PREFIX)}
    return bool(mine and theirs) and mine.isdisjoint(theirs)
