"""Match the collectives of all ranks; find the rank that came last to each, and how long the others waited.

No rank leaves a synchronizing collective before the last has entered, and all leave it together. So the rank whose part
is shortest came last, and every other waited for it by as much as its own part is longer: no clocks are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from torchprof_fleet.analysis.fleet import Fleet
from torchprof_tui.trace.core.arrays import F64, I64, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.communication_kernels import SYNCHRONIZING_OPERATIONS


def find_medians(group: I64, values: F64 | I64) -> tuple[I64, F64]:
    """Find the median value of each of m groups, ascending: their numbers int64[m], and the medians float64[m]."""
    order = np.lexsort((values, group))
    used, first = np.unique(group[order], return_index=True)
    if not len(used):
        return used, np.zeros(0)
    size = np.diff(np.append(first, len(order)))
    ordered = values[order]
    return used, (ordered[first + (size - 1) // 2] + ordered[first + size // 2]) / 2


@record(slots=False)
class MatchedSketches:
    """m collectives of at least two ranks each, in the order in which the job runs them, with k parts in all.

    Parts of collective i are `first[i]` to `first[i + 1]` of `rank` (index), `start`, `end` int64[k]. `step`: index
    into `Fleet.steps`, `group` and `operation`: indexes into `texts`, int64[m]. `bytes` int64[k]: as each rank has it.
    """

    fleet: Fleet
    first: I64
    step: I64
    group: I64
    operation: I64
    rank: I64
    start: I64
    end: I64
    bytes: I64
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.step)

    @cached_property
    def collective(self) -> I64:
        """int64[k]: the collective that each part is of."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    @cached_property
    def transfer(self) -> I64:
        """int64[m]: ns of the shortest part, in which nobody waits."""
        return _reduce(np.minimum, self.end - self.start, self.first)

    @cached_property
    def waits(self) -> I64:
        """int64[k]: ns that each part waited for the last rank."""
        waits: I64 = self.end - self.start - self.transfer[self.collective]
        return waits

    @cached_property
    def is_first(self) -> Bool:
        """bool[m]: whether it is the first of its group, which also waits for the ranks' recordings to begin."""
        _, index = np.unique(self.group, return_index=True)
        first = np.zeros(len(self), np.bool_)
        first[index] = True
        return first

    @cached_property
    def median_wait(self) -> F64:
        """float64[m]: ns that the median rank waited."""
        return find_medians(self.collective, self.waits)[1]

    @cached_property
    def lateness(self) -> F64:
        """float64[r, s]: ns by which each rank came later to collectives than the median rank, NaN without any."""
        late = np.maximum(self.median_wait[self.collective] - self.waits, 0.0)
        late[self.is_first[self.collective]] = 0.0
        shape = (len(self.fleet), len(self.fleet.steps))
        cell = self.rank * shape[1] + self.step[self.collective]
        total = np.bincount(cell, late, shape[0] * shape[1]).astype(np.float64)
        total[np.bincount(cell, minlength=shape[0] * shape[1]) == 0] = np.nan
        return total.reshape(shape)

    @cached_property
    def last_rank(self) -> I64:
        """int64[m]: index of the rank that came last; of several the lowest."""
        order = np.lexsort((self.rank, self.waits, self.collective))
        last: I64 = self.rank[order[self.first[:-1]]] if len(self) else np.zeros(0, np.int64)
        return last


def match_sketches(fleet: Fleet) -> MatchedSketches:
    """Match the synchronizing collectives of all ranks by group, step and order.

    A rank that has another number of them in a group and step than most is left out of these: its order is unknown.
    """
    texts: dict[str, int] = {}
    parts = [_gather_rank(fleet, index, texts) for index in range(len(fleet))]
    table = np.concatenate(parts, axis=0) if parts else np.zeros((0, 9), np.int64)
    names = list(texts)
    plain = [name.lower().replace("_", "") for name in names]
    is_synchronizing = np.array([any(word in name for word in SYNCHRONIZING_OPERATIONS) for name in plain] or [False])
    table = _drop_other_counts(table[is_synchronizing[table[:, 3]]])
    rank, step, group, operation, order, start, end, offset, size_bytes = table.T
    # By group, step, order and operation; the parts of one collective by rank.
    by_key = np.lexsort((rank, operation, order, group, step))
    key = np.stack([step, group, order, operation])[:, by_key]
    first = find_bounds(key)
    size = np.diff(first)
    kept = np.flatnonzero(size > 1)
    # In the order in which they begin, measured on each rank from the start of its step.
    median_begin = find_medians(np.repeat(np.arange(len(size)), size), offset[by_key])[1][kept]
    kept = kept[np.lexsort((kept, median_begin, key[0][first[kept]]))]
    at, bounds = first[kept], np.concatenate([[0], np.cumsum(size[kept])]).astype(np.int64)
    rows = by_key[np.repeat(at - bounds[:-1], size[kept]) + np.arange(bounds[-1])]
    return MatchedSketches(
        fleet,
        bounds,
        key[0][at],
        key[1][at],
        key[3][at],
        rank[rows],
        start[rows],
        end[rows],
        size_bytes[rows],
        tuple(names),
    )


