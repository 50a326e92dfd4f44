"""Build columns from decoded entries, chunk by chunk, so that a chunk's dicts can be freed.

All per-entry work runs in C loops (`map`, `itemgetter`, `fromiter`, one comprehension per column); Python code handles
a single entry only where a value is not of the usual type. Phase, category, pid and tid are interned together as a
signature, because one look-up of all four costs as much as one of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import partial
from itertools import chain, compress
from operator import itemgetter
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import (
    F64,
    I32,
    I64,
    Array,
    ArrayFiller,
    ArrayFinisher,
    Bool,
    sorted_unique,
    take_chunked,
)
from torchprof_tui.trace.core.bounded_json import dump_bounded
from torchprof_tui.trace.core.growable_array import GrowableArray
from torchprof_tui.trace.core.problems import NOT_AN_OBJECT, TOO_MANY_CATEGORIES, ProblemTally, excerpt
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import MIN_SLICE_SIZE, run_tasks, submit
from torchprof_tui.trace.decode.interning import (
    GROUP_COUNTER,
    GROUP_METADATA,
    GROUP_NONE,
    GROUP_OP,
    GROUP_OTHER,
    GROUP_PYTHON,
    MAX_CATEGORIES,
    IdTable,
    PartTable,
    SignatureTable,
    TablePart,
    TextTable,
    text_of,
    track_of,
)
from torchprof_tui.trace.decode.timestamps import parse_durations, parse_times
from torchprof_tui.trace.model.raw_events import ARGS, UNREADABLE_NUMBER, CounterPoints, RawEvents, SparseArg

CORRELATION = "correlation"

OP_ARGS = ("external_id", "sequence", "forward_thread")
PYTHON_ARGS = ("python_id", "python_parent")

TRIPLE_ARGS = frozenset(("grid", "block"))  # args with three values per entry

_JSON_KEYS: dict[str, tuple[str, ...]] = {**ARGS, CORRELATION: (CORRELATION,)}
_NAME_OF_KEY = {key: name for name, keys in _JSON_KEYS.items() for key in keys}
_WANTED_KEYS = frozenset(_NAME_OF_KEY)

_ABSENT = -(2**63) + 7  # a value that no arg has: marks entries without the arg while a column is built

Args = dict[str, Any]


def select_objects(args: list[Any], indices: I64) -> tuple[list[Args], I64]:
    """Select the args that are objects, and the indices of those entries."""
    objects = [type(arg) is dict for arg in args]
    return [arg for arg in args if type(arg) is dict], indices[np.array(objects, np.bool_)]


class ChunkArgColumns:
    """The wanted args of one chunk of n entries, by the short names of `raw_events.ARGS`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._columns: dict[str, tuple[Array, Bool]] = {}

    def extract(self, names: Iterable[str], args: list[Args], indices: I64) -> None:
        """Extract these args of the entries at `indices`. Raises AttributeError if some args are no object."""
        for name in names:
            keys = _JSON_KEYS[name]
            values, present = _triple_column(args, keys[0]) if name in TRIPLE_ARGS else _integer_column(args, keys)
            if not len(values):
                continue
            column, has = self._get_or_create_column(name)
            rows = indices if present is None else indices[present]
            column[rows] = values
            has[rows] = True

    def _get_or_create_column(self, name: str) -> tuple[Array, Bool]:
        known = self._columns.get(name)
        if known is None:
            shape = (self._size, 3) if name in TRIPLE_ARGS else (self._size,)
            known = self._columns[name] = (np.full(shape, -1, np.int64), np.zeros(self._size, np.bool_))
        return known

    def correlation(self) -> I64:
        """Return the correlation, int64[n], -1 for entries without one."""
        return self._get_or_create_column(CORRELATION)[0].astype(np.int64, copy=False)

    def sparse_columns(self) -> dict[str, tuple[I64, Array]]:
        """Return, for each arg but the correlation, the indices of entries that have it, ascending, and its values."""
        return {
            name: (np.flatnonzero(has), column[has])
            for name, (column, has) in self._columns.items()
            if name != CORRELATION
        }


