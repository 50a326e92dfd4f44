"""Find the events of a table by name: each name is matched once, and few events are found without a pass over all."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.trace.core.arrays import I64, Bool

_FEW_MATCHES = 16
"""Fewer events than this part of a table are found by the order of names, more by a pass over the table."""


class NameIndex:
    """The events of one table by name. `names`: those of the trace, by number."""

    def __init__(self, names: list[str], table: EventTable) -> None:
        self._names, self._table = names, table
        counts = np.bincount(table.name, minlength=1)
        present = np.flatnonzero(counts)
        self._present: list[int] = present.tolist()
        self._bounds: list[int] = np.append(0, np.cumsum(counts[present])).tolist()  # of each name in `_order`

    @cached_property
    def _order(self) -> I64:
        """int64[k]: the indices into the table by name, then in the table's order."""
        is_short = len(self._names) <= np.iinfo(np.uint16).max  # numpy sorts 16 bits by radix, in linear time
        return np.argsort(self._table.name.astype(np.uint16 if is_short else np.int32), kind="stable")

    def _find_names(self, pattern: str) -> list[int]:
        """Find the indexes into `_present` of the names that match the pattern at their start."""
        matches = re.compile(pattern).match
        return [index for index, number in enumerate(self._present) if matches(self._names[number])]

    def mark(self, pattern: str, marked: Bool) -> None:
        """Mark the events whose name matches the pattern at its start, in a column of the trace: bool[n]."""
        is_chosen = np.zeros(len(self._names), dtype=np.bool_)
        is_chosen[[self._present[index] for index in self._find_names(pattern)]] = True
        marked[self._table.row] = is_chosen[self._table.name]

    def match(self, pattern: str) -> EventTable:
        """Select the events whose name matches the pattern at its start."""
        table, bounds = self._table, self._bounds
        chosen = self._find_names(pattern)
        if len(chosen) == len(self._present):
            return table
        count = sum(bounds[index + 1] - bounds[index] for index in chosen)
        if count * _FEW_MATCHES > len(table):
            is_chosen = np.zeros(len(self._names), dtype=np.bool_)
            is_chosen[[self._present[index] for index in chosen]] = True
            return table.select(is_chosen[table.name])
        if not count:
            return table.select(np.empty(0, dtype=np.int64))
        parts = [self._order[bounds[index] : bounds[index + 1]] for index in chosen]
        return table.select(np.sort(np.concatenate(parts)))
