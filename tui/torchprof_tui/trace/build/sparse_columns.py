"""Convert sparse args from entries to events."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.build.event_phases import ClassifiedEntries
from torchprof_tui.trace.core.arrays import I32, I64, flatnonzero_int32, take_chunked
from torchprof_tui.trace.core.column_file import ColumnAllocator
from torchprof_tui.trace.model.raw_events import RawEvents, SparseArg
from torchprof_tui.trace.model.trace import SparseColumn


def collect_sparse_columns(
    events: RawEvents, event_of: I32, classified: ClassifiedEntries, drawn: int, allocate: ColumnAllocator
) -> dict[str, SparseColumn]:
    """Collect the sparse args of the drawn events, and `end_ordinal`: the entry that ends a pair.

    `event_of` int32[entries]: the event that an entry became, or -1; `drawn`: the number of events. Removes the args
    from `events` as they are converted.
    """
    args = dict(events.args)
    if len(classified.begin):
        args["end_ordinal"] = SparseArg(classified.begin.astype(np.int32), classified.end)
    columns = {}
    index_of_event = np.full(drawn + 1, -1, np.int32)  # in one arg; the last element is for entries that are not drawn
    for name, arg in args.items():
        event = take_chunked(event_of, arg.entries)
        index_of_event[event] = np.arange(len(event), dtype=np.int32)
        has_arg = index_of_event[:drawn] >= 0
        count = int(np.count_nonzero(has_arg))
        if count:
            rows = flatnonzero_int32(has_arg, allocate(f"args.{name}.events", count, np.int32))
            values = allocate(f"args.{name}.values", (count, *arg.values.shape[1:]), np.int64)
            columns[name] = SparseColumn(rows, _take_values(arg, take_chunked(index_of_event, rows), values))
        index_of_event[event] = -1
        events.args.pop(name, None)
    return columns


def _take_values(arg: SparseArg, indexes: I32, out: I64) -> I64:
    if arg.values.ndim == 1:
        return take_chunked(arg.values, indexes, out)
    out[:] = arg.values[indexes]
    return out