def _integer_column(args: list[Args], keys: tuple[str, ...]) -> tuple[I64, I64 | None]:
    """Return the value of the first key that an entry has, int64[k], and the indices of those with one (None: all)."""
    key, *other_keys = keys
    wraps = keys == ARGS["address"]
    try:
        return np.fromiter(map(itemgetter(key), args), np.int64, len(args)), None
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    try:
        column = np.fromiter([arg.get(key, _ABSENT) for arg in args], np.int64, len(args))
    except (TypeError, ValueError, OverflowError):
        column = np.array([_to_int64(arg.get(key), wraps) for arg in args], np.int64)
    for other_key in other_keys:
        for index in np.flatnonzero(column == _ABSENT).tolist():
            column[index] = _to_int64(args[index].get(other_key), wraps)
    present = np.flatnonzero(column != _ABSENT)
    return column[present], present


def _to_int64(value: Any, wraps: bool) -> int:
    """Convert to int64: strings may be hexadecimal; unsigned numbers from 2^63 on wrap if `wraps`, as addresses do.

    2^64 - 1 is -1, which means "unknown", for all. _ABSENT for nothing (null, an empty string), UNREADABLE_NUMBER for
    everything else.
    """
    if value is None or value == "":
        return _ABSENT
    try:
        number = int(value, 16) if isinstance(value, str) and value[:2].lower() == "0x" else int(value)
    except (TypeError, ValueError, OverflowError):
        return UNREADABLE_NUMBER
    if number == 2**64 - 1 or (wraps and 2**63 <= number < 2**64):
        return number - 2**64
    return number if -(2**63) <= number < 2**63 else UNREADABLE_NUMBER


def _triple_column(args: list[Args], key: str) -> tuple[I64, I64 | None]:
    """Return the triples, int64[k, 3], and the indices of the entries that have a value there (None: all).

    UNREADABLE_NUMBER, three times, for what is not three integers.
    """
    values: list[Any] = [arg.get(key) for arg in args]
    try:
        if set(map(len, values)) == {3}:
            flat = np.fromiter(chain.from_iterable(values), np.int64, 3 * len(values))
            return flat.reshape(-1, 3), None
    except (TypeError, ValueError, OverflowError):
        pass
    present = [index for index, value in enumerate(values) if value is not None]
    unreadable = [UNREADABLE_NUMBER] * 3
    triples = []
    for value in (values[index] for index in present):
        is_triple = isinstance(value, list) and len(value) == 3
        readable = is_triple and all(type(n) is int and abs(n) < 2**63 for n in value)
        triples.append(value if readable else unreadable)
    return np.array(triples, np.int64).reshape(-1, 3), np.array(present, np.int64)


MAX_COUNTER_VALUE = 1e30  # points beyond are dropped: differences of values must be finite, also as float32


class CounterColumns(PartTable):
    """Points of counters: the ordinal of the entry, the code of the series, the value."""

    def __init__(self) -> None:
        self._entry, self._series = GrowableArray(np.int32), GrowableArray(np.int32)
        self._value = GrowableArray(np.float64)
        super().__init__(self._entry, self._series, self._value)

    def intern(self, name: str) -> int:
        """Return the code of a series, the key of a value in the args of a counter."""
        return self._texts.setdefault(name, len(self._texts))

    def append(self, entries: I64, series: I32, values: F64) -> None:
        self._entry.extend(entries)
        self._series.extend(series)
        self._value.extend(values)

    def append_args(self, ordinals: list[int], args: list[dict[str, Any]]) -> None:
        """Append the numbers in the args of entries; everything else there is left out."""
        points = [
            (ordinal, self.intern(name), value)
            for ordinal, series in zip(ordinals, args, strict=True)
            for name, value in series.items()
            if type(value) in (int, float) and abs(value) <= MAX_COUNTER_VALUE
        ]
        if points:
            entries, series_codes, values = zip(*points, strict=True)
            self.append(np.array(entries, np.int64), np.array(series_codes, np.int32), np.array(values, np.float64))

    def append_part(self, part: TablePart, fill: ArrayFiller, first: int) -> None:
        """Append the points of a part whose entries begin at ordinal `first`."""
        count, names = part
        fill(self._entry.reserve(count), _shift(first))
        fill(self._series.reserve(count), _renumber([*map(self.intern, names)]))
        fill(self._value.reserve(count), None)

    def finish(self) -> CounterPoints:
        """Return the columns, the series numbered by their first point; nothing can be appended afterwards."""
        series, names = self._series.finish(), list(self._texts)
        used, first = np.unique(series, return_index=True)
        order = used[np.argsort(first)]
        code_of = np.zeros(len(names), np.int32)
        code_of[order] = np.arange(len(order))
        return CounterPoints(
            self._entry.finish(), code_of[series], self._value.finish(), [names[code] for code in order.tolist()]
        )


