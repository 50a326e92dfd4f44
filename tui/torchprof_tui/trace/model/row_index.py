"""What drawing needs to find events fast: every row's events by time, sums and maxima of their durations.

Built once per trace (in the child process that loads it) and stored beside the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U16, take_chunked
from torchprof_tui.trace.core.column_file import ColumnAllocator, allocate_in_memory
from torchprof_tui.trace.model.range_argmax import RangeArgmax


class RowColumns(Protocol):
    """The columns of a `Trace` that the index is built from."""

    @property
    def start(self) -> I64: ...
    @property
    def duration(self) -> I64: ...
    @property
    def row_order(self) -> I32: ...
    @property
    def row_first(self) -> I64: ...


@dataclass(frozen=True, slots=True)
class RowIndex:
    """Events by (row of the whole trace, start); n of them, 18.4 bytes each beyond `order`, which is the trace's own.

    A *place* is a position in this order; the events of row r are places `first[r]:first[r + 1]`. Inside a row
    no two events overlap, where an event without a duration counts as 1 ns, here and in everything that is drawn.
    """

    order: I32  # [n] place -> event: `trace.row_order`
    first: I64  # [rows + 1]: `trace.row_first`
    starts: I64  # [n] ns, ascending inside each row
    sums: I64  # [n + 1] ns: durations of all places before, running on over the rows
    masks: U16  # RangeArgmax over the durations
    best: I32

    @classmethod
    def build(cls, trace: RowColumns, allocate: ColumnAllocator = allocate_in_memory) -> RowIndex:
        """All rows at once. About 20 ms for a million events."""
        order = trace.row_order
        sums = allocate("index.sums", len(order) + 1, np.int64)
        sums[0] = 0
        lengths = take_chunked(trace.duration, order, sums[1:])
        np.maximum(lengths, 1, out=lengths)
        longest = RangeArgmax.build(lengths)
        # May wrap around in a trace of centuries times rows; differences inside a row stay right all the same.
        np.cumsum(lengths, out=lengths)
        starts = take_chunked(trace.start, order, allocate("index.starts", len(order), np.int64))
        return cls(order, trace.row_first, starts, sums, longest.masks, longest.best)

    @property
    def rows(self) -> int:
        return len(self.first) - 1

    def find_longest(self, first: I64, last: I64) -> I64:
        """The place of the longest event of each (never empty) range of places; the first of equals."""
        return RangeArgmax(self.masks, self.best).query(self.durations_at, len(self.order), first, last)

    def durations_at(self, positions: I64) -> I64:
        """Durations in ns, at least 1."""
        return self.sums[positions + 1] - self.sums[positions]