def _gather_rank(fleet: Fleet, index: int, texts: dict[str, int]) -> I64:
    """Gather the collectives of a rank: int64[k, 9], as `match_sketches` unpacks them."""
    sketch = fleet.sketches[index]
    collectives, steps = sketch.collectives, sketch.steps
    codes = np.array([texts.setdefault(text, len(texts)) for text in collectives.texts] or [0], np.int64)
    step = collectives.step
    return np.stack(
        [
            np.full(len(collectives), index, np.int64),
            np.searchsorted(fleet.steps, steps.number)[step],
            codes[collectives.group],
            codes[collectives.operation],
            collectives.order,
            collectives.start,
            collectives.end,
            collectives.start - steps.start[step],
            collectives.bytes,
        ],
        axis=1,
    ).astype(np.int64)


def _drop_other_counts(table: I64) -> I64:
    """Drop the collectives of a rank in a group and step where it has another number of them than the median rank."""
    if not len(table):
        return table
    table = table[np.lexsort((table[:, 0], table[:, 2], table[:, 1]))]
    own = find_bounds(table[:, [1, 2, 0]].T)
    count = np.diff(own)
    size = np.diff(find_bounds(table[own[:-1]][:, [1, 2]].T))
    _, usual = find_medians(np.repeat(np.arange(len(size)), size), count)
    kept: I64 = table[np.repeat(count == np.repeat(usual, size), count)]
    return kept


def find_bounds(key: I64) -> I64:
    """Find the bounds of runs of equal columns: int64[runs + 1]."""
    count = key.shape[1]
    if not count:
        return np.zeros(1, np.int64)
    changes = np.flatnonzero((np.diff(key, axis=1) != 0).any(axis=0)) + 1
    return np.concatenate([[0], changes, [count]]).astype(np.int64)


def _reduce(function: np.ufunc, values: I64, first: I64) -> I64:
    reduced: I64 = function.reduceat(values, first[:-1]) if len(first) > 1 else np.zeros(0, np.int64)
    return reduced


@record
class WaitedFor:
    """A rank that others waited for. `collectives`: in how many it came last; `delay`: ns that the median rank waited
    in these, summed; `waited`: ns that all waited, summed over the ranks."""

    rank: int
    collectives: int
    delay: float
    waited: int


def rank_waits(matched: MatchedSketches, chosen: Sequence[int] = ()) -> list[WaitedFor]:
    """List the ranks (indexes) that others waited for, by the delay they caused. `chosen`: of these steps alone."""
    used = ~matched.is_first
    if chosen:
        used &= np.isin(matched.step, list(chosen))
    size = len(matched.fleet)
    count = np.bincount(matched.last_rank[used], minlength=size)
    delay = np.bincount(matched.last_rank[used], matched.median_wait[used], size)
    waited = _reduce(np.add, matched.waits, matched.first)
    total = np.bincount(matched.last_rank[used], waited[used], size)
    found = [WaitedFor(index, int(count[index]), float(delay[index]), int(total[index])) for index in range(size)]
    return sorted((each for each in found if each.delay > 0), key=lambda each: (-each.delay, each.rank))


def measure_waits_for(matched: MatchedSketches, rank: int) -> F64:
    """Sum the ns that each rank waited in the collectives to which `rank` (index) came last: float64[r]."""
    used = ((matched.last_rank == rank) & ~matched.is_first)[matched.collective]
    total: F64 = np.bincount(matched.rank[used], matched.waits[used], len(matched.fleet)).astype(np.float64)
    return total


MIN_BYTES = 1 << 20  # collectives below this size show the latency of a link, not its bandwidth
MIN_COUNT = 2  # collectives of a group: one alone may have been disturbed


@record
class GroupBandwidth:
    """A process group. `ranks`: indexes; `hosts`: of its ranks; `bandwidth`: GB/s on the bus, of the median collective;
    `time`: ns of transfer, of the sized collectives."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    bandwidth: float
    time: int

    @property
    def is_between_hosts(self) -> bool:
        return len(self.hosts) > 1


def measure_groups(matched: MatchedSketches) -> list[GroupBandwidth]:
    """Measure the groups whose ranks have known hosts; a collective's transfer is its shortest part, without waits.

    The bus bandwidth is that of nccl-tests (doc/PERFORMANCE.md): of n ranks an all-reduce moves 2 (n - 1) / n of its
    bytes over each link, the others (n - 1) / n. It does not depend on n, so that groups of any size are compared.
    """
    hosts = matched.fleet.hosts
    if not len(matched) or not all(hosts):
        return []
    size = np.maximum.reduceat(matched.bytes, matched.first[:-1])
    usable = (size >= MIN_BYTES) & (matched.transfer > 0)
    # bytes per ns on the bus, which is GB/s: float64[m]
    count = np.diff(matched.first)
    is_reduced = np.array(["allreduce" in text.lower().replace("_", "") for text in matched.texts] or [False])
    factor = (count - 1) / count * np.where(is_reduced[matched.operation], 2, 1)
    bandwidth = size * factor / np.maximum(matched.transfer, 1)
    group_of_part = np.repeat(matched.group, np.diff(matched.first))
    found = []
    for group in np.unique(matched.group[usable]).tolist():
        rows = np.flatnonzero(usable & (matched.group == group))
        if len(rows) < MIN_COUNT:
            continue
        ranks = tuple(np.unique(matched.rank[group_of_part == group]).tolist())
        of_ranks = tuple(sorted({hosts[rank] for rank in ranks}))
        found.append(
            GroupBandwidth(ranks, of_ranks, float(np.median(bandwidth[rows])), int(matched.transfer[rows].sum()))
        )
    return found