Entry = dict[str, Any]

_MAX_GROUPS = 24
"""Most arg groups of a chunk that are handled one by one, since their entries have the same args; more are merged."""

NO_SERIES = np.zeros(0, np.int32)

_SIGNATURE_OF = itemgetter("ph", "cat", "pid", "tid")


@record
class EntryColumns:
    """Columns of n entries. `ids`, `args`, `counters`: (indices, ascending; values), int64[k]; values of args may be
    [k, 3], those of counters are float64.
    """

    time: I64
    duration: I64
    ids: tuple[I64, I64]
    correlation: I64
    args: dict[str, tuple[I64, Array]]
    counters: tuple[I64, F64] = field(default_factory=lambda: (np.zeros(0, np.int64), np.zeros(0)))


@record
class ColumnsPart:
    """`count` entries of one part of a file, without their columns, which come from `ColumnBuilder.drain_arrays`.

    Its codes are its own: `signatures` and `names` are the keys in the order of its codes. `arg_counts`: for each arg
    how many entries have it, and how many values.
    """

    count: int
    signatures: list[tuple[Any, Any, Any, Any]]
    names: list[Any]
    ids: TablePart
    arg_counts: dict[str, tuple[int, int]]
    metadata: list[tuple[str, str, str, Any]]
    counters: TablePart
    not_objects: int


