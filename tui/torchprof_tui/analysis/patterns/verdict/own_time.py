"""Give each pattern the time that it alone explains, so that no time is counted twice when patterns are added up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from torchprof_tui.analysis.patterns.verdict.tree_model import TimePart, TimeTree


@dataclass(frozen=True, slots=True)
class OwnTime:
    """The time that one pattern alone explains. `time`: ns, summed over the devices; `share` of the scope, 0..1.

    `within`: the parts of the tree in which it lies, each without its own parts and with the pattern's `time` in it,
    largest first; they sum to `time`.
    """

    time: int
    share: float
    within: tuple[TimePart, ...]


NO_TIME = OwnTime(0, 0.0, ())


def find_own_times(tree: TimeTree, pattern_ids: Collection[str]) -> dict[str, OwnTime]:
    """Find the own time of each of these patterns that the tree gives any to, by id."""
    found: dict[str, list[TimePart]] = {}
    for part in tree.parts:
        time_by_id: dict[str, int] = {}
        _add_pattern_times(part, frozenset(pattern_ids), time_by_id)
        for pattern_id, time in time_by_id.items():
            found.setdefault(pattern_id, []).append(replace(part, time=time, parts=()))
    own_times = {}
    for pattern_id, within in found.items():
        time = sum(part.time for part in within)
        share = time / tree.total if tree.total else 0.0
        own_times[pattern_id] = OwnTime(time, share, tuple(sorted(within, key=lambda part: -part.time)))
    return own_times


def _add_pattern_times(part: TimePart, pattern_ids: Collection[str], time_by_id: dict[str, int]) -> None:
    """Add up the time of the patterns inside a part, at any depth (GPU work is divided into classes first)."""
    for inner in part.parts:
        if inner.id in pattern_ids:
            time_by_id[inner.id] = time_by_id.get(inner.id, 0) + inner.time
        _add_pattern_times(inner, pattern_ids, time_by_id)
