"""Check whether the ranks that were opened together may be of different runs.

Files do not record their run. Ranks of one run share collectives. Ranks without a common one may still be of one run (a
recording was cut, or they communicate with other ranks only), so more is required: that they were recorded at different
times, or describe their default process group differently.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.ranks import AlignmentMethod, Rank

_DEFAULT_GROUP_PREFIX = "0 "
"""Prefix of a group name from `collective_matching.py` if it is the group of all ranks."""

_COMPARABLE_CLOCKS = frozenset((AlignmentMethod.BASE, AlignmentMethod.WALL))


def find_mismatched_runs(ranks: Sequence[Rank], events: I32, groups: Sequence[Sequence[str]]) -> list[str]:
    """Find the ranks that seem to be of another run than the first ones: a line for each that says why.

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
        with_other_group = [k for k in unconnected if _has_other_default_group(groups[k], groups[index])]
        first = ranks[unconnected[0]].label
        if len(gaps) == len(unconnected):
            mismatches.append(
                f"{rank.label} shares no collective with {first}, and was recorded {format_duration(min(gaps))} apart"
            )
        elif len(with_other_group) == len(unconnected):
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


def _has_other_default_group(names: Sequence[str], other_names: Sequence[str]) -> bool:
    """Tell whether both name their default group, and differently."""
    default = {name for name in names if name.startswith(_DEFAULT_GROUP_PREFIX)}
    other_default = {name for name in other_names if name.startswith(_DEFAULT_GROUP_PREFIX)}
    return bool(default and other_default) and default.isdisjoint(other_default)
