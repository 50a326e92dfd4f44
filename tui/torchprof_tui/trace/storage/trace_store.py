"""Store a trace in a folder as a file of columns and a file of everything else; open it by mapping the columns.

    columns    every array, one after the other, each aligned to at least 64 bytes
    meta.json  offset, dtype, shape and checksum of each array; lanes, steps, counts, header, …: a JSON document in one
               line, and the checksum of that line in the next

Every byte that is used later is covered by a checksum (CRC-32): those of `meta.json` are compared whenever a folder is
opened, all others where `open_trace` is to verify them. The folder may be moved as a whole: a text file in it is stored
by its name only.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import mmap
import os
from collections.abc import Iterator
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import Array
from torchprof_tui.trace.core.column_file import (
    ChecksumReader,
    ColumnFile,
    Shape,
    checksum_array,
    crc32,
    open_unbuffered,
)
from torchprof_tui.trace.core.problems import Problem
from torchprof_tui.trace.core.thread_tasks import run_tasks
from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.trace import (
    LINK_COUNTS,
    Counter,
    EntryCounts,
    Links,
    MemoryEvents,
    SparseColumn,
    Step,
    Trace,
)
from torchprof_tui.trace.model.trace_metadata import read_trace_metadata
from torchprof_tui.trace.text.block_text import BlockText, FileText, PlainText, TextIndex
from torchprof_tui.trace.text.gzip_text import GzipText
from torchprof_tui.trace.text.large_values import LargeValues

FORMAT_VERSION = 17
"""Version of both files. Increase it whenever the stored data or the meaning of its numbers (`Kind`) changes."""

COLUMNS_FILE = "columns"
META_FILE = "meta.json"

_EVENT_COLUMNS = (
    *("start", "duration", "name", "category", "kind", "lane", "row"),
    *("parent", "self_duration", "correlation", "ordinal", "row_order", "row_first"),
)
_LINK_COLUMNS = tuple(field.name for field in fields(Links) if field.name not in LINK_COUNTS)
_MEMORY_COLUMNS = tuple(field.name for field in fields(MemoryEvents))
_LANE_FIELDS = tuple(field.name for field in fields(Lane))
_INDEX_COLUMNS = ("starts", "sums", "masks", "best")
_TEXT_COLUMNS = ("first", "offset", "length", "checksum")

_PLAIN, _BLOCKS, _GZIP = "plain", "blocks", "gzip"  # how `meta.json` names the class of the trace's text


_MIN_PARALLEL_BYTES = 16 << 20  # bytes of columns from which their checksums are computed on several threads


class StoreError(Exception):
    """The folder does not hold a stored trace, or its files are damaged."""


class OtherVersionError(StoreError):
    """The folder holds a trace that another version of this program stored."""


class TraceWriter:
    """Writes a trace into an existing folder; long columns are allocated in the mapped file and computed there.

    All methods raise OSError if the data cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = ColumnFile(folder / COLUMNS_FILE)
        self._allocated: dict[str, Array] = {}

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        with contextlib.nullcontext() if raised is None else contextlib.suppress(OSError):
            self._file.close()

    def allocate(self, name: str, shape: Shape, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Allocate a column; a `ColumnAllocator`. The trace passed to `finish` must contain this array."""
        assert name not in self._allocated, name
        column = self._allocated[name] = self._file.allocate(name, shape, dtype)
        return column

    def finish(self, trace: Trace) -> None:
        """Write the rest of the trace, `meta.json` last: a folder without it holds no trace."""
        checksums: dict[str, int] = {}
        arrays_by_name = dict(iterate_arrays(trace))

        def compute_checksum(name: str) -> None:
            checksums[name] = checksum_array(arrays_by_name[name])

        largest_first = sorted(arrays_by_name, key=lambda name: -arrays_by_name[name].nbytes)
        is_large = sum(array.nbytes for array in arrays_by_name.values()) > _MIN_PARALLEL_BYTES
        run_tasks([partial(compute_checksum, name) for name in largest_first], None if is_large else 1)
        for name, array in arrays_by_name.items():
            assert self._allocated.get(name, array) is array, name
            if name not in self._file.layout:
                self._file.write(name, array)
        self._file.close()
        arrays = {name: (*layout, checksums[name]) for name, layout in self._file.layout.items()}
        # Not orjson: headers may contain NaN, and names lone surrogates, which it refuses.
        text = json.dumps({"arrays": arrays, **_build_meta(trace, self._file.size, self._folder)}).encode("ascii")
        (self._folder / META_FILE).write_bytes(b"%b\n%08x" % (text, crc32(text)))


def iterate_arrays(trace: Trace) -> Iterator[tuple[str, Array]]:
    """Iterate over the arrays of a trace with their names in the file."""
    assert isinstance(trace.text, FileText), "merged ranks are stored rank by rank"
    for name in _EVENT_COLUMNS:
        yield name, getattr(trace, name)
    for name in _LINK_COLUMNS:
        yield f"links.{name}", getattr(trace.links, name)
    for name in _INDEX_COLUMNS:
        yield f"index.{name}", getattr(trace.row_index, name)
    for name, arg in trace.args.items():
        yield f"args.{name}.events", arg.events
        yield f"args.{name}.values", arg.values
    for k, counter in enumerate(trace.counters):
        yield f"counter.{k}.times", counter.times
        yield f"counter.{k}.values", counter.values
    if trace.memory is not None:
        for name in _MEMORY_COLUMNS:
            yield f"memory.{name}", getattr(trace.memory, name)
    for name in _TEXT_COLUMNS:
        yield f"text.{name}", getattr(trace.text, name)
    names = [name.encode("utf-8", "surrogatepass") for name in trace.names]
    yield "names.text", np.frombuffer(b"".join(names), np.uint8)
    yield "names.ends", np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))


def _build_meta(trace: Trace, size: int, folder: Path) -> dict[str, Any]:
    """Return everything but the arrays as JSON takes it. `size`: bytes of the file of columns."""
    large = trace.large_keys
    large_fields = large and [_relative_path(large.path, folder), large.compressed, large.spans, large.oversized]
    return {
        "version": FORMAT_VERSION,
        "bytes": size,
        "label": trace.label,
        "format": trace.format,
        "size": trace.size,
        "header": trace.header,
        "categories": trace.categories,
        "lanes": [[getattr(lane, name) for name in _LANE_FIELDS] for lane in trace.lanes],
        "counters": [[counter.lane, counter.name, counter.unit] for counter in trace.counters],
        "steps": [[step.name, step.number, step.event, step.start, step.duration] for step in trace.steps],
        "span": trace.span,
        "links": [getattr(trace.links, name) for name in LINK_COUNTS],
        "args": list(trace.args),
        "counts": asdict(trace.counts),
        "memory": trace.memory is not None,
        "problems": [[problem.kind, problem.count, problem.example] for problem in trace.problems],
        "origin": trace.origin,
        "large": large_fields,
        "text": _text_fields(trace.text, folder),
    }


def open_trace(folder: Path, verify: bool = False) -> Trace:
    """Map the stored trace of a folder, without copying a column. Raises StoreError, OSError.

    `verify`: compare all files with their checksums first. They are read for it, so that no page is mapped: 4 ms for
    91 MB in the page cache, and 3 ms for the checksums.
    """
    meta = _read_meta(folder)
    if verify:
        _verify_columns(folder / COLUMNS_FILE, meta["arrays"], meta["bytes"])
    columns = _MappedColumns(folder / COLUMNS_FILE, meta["arrays"], meta["bytes"])
    event_columns: dict[str, Any] = {name: columns[name] for name in _EVENT_COLUMNS}
    links: dict[str, Any] = {name: columns[f"links.{name}"] for name in _LINK_COLUMNS}
    links |= zip(LINK_COUNTS, meta["links"], strict=True)
    memory: dict[str, Any] = {name: columns[f"memory.{name}"] for name in _MEMORY_COLUMNS} if meta["memory"] else {}
    index: dict[str, Any] = {name: columns[f"index.{name}"] for name in _INDEX_COLUMNS}
    counters: list[Any] = [
        [*fields, columns[f"counter.{k}.times"], columns[f"counter.{k}.values"]]
        for k, fields in enumerate(meta["counters"])
    ]
    arg_columns: dict[str, list[Any]] = {
        name: [columns[f"args.{name}.events"], columns[f"args.{name}.values"]] for name in meta["args"]
    }
    large = None
    if meta["large"] is not None:
        path, compressed, spans, oversized = meta["large"]
        spans = {key: (offset, size, crc) for key, (offset, size, crc) in spans.items()}
        large = LargeValues(folder / path, compressed, spans, oversized)
    names = columns["names.text"].tobytes()
    name_bounds = itertools.pairwise([0, *columns["names.ends"].tolist()])
    trace = Trace(
        label=meta["label"],
        format=meta["format"],
        size=meta["size"],
        header=meta["header"],
        **event_columns,
        names=[names[begin:end].decode("utf-8", "surrogatepass") for begin, end in name_bounds],
        categories=meta["categories"],
        lanes=[Lane(Role(role), *rest) for role, *rest in meta["lanes"]],
        counters=[Counter(*fields) for fields in counters],
        steps=[Step(*fields) for fields in meta["steps"]],
        span=(meta["span"][0], meta["span"][1]),
        links=Links(**links),
        args={name: SparseColumn(*fields) for name, fields in arg_columns.items()},
        counts=EntryCounts(**meta["counts"]),
        text=_restore_text(folder, meta["text"], columns),
        memory=MemoryEvents(**memory) if memory else None,
        problems=[Problem(*fields) for fields in meta["problems"]],
        metadata=read_trace_metadata(meta["header"])[0],
        origin=meta["origin"],
        large_keys=large,
        stored_index=RowIndex(order=event_columns["row_order"], first=event_columns["row_first"], **index),
    )
    if verify:
        _verify_texts(trace, folder)
    return trace


def _verify_texts(trace: Trace, folder: Path) -> None:
    """Compare the text blocks and the copied values of a trace with their checksums. Raises StoreError."""
    if isinstance(trace.text, BlockText | GzipText) and not trace.text.is_intact():
        raise StoreError(f"the text in {folder} is damaged")
    if trace.large_keys is not None and not trace.large_keys.is_intact():
        raise StoreError(f"{trace.large_keys.path} is damaged")


def _verify_columns(path: Path, arrays: dict[str, Any], size: int) -> None:
    """Compare each column with its checksum, and the bytes between them with zero. Raises StoreError, OSError."""
    with open_unbuffered(path) as file:
        reader = ChecksumReader(file)
        position = 0
        for name, (offset, dtype, shape, checksum) in sorted(arrays.items(), key=lambda item: item[1][0]):
            length = math.prod(shape) * np.dtype(dtype).itemsize
            if not reader.skip_zeros(offset - position) or reader.read_checksum(length) != checksum:
                raise StoreError(f"the column {name} is damaged")
            position = offset + length
        if not reader.skip_zeros(size - position) or not reader.ended():
            raise StoreError("the file of columns is damaged")


def _read_meta(folder: Path) -> dict[str, Any]:
    """Read `meta.json`. Raises StoreError, OSError."""
    with open_unbuffered(folder / META_FILE) as file:
        text, _, checksum = file.readall().rpartition(b"\n")
    try:
        if checksum != b"%08x" % crc32(text):
            raise StoreError(f"{folder / META_FILE} is damaged")
        meta = json.loads(text)
    except ValueError as error:
        raise StoreError(f"{folder / META_FILE} is damaged: {error}") from error
    if not isinstance(meta, dict) or meta.get("version") != FORMAT_VERSION:
        raise OtherVersionError(f"{folder} was written by another version of this program")
    return meta


class _MappedColumns:
    """Read-only views of the arrays in a mapped column file."""

    def __init__(self, path: Path, arrays: dict[str, Any], size: int) -> None:
        self._arrays = arrays
        with open_unbuffered(path) as file:
            if os.fstat(file.fileno()).st_size != size:
                raise StoreError(f"{path} is cut short")
            # A trace without any array element has an empty file, which cannot be mapped.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""

    def __getitem__(self, name: str) -> Array:
        try:
            offset, dtype, shape, _ = self._arrays[name]
        except KeyError:
            raise StoreError(f"the column {name} is missing") from None
        count = int(np.prod(shape, dtype=np.int64))
        if not count:
            return np.zeros(shape, dtype)
        column: Array = np.frombuffer(self._map, dtype, count, offset).reshape(shape)
        return column


def _text_fields(text: TextIndex, folder: Path) -> list[Any]:
    """Return [class, path], for a gzip file followed by [path of its blocks, *fingerprint]."""
    if isinstance(text, GzipText):
        return [_GZIP, str(text.path), _relative_path(text.blocks_path, folder), *text.fingerprint]
    assert isinstance(text, PlainText | BlockText)
    return [_PLAIN if isinstance(text, PlainText) else _BLOCKS, _relative_path(text.path, folder)]


def _restore_text(folder: Path, fields: list[Any], columns: _MappedColumns) -> FileText:
    kind, path, *rest = fields
    arrays: dict[str, Any] = {name: columns[f"text.{name}"] for name in _TEXT_COLUMNS}
    if kind == _GZIP:
        blocks_path, *fingerprint = rest
        return GzipText(Path(path), **arrays, fingerprint=tuple(fingerprint), blocks_path=folder / blocks_path)
    return (PlainText if kind == _PLAIN else BlockText)(folder / path, **arrays)


def _relative_path(path: Path, folder: Path) -> str:
    """Return the name of a file in the folder, the absolute path of any other."""
    return path.name if path.parent == folder else str(path.absolute())
