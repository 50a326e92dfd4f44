"""Select the columns of events for a table of them, and write them as CSV, Parquet or Arrow.

A row is an event on a lane: a span or a mark. Counter points and `[memory]` records are no events. Rows have the order
of the trace: by lane, then start, then longest first, so that the index of a row is the number of its event. Columns
are computed when they are first asked for; those of times and links are the trace's own arrays, not copies.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from torchprof_tui.analysis.table.event_scope import compute_request_times, step_index_at
from torchprof_tui.trace.core.arrays import I32, I64, block_slices
from torchprof_tui.trace.core.atomic_file import open_atomically
from torchprof_tui.trace.core.extensions import import_extra
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa


_Integers = TypeVar("_Integers", I32, I64)
_LaneText = Callable[[Lane], str]

MISSING = -1  # value of a row that has none, in columns of numbers; null in files

TEXT_COLUMNS = ("name", "category", "kind", "lane", "group", "process", "thread")
TIME_COLUMNS = ("start_ns", "duration_ns", "self_ns")
NUMBER_COLUMNS = ("stream", "device", "rank", "step", "correlation", "parent", "launch")
COLUMNS = (*TEXT_COLUMNS[:3], *TIME_COLUMNS, *TEXT_COLUMNS[3:], *NUMBER_COLUMNS)  # all columns, in the order of files


@record
class DictionaryColumn:
    """A column of texts: row i has `values[codes[i]]`. `codes`: int32[n]."""

    codes: I32
    values: list[str]

    def __len__(self) -> int:
        return len(self.codes)

    def compact(self) -> DictionaryColumn:
        """Return the column with values that occur, each once, as text that UTF-8 can encode."""
        used = np.flatnonzero(np.bincount(self.codes, minlength=len(self.values)))
        index: dict[str, int] = {}
        new_codes = np.zeros(len(self.values), np.int32)
        for code in used.tolist():
            text = self.values[code].encode(errors="backslashreplace").decode()  # JSON can spell lone surrogates
            new_codes[code] = index.setdefault(text, len(index))
        return DictionaryColumn(new_codes[self.codes], list(index))

    def to_numpy(self) -> npt.NDArray[np.object_]:
        """Return the texts of all rows: object[n]."""
        return np.array(self.values, dtype=object)[self.codes]

    def texts(self, begin: int, end: int) -> list[str]:
        values = self.values
        return [values[code] for code in self.codes[begin:end].tolist()]


@dataclass(frozen=True)
class EventColumns:
    """The columns of n events. Arrays are read-only."""

    trace: Trace

    def __len__(self) -> int:
        return len(self.trace)

    def _text_columns(self) -> list[tuple[str, DictionaryColumn]]:
        return [(name, getattr(self, name)) for name in TEXT_COLUMNS]

    @property
    def name(self) -> DictionaryColumn:
        return DictionaryColumn(_protect(self.trace.name), self.trace.names)

    @cached_property
    def category(self) -> DictionaryColumn:
        """`cat` of the file: cpu_op, kernel, …"""
        return DictionaryColumn(_protect(self.trace.category.astype(np.int32)), self.trace.categories)

    @cached_property
    def kind(self) -> DictionaryColumn:
        """The kind of event, in one vocabulary for all vendors and versions: op, kernel, copy, … (`Kind`)."""
        return DictionaryColumn(_protect(self.trace.kind.astype(np.int32)), [kind.name.lower() for kind in Kind])

    @property
    def start_ns(self) -> I64:
        """int64[n] ns from the first event of the trace."""
        return _protect(self.trace.start)

    @property
    def duration_ns(self) -> I64:
        """int64[n] ns, 0 for marks."""
        return _protect(self.trace.duration)

    @property
    def self_ns(self) -> I64:
        """int64[n] ns: duration without that of the events directly below."""
        return _protect(self.trace.self_duration)

    @cached_property
    def lane(self) -> DictionaryColumn:
        """The label of the lane: "CPU 431 python3", "stream 7"."""
        return self._text_of_lane(lambda lane: lane.label)

    @cached_property
    def group(self) -> DictionaryColumn:
        """The heading of the lane: "CPU", "GPU 0 NVIDIA H200", the name of a process."""
        return self._text_of_lane(lambda lane: lane.group)

    @cached_property
    def process(self) -> DictionaryColumn:
        """`pid` of the file."""
        return self._text_of_lane(lambda lane: lane.pid)

    @cached_property
    def thread(self) -> DictionaryColumn:
        """`tid` of the file; of GPU work, the stream."""
        return self._text_of_lane(lambda lane: lane.tid)

    @cached_property
    def stream(self) -> I32:
        """int32[n]: the stream of GPU work."""
        return self._number_of_lane([_stream_of_lane(lane) for lane in self.trace.lanes])

    @cached_property
    def device(self) -> I32:
        """int32[n]: the number of the GPU, for events on GPU lanes."""
        return self._number_of_lane([MISSING if lane.device is None else lane.device for lane in self.trace.lanes])

    @cached_property
    def rank(self) -> I32:
        """int32[n]: the rank of the process; MISSING where the file names none."""
        if self.trace.merged_ranks is None:
            number = MISSING if self.trace.rank is None else self.trace.rank
            return _protect(np.full(len(self), number, np.int32))
        ranks = self.trace.merged_ranks.all
        numbers = np.array([rank.number for rank in ranks], np.int32)
        return _protect(np.repeat(numbers, [len(rank.trace) for rank in ranks]))

    @cached_property
    def step(self) -> I32:
        """int32[n]: the number of the `ProfilerStep#N` that requested the event; GPU work has that of its launch."""
        times = compute_request_times(self.trace)
        step = np.full(len(self), MISSING, np.int32)
        for rank in self.trace.all_ranks:
            index = step_index_at(rank.trace, times[rank.first : rank.last])
            numbers = np.array([*(each.number for each in rank.trace.steps), MISSING])
            step[rank.first : rank.last] = np.where(numbers > np.iinfo(np.int32).max, MISSING, numbers)[index]
        return _protect(step)

    @cached_property
    def correlation(self) -> I64:
        """int64[n]: `args.correlation` of the file, unique within one rank."""
        merged = self.trace.merged_ranks
        if merged is None:
            return _protect(self.trace.correlation)
        return _protect(np.concatenate([rank.trace.correlation for rank in merged.all]))

    @property
    def parent(self) -> I32:
        """int32[n]: the row of the event directly above on its lane."""
        return _protect(self.trace.parent)

    @property
    def launch(self) -> I32:
        """int32[n]: the row of the runtime call that launched this GPU work."""
        return _protect(self.trace.links.launch_of)

    def _text_of_lane(self, text: _LaneText) -> DictionaryColumn:
        index: dict[str, int] = {}
        codes = [index.setdefault(text(lane), len(index)) for lane in self.trace.lanes]
        return DictionaryColumn(self._number_of_lane(codes), list(index))

    def _number_of_lane(self, numbers: list[int]) -> I32:
        return _protect(np.array(numbers, np.int32)[self.trace.lane] if len(self) else np.zeros(0, np.int32))


def _protect(column: _Integers) -> _Integers:
    """Return a view of a column of the trace that cannot be written to."""
    view = column[:]
    view.flags.writeable = False
    return view


def _stream_of_lane(lane: Lane) -> int:
    """Return the number of a stream, MISSING for other lanes and for streams without a number."""
    is_stream = lane.role in (Role.STREAM, Role.GPU_ANNOTATIONS, Role.SYNC) and not lane.merged_lanes
    digits = lane.tid.isascii() and lane.tid.isdecimal() and len(lane.tid) < 10
    return int(lane.tid) if is_stream and digits else MISSING


def write_csv(columns: EventColumns, out: Path) -> None:
    """Write CSV in UTF-8 with a header line; missing numbers are empty, unprintable characters `·`. Raises OutputError.

    Line breaks are unprintable too: each event is one line.
    """
    read_blocks = [_block_reader(columns, name) for name in COLUMNS]
    with open_atomically(out) as file:
        file.write(_format_rows([COLUMNS]))
        for block in block_slices(len(columns)):
            file.write(_format_rows(zip(*(read(block.start, block.stop) for read in read_blocks), strict=True)))


def _format_rows(rows: Iterable[Sequence[Any]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode(errors="replace")


def _block_reader(columns: EventColumns, name: str) -> Callable[[int, int], list[Any]]:
    column: Any = getattr(columns, name)
    if isinstance(column, DictionaryColumn):
        return replace(column, values=[clean(value) for value in column.values]).texts
    if name in TIME_COLUMNS:
        return lambda begin, end: list(column[begin:end].tolist())
    return lambda begin, end: ["" if value == MISSING else value for value in column[begin:end].tolist()]


EXTRA = "arrow"

_ROWS_PER_GROUP = 1 << 20
_MAX_DICTIONARY_BYTES = 64 << 20  # beyond this, Parquet repeats texts row by row; names of a large trace take a few MB
_ZSTD_LEVEL = 3


def require_arrow() -> None:
    """Raise MissingExtraError where pyarrow is not installed."""
    import_extra("pyarrow", EXTRA)


def build_arrow_table(columns: EventColumns) -> pa.Table:
    """Build the table: texts dictionary-encoded, times int64 ns, missing numbers null. Raises MissingExtraError.

    Columns of times share the trace's memory.
    """
    arrow = import_extra("pyarrow", EXTRA)
    arrays = []
    for name in COLUMNS:
        column = getattr(columns, name)
        if name in TEXT_COLUMNS:
            used = column.compact()
            texts = [value.encode() for value in used.values]
            bounds = np.cumsum([0, *map(len, texts)], dtype=np.int64)
            is_large = bounds[-1] > np.iinfo(np.int32).max
            offsets = arrow.py_buffer(bounds if is_large else bounds.astype(np.int32))
            kind = arrow.large_string() if is_large else arrow.string()
            values = arrow.Array.from_buffers(kind, len(texts), [None, offsets, arrow.py_buffer(b"".join(texts))])
            arrays.append(arrow.DictionaryArray.from_arrays(_build_number_array(arrow, used.codes, False), values))
        else:
            arrays.append(_build_number_array(arrow, column, name not in TIME_COLUMNS))
    return arrow.Table.from_arrays(arrays, names=list(COLUMNS))


# Arrays are built of buffers: `pyarrow.array` imports pandas where it is installed, which takes longer than the rest.


def _build_number_array(arrow: Any, column: I32 | I64, is_nullable: bool) -> Any:
    valid = None
    if is_nullable:
        is_valid = column != MISSING
        valid = None if is_valid.all() else arrow.py_buffer(np.packbits(is_valid, bitorder="little"))
    kind = arrow.int32() if column.dtype == np.int32 else arrow.int64()
    return arrow.Array.from_buffers(kind, len(column), [valid, arrow.py_buffer(np.ascontiguousarray(column))])


def write_parquet(columns: EventColumns, out: Path) -> None:
    """Write Parquet, compressed with zstd. Raises MissingExtraError, OutputError."""
    table = build_arrow_table(columns)
    parquet = import_extra("pyarrow.parquet", EXTRA)
    is_number = [name for name in COLUMNS if name not in TEXT_COLUMNS]
    with open_atomically(out) as file:
        parquet.write_table(
            table,
            file,
            row_group_size=_ROWS_PER_GROUP,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=list(TEXT_COLUMNS),
            dictionary_pagesize_limit=_MAX_DICTIONARY_BYTES,
            # Neighbours are close: rows are sorted by lane and start.
            column_encoding=dict.fromkeys(is_number, "DELTA_BINARY_PACKED"),
        )


def write_arrow(columns: EventColumns, out: Path) -> None:
    """Write an Arrow IPC file (Feather V2), compressed with zstd. Raises MissingExtraError, OutputError."""
    table = build_arrow_table(columns)
    ipc = import_extra("pyarrow.ipc", EXTRA)
    with (
        open_atomically(out) as file,
        ipc.new_file(file, table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer,
    ):
        writer.write_table(table)
