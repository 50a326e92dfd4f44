"""Convert sparse args from entries to events."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np

from torchprof_tui.trace.build.event_phases import ClassifiedEntries
from torchprof_tui.trace.core.arrays import I32, I64, flatnonzero_int32, take_chunked
from torchprof_tui.trace.core.column_file import ColumnAllocator
from torchprof_tui.trace.core.core_count import count_cores
from torchprof_tui.trace.core.thread_tasks import MIN_SLICE_SIZE, run_tasks
from torchprof_tui.trace.model.raw_events import RawEvents, SparseArg
from torchprof_tui.trace.model.trace import SparseColumn

_MAX_TABLES = 6
"""Args that are converted side by side; each takes 4 bytes an event for its table."""


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
    events.args.clear()
    columns: dict[str, SparseColumn] = {}
    allocating = threading.Lock()
    local = threading.local()  # the table of each thread

    def collect(name: str) -> None:
        arg = args.pop(name)
        table = getattr(local, "table", None)  # index in one arg; the last element is for entries that are not drawn
        if table is None:
            table = local.table = np.full(drawn + 1, -1, np.int32)
        event = take_chunked(event_of, arg.entries)
        table[event] = np.arange(len(event), dtype=np.int32)
        has_arg = table[:drawn] >= 0
        count = int(np.count_nonzero(has_arg))
        if count:
            with allocating:
                rows = allocate(f"args.{name}.events", count, np.int32)
                values = allocate(f"args.{name}.values", (count, *arg.values.shape[1:]), np.int64)
            flatnonzero_int32(has_arg, rows)
            columns[name] = SparseColumn(rows, _take_values(arg, take_chunked(table, rows), values))
        table[event] = -1

    names = list(args)
    threads = min(count_cores(), _MAX_TABLES if drawn >= MIN_SLICE_SIZE else 1)
    run_tasks([partial(collect, name) for name in sorted(names, key=lambda name: -len(args[name].entries))], threads)
    return {name: columns[name] for name in names if name in columns}


def _take_values(arg: SparseArg, indexes: I32, out: I64) -> I64:
    if arg.values.ndim == 1:
        return take_chunked(arg.values, indexes, out)
    out[:] = arg.values[indexes]
    return out
