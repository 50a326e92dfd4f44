"""Group the runs that repeat the same work, and compare the repetitions of a group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.repetition.gram_links import U64, mix_values
from torchprof_tui.analysis.repetition.nested_runs import NestedRun
from torchprof_tui.trace.core.arrays import I32, I64

MIN_SHARED = 0.7
"""Share of the values that two runs must have in common to be of one group, counted with their number."""

MAX_VARIANTS = 256
"""Variants of a group that are compared with the shown one by name, the most frequent ones."""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs of the same work inside the same group. `parent`: index of that group, -1 for none. `level`: from 1."""

    parent: int
    level: int
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NameDifference:
    """How many repetitions have more, and how many fewer, of a value than the shown repetition has."""

    value: int
    more: int
    fewer: int


def group_runs(values: I64, runs: list[NestedRun]) -> list[RunGroup]:
    """Group runs by parent group and content, by level, then by first start. `values` int64[n] are small numbers."""
    size = int(values.max()) + 1 if len(values) else 0
    members: list[list[int]] = []
    counts: list[I64] = []
    parents: list[int] = []
    group_of: list[int] = []
    known: dict[tuple[int, bytes], int] = {}
    for index, run in enumerate(runs):
        parent = group_of[run.parent] if run.parent >= 0 else -1
        middle = min(1, len(run) - 1)
        content = values[run.bounds[middle] : run.bounds[middle + 1]]
        key = (parent, np.sort(content).tobytes())
        group = known.get(key, -1)
        if group < 0:
            count = np.bincount(content, minlength=size)
            group = next(
                (other for other, at in enumerate(parents) if at == parent and _is_alike(counts[other], count)), -1
            )
            if group < 0:
                group = len(members)
                members.append([])
                counts.append(count)
                parents.append(parent)
            known[key] = group
        members[group].append(index)
        group_of.append(group)
    return _sort_groups(runs, members, parents)


def _sort_groups(runs: list[NestedRun], members: list[list[int]], parents: list[int]) -> list[RunGroup]:
    levels = [runs[group[0]].depth + 1 for group in members]
    order = sorted(range(len(members)), key=lambda group: (levels[group], runs[members[group][0]].start))
    new_index = {group: index for index, group in enumerate(order)}
    return [RunGroup(new_index.get(parents[group], -1), levels[group], tuple(members[group])) for group in order]


def _is_alike(left: I64, right: I64) -> bool:
    return bool(np.minimum(left, right).sum() >= MIN_SHARED * np.maximum(left, right).sum())


def find_variants(values: I64, first: I64, last: I64) -> I32:
    """Number repetitions by content, in any order within each: int32[r], 0 for the most frequent content.

    `first`, `last` int64[r]: bounds in `values`. Of equally frequent ones the earlier has the lower number.
    """
    total: U64 = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix_values(values), dtype=np.uint64)])
    _, index, inverse, count = np.unique(
        total[last] - total[first], return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(index), np.int32)
    rank[np.lexsort((index, -count))] = np.arange(len(index))
    variant: I32 = rank[inverse.ravel()]
    return variant


def list_differences(values: I64, first: I64, last: I64, variant: I32) -> list[NameDifference]:
    """List by which values repetitions differ from variant 0, those of most repetitions first."""
    size = int(values.max()) + 1 if len(values) else 0
    more, fewer = np.zeros(size, np.int64), np.zeros(size, np.int64)
    shown: I64 | None = None
    _, index, count = np.unique(variant, return_index=True, return_counts=True)
    for place, repeats in zip(index[: MAX_VARIANTS + 1].tolist(), count[: MAX_VARIANTS + 1].tolist(), strict=True):
        found = np.bincount(values[first[place] : last[place]], minlength=size)
        if shown is None:
            shown = found
        more += repeats * (found > shown)
        fewer += repeats * (found < shown)
    changed = np.flatnonzero(more + fewer)
    changed = changed[np.argsort(-(more + fewer)[changed], kind="stable")]
    return [NameDifference(int(value), int(more[value]), int(fewer[value])) for value in changed.tolist()]