class ColumnBuilder:
    """Appends chunks of entries to the columns of a `RawEvents`. Problems go to the tally.

    `not_objects`: number of entries that are null, numbers, lists, …; they have no row.
    """

    def __init__(self, tally: ProblemTally) -> None:
        self.not_objects = 0
        self._tally = tally
        self._count = 0
        self._signatures = SignatureTable()
        self._names = TextTable()
        self._ids = IdTable()
        self._signature = GrowableArray(np.int32)
        self._name = GrowableArray(np.int32)
        self._time = GrowableArray(np.int64)
        self._duration = GrowableArray(np.int64)
        self._correlation = GrowableArray(np.int64)
        self._args: dict[str, tuple[GrowableArray, GrowableArray]] = {}
        self._metadata: list[tuple[str, str, str, Any]] = []
        self._counters = CounterColumns()

    def __len__(self) -> int:
        return self._count

    def add_chunk(self, entries: list[Any], text: bytes) -> None:
        """Append the next entries of the file; `text` is what they were decoded from."""
        try:
            signature = np.fromiter(
                map(self._signatures.__getitem__, map(_SIGNATURE_OF, entries)), np.int32, len(entries)
            )
        except (KeyError, TypeError):
            others = [entry for entry in entries if type(entry) is not dict]
            if others:
                self.not_objects += len(others)
                self._tally.add(NOT_AN_OBJECT, excerpt(dump_bounded(others[0])), len(others))
                entries = [entry for entry in entries if type(entry) is dict]
            signature = np.fromiter(
                map(self._signatures.__getitem__, map(_compute_signature, entries)), np.int32, len(entries)
            )
        if not entries:
            return
        self._signature.extend(signature)
        self._name.extend(self._intern_names(entries))
        self._time.extend(parse_times(_get_values(entries, "ts"), text, self._tally))
        self._duration.extend(parse_durations([entry.get("dur") for entry in entries], self._tally))
        ordinals, keys = [], []
        for index in np.flatnonzero(self._signatures.with_id(signature)).tolist():
            entry = entries[index]
            value = entry.get("id")
            if value is None:
                value = entry.get("id2")
            if value is not None:
                ordinals.append(self._count + index)
                keys.append(self._ids.key(value))
        self._ids.add(np.array(ordinals, np.int64), np.array(keys, np.int64))
        self._add_args(entries, self._signatures.groups(signature))
        self._count += len(entries)

    def intern(self, entry: Entry) -> tuple[int, int]:
        """Return the codes of an entry's signature and name for `append_columns`, in the order of these calls."""
        return self._signatures[_compute_signature(entry)], self._names[entry["name"]]

    def intern_series(self, names: list[str]) -> I32:
        """Return the codes of series of counters for `append_columns`: int32[names]."""
        return np.array([*map(self._counters.intern, names)], np.int32)

    def append_columns(self, signature: I32, name: I32, columns: EntryColumns, series: I32 = NO_SERIES) -> None:
        """Append the next n entries of the file, whose columns are decoded already; `series`: that of each counter."""
        self._signature.extend(signature)
        self._name.extend(name)
        self._time.extend(columns.time)
        self._duration.extend(columns.duration)
        indices, values = columns.ids
        self._ids.add_integers(indices + self._count, values)
        indices, numbers = columns.counters
        self._counters.append(indices + self._count, series, numbers)
        self._append_args(columns.correlation, columns.args)
        self._count += len(signature)

    def _intern_names(self, entries: list[Entry]) -> I32:
        names = _get_values(entries, "name")
        try:
            return np.fromiter(map(self._names.__getitem__, names), np.int32, len(names))
        except TypeError:  # a list or an object
            return np.fromiter(map(self._names.__getitem__, map(text_of, names)), np.int32, len(names))

    def _add_args(self, entries: list[Entry], groups: I32) -> None:
        chunk = ChunkArgColumns(len(entries))
        if groups.max() > GROUP_OTHER and len(sorted_unique(groups)) > _MAX_GROUPS:
            groups = np.minimum(groups, GROUP_OTHER)
        for group in np.flatnonzero(np.bincount(groups)).tolist():
            if group == GROUP_NONE:
                continue
            mask = groups == group
            selected = list(compress(entries, mask.tobytes()))
            if group == GROUP_METADATA:
                self._add_metadata(selected)
                continue
            args, indices = _get_values(selected, "args"), np.flatnonzero(mask)
            try:
                self._extract_group_args(group, args, indices, chunk)
            except (AttributeError, TypeError):  # an entry without args, or whose args are no object
                self._extract_group_args(group, *select_objects(args, indices), chunk)
        self._append_args(chunk.correlation(), chunk.sparse_columns())

    def _append_args(self, correlation: I64, sparse: Mapping[str, tuple[Array, Array]]) -> None:
        self._correlation.extend(correlation)
        for name, (indices, values) in sparse.items():
            entry_column, value_column = self._get_or_create_arg(name)
            entry_column.extend(indices + np.int64(self._count))
            value_column.extend(values.ravel())

    def _get_or_create_arg(self, name: str) -> tuple[GrowableArray, GrowableArray]:
        """Return the two columns of an arg: ordinals of the entries that have it, and values."""
        columns = self._args.get(name)
        if columns is None:
            columns = self._args[name] = (GrowableArray(np.int32), GrowableArray(np.int64))
        return columns

    def _extract_group_args(self, group: int, args: list[Args], indices: I64, chunk: ChunkArgColumns) -> None:
        if group == GROUP_COUNTER:
            objects, places = select_objects(args, indices)
            self._counters.append_args((places + self._count).tolist(), objects)
        elif group == GROUP_OP:
            chunk.extract(OP_ARGS, args, indices)
        elif group == GROUP_PYTHON:
            chunk.extract(PYTHON_ARGS, args, indices)
        else:  # all wanted args that any entry has
            present = _WANTED_KEYS.intersection(chain.from_iterable(args))
            chunk.extract(dict.fromkeys(_NAME_OF_KEY[key] for key in present), args, indices)

    def _add_metadata(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            args = entry.get("args")
            value = next(iter(args.values())) if isinstance(args, dict) and len(args) == 1 else args
            pid, tid = track_of(entry.get("pid"), entry.get("tid"))
            self._metadata.append((text_of(entry.get("name")), pid, tid, value))

    def finish_part(self) -> ColumnsPart:
        """Return what was appended, for `append_part`; nothing can be appended afterwards."""
        return ColumnsPart(
            self._count,
            list(self._signatures),
            list(self._names),
            self._ids.finish_part(),
            {name: (len(entries), len(values)) for name, (entries, values) in self._args.items()},
            self._metadata,
            self._counters.finish_part(),
            self.not_objects,
        )

    def drain_arrays(self) -> Iterator[Array]:
        """Yield the columns of a part, for `append_part` to fill in; each is freed before the next one is yielded."""
        for column in (self._signature, self._name, self._time, self._duration, self._correlation):
            yield column.finish()
        yield from self._ids.drain_arrays()
        for entries, values in self._args.values():
            yield entries.finish()
            yield values.finish()
        yield from self._counters.drain_arrays()

    def make_room(self, parts: list[ColumnsPart]) -> None:
        """Make room for these parts, before the first is appended."""
        total = sum(part.count for part in parts)
        columns = [(column, total) for column in (self._signature, self._name, self._time, self._duration)]
        columns.append((self._correlation, total))
        for name in dict.fromkeys(name for part in parts for name in part.arg_counts):
            counts = [part.arg_counts.get(name, (0, 0)) for part in parts]
            columns += zip(self._get_or_create_arg(name), map(sum, zip(*counts, strict=True)), strict=True)
        self._ids.make_room([part.ids for part in parts])
        self._counters.make_room([part.counters for part in parts])
        run_tasks([partial(column.make_room, count) for column, count in columns])  # each copies what it has

    def append_part(self, part: ColumnsPart, fill: ArrayFiller) -> None:
        """Append the entries of a part that another process decoded. Its new values get the codes that they would have
        got if this builder had interned them."""
        for column, table, keys in (
            (self._signature, self._signatures, part.signatures),
            (self._name, self._names, part.names),
        ):
            fill(column.reserve(part.count), _renumber([*map(table.__getitem__, keys)]))
        for column in (self._time, self._duration, self._correlation):
            fill(column.reserve(part.count), None)
        self._ids.append_part(part.ids, fill, self._count)
        for name, counts in part.arg_counts.items():
            entries, values = (
                column.reserve(count) for column, count in zip(self._get_or_create_arg(name), counts, strict=True)
            )
            fill(entries, _shift(self._count))
            fill(values, None)
        self._metadata += part.metadata
        self._counters.append_part(part.counters, fill, self._count)
        self.not_objects += part.not_objects
        self._count += part.count

    def finish(self) -> RawEvents:
        """Return the columns; nothing can be appended afterwards."""
        signatures = self._signatures
        wait_for_ids = submit(partial(self._ids.finish, self._count)) if self._count >= MIN_SLICE_SIZE else None
        phase, category, track, overflow_count = signatures.columns(self._signature.finish())
        if overflow_count:
            self._tally.add(TOO_MANY_CATEGORIES, f"more than {MAX_CATEGORIES} of them", overflow_count)
        name, names = self._names.finish(self._name.finish())
        id_codes, ids = self._ids.finish(self._count) if wait_for_ids is None else wait_for_ids()
        args = {}
        for arg, (entries, value_column) in self._args.items():
            values = value_column.finish()
            args[arg] = SparseArg(entries.finish(), values.reshape(-1, 3) if arg in TRIPLE_ARGS else values)
        return RawEvents(
            phase=phase,
            time=self._time.finish(),
            duration=self._duration.finish(),
            name=name,
            category=category,
            track=track,
            correlation=self._correlation.finish(),
            id=id_codes,
            names=names,
            categories=list(signatures.categories),
            tracks=list(signatures.tracks),
            ids=ids,
            args=args,
            metadata=self._metadata,
            counters=self._counters.finish(),
        )


def _renumber(codes: list[int]) -> ArrayFinisher:
    """Create a function that replaces each code k by `codes[k]`."""
    code_of = np.array(codes, np.int32)
    return lambda column: take_chunked(code_of, column, column)


def _shift(count: int) -> ArrayFinisher:
    """Create a function that adds a number to the ordinals of entries."""
    return lambda entries: np.add(entries, count, out=entries, casting="unsafe")


def _get_values(entries: list[Entry], key: str) -> list[Any]:
    """Return the value of a key in each entry, None for entries without it."""
    try:
        return list(map(itemgetter(key), entries))
    except KeyError:
        return [entry.get(key) for entry in entries]


def _compute_signature(entry: Entry) -> tuple[Any, Any, Any, Any]:
    """Compute the same as `_SIGNATURE_OF`, for entries where a key is missing or a value cannot be a key of a dict."""
    core = (entry.get("ph"), entry.get("cat"), entry.get("pid"), entry.get("tid"))
    try:
        hash(core)
    except TypeError:
        return (text_of(core[0]), text_of(core[1]), text_of(core[2]), text_of(core[3]))
    return core
