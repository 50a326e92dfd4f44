"""Convert sparse args from entries to events."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np

from torchprof_tui.trace.build.event_phases import ClassifiedEntries
from torchprof_tui.trace.core.arrays import I32, I64, block_slices, flatnonzero_int32, take_chunked
from torchprof_tui.trace.core.column_file import ColumnAllocator
from torchprof_tui.trace.core.core_count import count_cores
from torchprof_tui.trace.core.thread_tasks import MIN_SLICE_SIZE, run_tasks
from torchprof_tui.trace.model.raw_events import RawEvents, SparseArg
from torchprof_tui.trace.model.trace import SparseColumn

_MAX_TABLES = 6
"""Entries of args that are converted side by side; each thread takes 5 bytes an event for its table."""

_MIN_SHARE = 16
"""Args that fewer than one in so many events have are sorted instead of looked up for each event."""


def collect_sparse_columns(
    events: RawEvents, event_of: I32, size: int, classified: ClassifiedEntries, allocate: ColumnAllocator
) -> dict[str, SparseColumn]:
    """Collect the sparse args of the drawn events, and `end_ordinal`: the entry that ends a pair.

    `event_of` int32[entries]: the event that an entry became, or -1; `size`: the number of events. Removes the args
    from `events` as they are converted. Args that the same entries have are converted together.
    """
    args = dict(events.args)
    if len(classified.begin):
        args["end_ordinal"] = SparseArg(classified.begin.astype(np.int32), classified.end)
    events.args.clear()
    names = list(args)
    groups = _group_by_entries(args)
    columns: dict[str, SparseColumn] = {}
    allocating = threading.Lock()
    tables = _Tables(size)

    def collect(group: list[str]) -> None:
        rows, indexes = _select_events(args[group[0]].entries, event_of, size, tables)
        for name in group:
            arg = args.pop(name)
            if not len(rows):
                continue
            with allocating:
                stored = allocate(f"args.{name}.events", len(rows), np.int32)
                values = allocate(f"args.{name}.values", (len(rows), *arg.values.shape[1:]), np.int64)
            stored[:] = rows
            columns[name] = SparseColumn(stored, _take_values(arg, indexes, values))

    threads = min(count_cores(), _MAX_TABLES) if size >= MIN_SLICE_SIZE else 1
    longest_first = sorted(groups, key=lambda group: -sum(args[name].values.size for name in group))
    run_tasks([partial(collect, group) for group in longest_first], threads)
    return {name: columns[name] for name in names if name in columns}


def _group_by_entries(args: dict[str, SparseArg]) -> list[list[str]]:
    """Group the args that the same entries have."""
    groups: list[list[str]] = []
    for name, arg in args.items():
        for group in groups:
            entries = args[group[0]].entries
            if len(entries) == len(arg.entries) and np.array_equal(entries, arg.entries):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


class _Tables(threading.local):
    """The tables of each thread, by event: whether it has an arg, bool[n], and then its index there, int32[n]."""

    def __init__(self, size: int) -> None:
        self.has_arg = np.zeros(size, np.bool_)
        self.index_of = np.empty(size, np.int32)


def _select_events(entries: I32, event_of: I32, size: int, tables: _Tables) -> tuple[I32, I32]:
    """Return the events that have an arg, ascending, and the index of each in it; the last of equal ones counts."""
    event = take_chunked(event_of, entries)
    drawn = flatnonzero_int32(event >= 0)
    if len(drawn) < len(event):
        event = event[drawn]
    if len(drawn) < size // _MIN_SHARE and bool((entries[1:] > entries[:-1]).all()):
        order = np.argsort(event, kind="stable")
        return event[order], drawn[order]
    for block in block_slices(len(event)):
        tables.has_arg[event[block]] = True
        tables.index_of[event[block]] = drawn[block]
    rows = flatnonzero_int32(tables.has_arg)
    for block in block_slices(len(event)):
        tables.has_arg[event[block]] = False
    return rows, take_chunked(tables.index_of, rows)


def _take_values(arg: SparseArg, indexes: I32, out: I64) -> I64:
    if arg.values.ndim == 1:
        return take_chunked(arg.values, indexes, out)
    arg.values.take(indexes, axis=0, out=out, mode="clip")
    return out
