"""Index for drawing: the events of every row by time, with sums and maxima of their durations.

Built once per trace, in the loader process, and stored beside the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U16
from torchprof_tui.trace.core.column_file import ColumnAllocator, allocate_in_memory
from torchprof_tui.trace.core.thread_tasks import cumulate_parallel, run_blocks, take_parallel
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
    """n events by (row of the whole trace, start): 18.4 bytes per event in addition to `order`, a column of the trace.

    A *position* is an index in this order; the events of row r are positions `first[r]:first[r + 1]`. Within a row no
    two events overlap; an event of zero duration counts as 1 ns, here and wherever events are drawn.
    """

    order: I32  # [n] position -> event: `trace.row_order`
    first: I64  # [rows + 1]: `trace.row_first`
    starts: I64  # [n] ns, ascending within each row
    sums: I64  # [n + 1] ns: cumulative durations of all positions before, over all rows
    masks: U16  # RangeArgmax over the durations
    best: I32

    @classmethod
    def build(cls, trace: RowColumns, allocate: ColumnAllocator = allocate_in_memory) -> RowIndex:
        """Build the index of all rows: about 20 ms for a million events. `allocate`: for the long columns."""
        order = trace.row_order
        sums = allocate("index.sums", len(order) + 1, np.int64)
        sums[0] = 0
        lengths = take_parallel(trace.duration, order, sums[1:])
        run_blocks(lambda block: np.maximum(lengths[block], 1, out=lengths[block]), len(lengths))
        longest = RangeArgmax.build(lengths)
        # The sum over all rows may overflow int64; differences within a row are right nevertheless.
        cumulate_parallel(lengths)
        starts = take_parallel(trace.start, order, allocate("index.starts", len(order), np.int64))
        return cls(order, trace.row_first, starts, sums, longest.masks, longest.best)

    @property
    def rows(self) -> int:
        return len(self.first) - 1

    def find_longest(self, first: I64, last: I64) -> I64:
        """Return the position of the longest event (the first of equals) in each range; no range may be empty."""
        return RangeArgmax(self.masks, self.best).query(self.durations_at, len(self.order), first, last)

    def durations_at(self, positions: I64) -> I64:
        """Return durations in ns, at least 1."""
        return self.sums[positions + 1] - self.sums[positions]
