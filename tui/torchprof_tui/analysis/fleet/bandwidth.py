"""The bandwidth of process groups inside hosts and between hosts, from the sizes and times of their collectives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.fleet.waits import MatchedSketches
from torchprof_tui.trace.core.arrays import F64, I64

MIN_BYTES = 1 << 20
"""Collectives below this size show the latency of a link, not its bandwidth."""

MIN_COUNT = 2
"""Collectives of a group: one alone may have been disturbed."""


@dataclass(frozen=True, slots=True)
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
    bandwidth = _measure_bus(matched, size)
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


def _measure_bus(matched: MatchedSketches, size: I64) -> F64:
    """Measure bytes per ns on the bus, which is GB/s: float64[m]."""
    count = np.diff(matched.first)
    is_reduced = np.array(["allreduce" in text.lower().replace("_", "") for text in matched.texts] or [False])
    factor = (count - 1) / count * np.where(is_reduced[matched.operation], 2, 1)
    rate: F64 = size * factor / np.maximum(matched.transfer, 1)
    return rate
