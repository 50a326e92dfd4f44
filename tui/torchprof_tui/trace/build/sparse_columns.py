"""Convert sparse args from entries to events, and restrict the numbers of entries to their ranges.

A number out of its range is removed, as if the entry did not have it, and counted as a problem: no other place decides,
and no later stage can overflow. Within the ranges, products and sums that later stages form fit 64 bits: of three grid
dimensions, of a number of a rank's own and the index of the rank (`ranks/merge.py`), of all durations and sizes of a
file.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import cast

import numpy as np

from torchprof_tui.trace.build.event_phases import ClassifiedEntries, EntryAccounting
from torchprof_tui.trace.core.arrays import I32, I64, Array, Bool, block_slices, flatnonzero_int32, take_chunked
from torchprof_tui.trace.core.column_file import ColumnAllocator
from torchprof_tui.trace.core.process_state import count_cores
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import MIN_SLICE_SIZE, run_tasks
from torchprof_tui.trace.model.raw_events import NO_CORRELATION, UNREADABLE_NUMBER, RawEvents, SparseArg
from torchprof_tui.trace.model.trace import SparseColumn

MAX_SUM = 2**62  # sums of all durations, and of all sizes, stay below this: 146 years, or four exabytes

_MAX_NUMBER = 2**31 - 1  # of devices, streams and types: tables keep 32 bits of them
_MAX_ID = 2**62  # of ids that are only compared; bits above 40 may be the index of a rank
_MAX_BYTES = 2**50  # a petabyte, a thousand times the memory of the largest node


@record
class ValueRange:
    """The range of a number, both ends included. `label`: what the number is called in reports."""

    label: str
    low: int
    high: int
    max_product: int = 0  # of an arg with several values

    def find_outside(self, values: I64) -> Bool | None:
        """Find the entries with a value out of range, bool[k]; None if there is none. `values` int64 [k] or [k, 3]."""
        if not len(values):
            return None
        may_exceed_product = values.ndim == 2 and float(values.max()) ** values.shape[1] > self.max_product
        if int(values.min()) >= self.low and int(values.max()) <= self.high and not may_exceed_product:
            return None
        outside: Bool = (values < self.low) | (values > self.high)
        if values.ndim == 2:
            is_large: Bool = values.prod(axis=1, dtype=np.float64) > self.max_product
            outside = np.asarray(outside.any(axis=1)) | is_large
        return outside if outside.any() else None


RANGES: dict[str, ValueRange] = {
    "device": ValueRange("device number", -1, _MAX_NUMBER),
    "stream": ValueRange("stream number", -_MAX_ID, _MAX_ID),
    "grid": ValueRange("grid", 0, 2**32 - 1, max_product=2**53),
    "block": ValueRange("block", 0, 2**32 - 1, max_product=2**31),
    "registers": ValueRange("register count", -1, _MAX_NUMBER),
    "shared_memory": ValueRange("shared memory size", -1, _MAX_BYTES),
    "bytes": ValueRange("size in bytes", -_MAX_BYTES, _MAX_BYTES),
    "external_id": ValueRange("External id", -_MAX_ID, _MAX_ID),
    "sequence": ValueRange("sequence number", -_MAX_ID, _MAX_ID),
    "forward_thread": ValueRange("forward thread id", -_MAX_ID, _MAX_ID),
    "allocated": ValueRange("allocated size", -1, _MAX_BYTES),
    "reserved": ValueRange("reserved size", -1, _MAX_BYTES),
    "device_type": ValueRange("device type", -1, _MAX_NUMBER),
    "device_id": ValueRange("device id", -1, _MAX_NUMBER),
    "address": ValueRange("address", UNREADABLE_NUMBER + 1, 2**63 - 1),
    "python_id": ValueRange("Python id", -_MAX_ID, _MAX_ID),
    "python_parent": ValueRange("Python parent id", -_MAX_ID, _MAX_ID),
    "wait_record": ValueRange("correlation of an event's record", -_MAX_ID, _MAX_ID),
    "graph_node": ValueRange("graph node id", -_MAX_ID, _MAX_ID),
    "wait_stream": ValueRange("stream number", -_MAX_ID, _MAX_ID),
}
"""By the names of `raw_events.ARGS`. -1 is what writers put for "unknown"."""

_CORRELATION = ValueRange("correlation", -_MAX_ID, _MAX_ID)


def restrict_values(events: RawEvents, accounting: EntryAccounting) -> None:
    """Remove numbers out of their range from the columns, in place, and report them by kind (`NUMBER_KINDS`)."""
    outside = _CORRELATION.find_outside(events.correlation)
    if outside is not None:
        entries = np.flatnonzero(outside)
        _report(_CORRELATION, events, entries, events.correlation[entries[0]], accounting)
        events.correlation[entries] = NO_CORRELATION
    for name, arg in list(events.args.items()):
        outside = RANGES[name].find_outside(cast("I64", arg.values))
        if outside is not None:
            _report(RANGES[name], events, arg.entries[outside], arg.values[outside][0], accounting)
            events.args[name] = SparseArg(arg.entries[~outside], arg.values[~outside])
            if not len(events.args[name].entries):
                del events.args[name]
    sizes = events.args.get("bytes")
    outside = None if sizes is None else find_beyond_sum(np.abs(cast("I64", sizes.values)))
    if sizes is not None and outside is not None:
        _report(RANGES["bytes"], events, sizes.entries[outside], sizes.values[outside][0], accounting)
        events.args["bytes"] = SparseArg(sizes.entries[~outside], sizes.values[~outside])


def find_beyond_sum(values: I64) -> Bool | None:
    """Find the values to leave out so that the sum of all others stays below MAX_SUM: bool[k], None if it does.

    `values` are not negative. Left out are those above MAX_SUM / k.
    """
    if float(values.sum(dtype=np.float64)) < MAX_SUM:
        return None
    beyond: Bool = values > MAX_SUM // len(values)
    return beyond


def _report(
    value_range: ValueRange, events: RawEvents, entries: Array, example: Array, accounting: EntryAccounting
) -> None:
    numbers = np.atleast_1d(example).tolist()
    shown = ["not a 64-bit integer" if number == UNREADABLE_NUMBER else f"{number}" for number in numbers]
    remedy = f"{shown[0] if len(set(shown)) == 1 else ' × '.join(shown)}, read as unknown"
    accounting.add_entry_problem(f"{value_range.label} out of range", events, entries, remedy)


_MAX_TABLES = 6  # entries of args that are converted side by side; each thread takes 5 bytes an event for its table
_MIN_SHARE = 16  # args that fewer than one in so many events have are sorted instead of looked up for each event


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
    # Group the args that the same entries have.
    groups: list[list[str]] = []
    for name, arg in args.items():
        for group in groups:
            entries = args[group[0]].entries
            if len(entries) == len(arg.entries) and np.array_equal(entries, arg.entries):
                group.append(name)
                break
        else:
            groups.append([name])
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
            if arg.values.ndim == 1:
                take_chunked(arg.values, indexes, values)
            else:
                arg.values.take(indexes, axis=0, out=values, mode="clip")
            columns[name] = SparseColumn(stored, values)

    threads = min(count_cores(), _MAX_TABLES) if size >= MIN_SLICE_SIZE else 1
    longest_first = sorted(groups, key=lambda group: -sum(args[name].values.size for name in group))
    run_tasks([partial(collect, group) for group in longest_first], threads)
    return {name: columns[name] for name in names if name in columns}


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
