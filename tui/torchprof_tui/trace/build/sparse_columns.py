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

_MIN_SHARE = 16
"""Args that fewer than one in so many events have are sorted instead of looked up for each event."""


def collect_sparse_columns(
    events: RawEvents, event_of: I32, ordinal: I32, classified: ClassifiedEntries, allocate: ColumnAllocator
) -> dict[str, SparseColumn]:
    """Collect the sparse args of the drawn events, and `end_ordinal`: the entry that ends a pair.

    `event_of` int32[entries]: the event that an entry became, or -1; `ordinal` int32[n]: the entry of each event.
    Removes the args from `events` as they are converted.
    """
    args = dict(events.args)
    if len(classified.begin):
        args["end_ordinal"] = SparseArg(classified.begin.astype(np.int32), classified.end)
    events.args.clear()
    names = list(args)
    columns: dict[str, SparseColumn] = {}
    allocating = threading.Lock()
    tables = _Tables(len(event_of))

    def collect(name: str) -> None:
        arg = args.pop(name)
        rows, indexes = (
            _select_few(arg.entries, event_of)
            if len(arg.entries) < len(ordinal) // _MIN_SHARE and bool((arg.entries[1:] > arg.entries[:-1]).all())
            else _select_many(arg.entries, ordinal, tables)
        )
        if not len(rows):
            return
        with allocating:
            stored = allocate(f"args.{name}.events", len(rows), np.int32)
            values = allocate(f"args.{name}.values", (len(rows), *arg.values.shape[1:]), np.int64)
        stored[:] = rows
        columns[name] = SparseColumn(stored, _take_values(arg, indexes, values))

    threads = min(count_cores(), _MAX_TABLES if len(ordinal) >= MIN_SLICE_SIZE else 1)
    run_tasks([partial(collect, name) for name in sorted(names, key=lambda name: -len(args[name].entries))], threads)
    return {name: columns[name] for name in names if name in columns}


class _Tables(threading.local):
    """The table of each thread: the index of each entry in one arg, int32[entries], -1 for entries without it."""

    def __init__(self, entries: int) -> None:
        self.index_of = np.full(entries, -1, np.int32)


def _select_few(entries: I32, event_of: I32) -> tuple[I32, I32]:
    """Return the events that have an arg, ascending, and the index of each in the arg; `entries` are ascending."""
    event = take_chunked(event_of, entries)
    drawn = np.flatnonzero(event >= 0).astype(np.int32)
    indexes: I32 = drawn[np.argsort(event[drawn], kind="stable")]
    return event[indexes], indexes


def _select_many(entries: I32, ordinal: I32, tables: _Tables) -> tuple[I32, I32]:
    """Return what `_select_few` returns, for entries in any order; the last of equal ones counts."""
    index_of = tables.index_of
    index_of[entries] = np.arange(len(entries), dtype=np.int32)
    index = take_chunked(index_of, ordinal)
    index_of[entries] = -1
    has_arg = index >= 0
    return flatnonzero_int32(has_arg), index[has_arg]


def _take_values(arg: SparseArg, indexes: I32, out: I64) -> I64:
    if arg.values.ndim == 1:
        return take_chunked(arg.values, indexes, out)
    arg.values.take(indexes, axis=0, out=out, mode="clip")
    return out
