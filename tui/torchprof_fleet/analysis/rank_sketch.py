"""The sketch of a trace: what comparing a rank with a thousand others needs, in a few KB per step.

Times are int64 ns from the rank's first event, sizes int64 bytes. A trace without steps has one step, number -1, that
is the whole recording.

Sketches are stored as Parquet: one row per rank and step, its collectives, kernels and ops as lists. That needs the
extra `fleet`. Columns of a row, with their units; times are ns from the rank's first event, sizes bytes:

- `file`, `rank` (-1: unknown), `world_size` (0: unknown), `host`, `device`, `device_count`, `torch_version`, `regime`,
  `time_zero_ns` (since the epoch), `memory_peak_bytes` (-1: not recorded), `causes` (list of `id`, `ns`), `groups`
  (list of `name`, `position`, `size`: its process groups), `problems` (list of texts): of the rank, in each of its rows
- `step` (-1: no steps), `start_ns`, `end_ns`, `busy_ns`, `compute_ns`, `communication_ns`, `exposed_ns`,
  `cpu_ns`, `collective_count`, `idle_ns` (list, in the order of the key `idle_causes` of the file's metadata)
- `collectives`: list of `group`, `operation`, `order`, `start_ns`, `end_ns`, `bytes`
- `kernels` (by class), `ops` (by name): list of `name`, `count`, `total_ns`, `median_ns`, `p90_ns`, `longest_ns`

A rank without any step has no row; every trace has at least one.

`pyarrow.array` and `to_numpy` import pandas wherever it is installed, which takes longer than to sketch a trace. All
functions take the module `pyarrow`, which is optional.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.extensions import import_extra
from torchprof_tui.trace.core.records import record

if TYPE_CHECKING:
    import pyarrow as pa

SKETCH_VERSION = 3  # version of the record and of its Parquet schema: a stored sketch of another version is made again
WHOLE_TRACE = -1  # number of the only step of a trace without steps
UNKNOWN_BYTES = -1  # memory peak of a trace that recorded no memory


@record
class SketchSteps:
    """s steps. `busy`, `compute`, `exposed`, `communication` int64[s]: ns summed over the rank's GPUs.

    `busy`: the union of all GPU work; `communication`: of collectives; `exposed`: of those while nothing else computed.
    `cpu`: ns in which the main thread did not wait for the GPU, 0 where no thread was recorded.
    `idle` int64[s, c]: ns by cause, in the order of `IdleCause`. `collective_count` int64[s]: before any are left out.
    """

    number: I64
    start: I64
    end: I64
    busy: I64
    compute: I64
    communication: I64
    exposed: I64
    cpu: I64
    idle: I64
    collective_count: I64

    def __len__(self) -> int:
        return len(self.number)


@record
class SketchCollectives:
    """k collectives by step, group and order. `step`: index of the step that launched it.

    `order`: how many of its group the step launched before it, equal on all ranks of the group. `group`, `operation`:
    indexes into `texts`. Of a step with too many collectives every n-th of each group is kept, the same on all ranks.
    """

    step: I32
    group: I32
    operation: I32
    order: I32
    start: I64
    end: I64
    bytes: I64
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.step)


@record
class DurationQuantiles:
    """k pairs of a step and a name: how often it ran, ns in total, and quantiles of one run's ns."""

    step: I32
    name: I32
    count: I64
    total: I64
    median: I64
    p90: I64
    longest: I64
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.step)


@record
class RankSketch:
    """One rank. `rank` -1, `world_size` 0, `host` "" where unknown; `time_zero`: ns since the epoch of its first event.

    `groups`: the process groups that it is in: name, its position among their ranks, their size.
    `regime`: of the verdict; `causes`: the parts of its time, (cause, ns). `kernels`: by class of kernel; `ops`: by op,
    time without what it calls. `problems`: what of the recording is lost.
    """

    file: str
    rank: int
    world_size: int
    host: str
    device: str
    device_count: int
    torch_version: str
    time_zero: int
    memory_peak: int
    regime: str
    causes: tuple[tuple[str, int], ...]
    groups: tuple[tuple[str, int, int], ...]
    problems: tuple[str, ...]
    steps: SketchSteps
    collectives: SketchCollectives
    kernels: DurationQuantiles
    ops: DurationQuantiles


EXTRA = "fleet"

Number = TypeVar("Number", np.int32, np.int64)

_MAX_TEXT_BYTES = 2**31 - 1  # bytes of text in an array, whose offsets are int32


def build_numbers(arrow: Any, values: Any, kind: type[np.int32 | np.int64] = np.int64) -> Any:
    """Build an array of a kind from int[k]."""
    data = np.ascontiguousarray(values, kind)
    return arrow.Array.from_buffers(getattr(arrow, kind.__name__)(), len(data), [None, arrow.py_buffer(data)])


def build_texts(arrow: Any, texts: Sequence[str], index: Any) -> Any:
    """Build an array of k texts, `texts[index]`, int[k]. Lone surrogates, which a trace may contain, are replaced."""
    encoded = [text.encode(errors="replace") for text in texts]
    size = np.array([len(text) for text in encoded], np.int64)
    offsets = np.concatenate([[0], np.cumsum(size[index])]) if len(index) else np.zeros(1, np.int64)
    if offsets[-1] > _MAX_TEXT_BYTES:
        raise OverflowError("more than 2 GiB of text in one column")
    data = b"".join([encoded[number] for number in np.asarray(index).tolist()])
    buffers = [None, arrow.py_buffer(offsets.astype(np.int32)), arrow.py_buffer(data)]
    return arrow.Array.from_buffers(arrow.string(), len(index), buffers)


def build_lists(arrow: Any, lengths: Any, values: Any) -> Any:
    """Build an array of lists with these lengths, int[k], of an array of all their values."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return arrow.ListArray.from_arrays(build_numbers(arrow, offsets, np.int32), values)


def read_numbers(array: Any, kind: type[Number]) -> NDArray[Number]:
    """Read an array of a kind without nulls. Raises ValueError for another one."""
    if str(array.type) != kind.__name__ or array.null_count:
        raise ValueError(f"a column is {array.type}, not {kind.__name__} without nulls")
    data = array.buffers()[1]
    if data is None:  # of no values
        return np.zeros(0, kind)
    return np.array(np.frombuffer(data, kind)[array.offset : array.offset + len(array)], kind)


def read_codes(array: Any) -> tuple[I32, list[str]]:
    """Read an array of texts that is stored as a dictionary: indexes int32[k], and the texts. Raises ValueError."""
    if not str(array.type).startswith("dictionary<values=string") or array.dictionary.null_count:
        raise ValueError(f"a column is {array.type}, not texts without nulls")
    return read_numbers(array.indices, np.int32), array.dictionary.to_pylist()


def read_lists(array: Any) -> tuple[I32, Any]:
    """Read an array of lists without nulls: their offsets int32[k + 1], and the array of all values."""
    if array.null_count:
        raise ValueError("a list is null")
    return read_numbers(array.offsets, np.int32), array.values


_VERSION_KEY = "torchprof_tui_sketch"

_CODED = [
    "file",
    "collectives.list.element.group",
    "collectives.list.element.operation",
    "kernels.list.element.name",
    "ops.list.element.name",
]
"""Columns of texts that are read as indexes into the distinct ones."""

_RANK_TEXTS = ("file", "host", "device", "torch_version", "regime")


def _name_fields(*columns: str) -> dict[str, str]:
    """Name the field of each column: without its unit."""
    return {column: column.removesuffix("_ns").removesuffix("_bytes") for column in columns}


_RANK_NUMBERS = _name_fields("rank", "world_size", "device_count", "time_zero_ns", "memory_peak_bytes")
_STEP_TIMES = ("start_ns", "end_ns", "busy_ns", "compute_ns", "communication_ns", "exposed_ns", "cpu_ns")
_STEP_NUMBERS = {"step": "number", **_name_fields(*_STEP_TIMES, "collective_count")}
_COLLECTIVE_NUMBERS = _name_fields("start_ns", "end_ns", "bytes")
_CAUSE_FIELDS = ("id", "ns")
_GROUP_FIELDS = ("name", "position", "size")
_DURATION_NUMBERS = _name_fields("count", "total_ns", "median_ns", "p90_ns", "longest_ns")


def build_sketch_table(sketches: Sequence[RankSketch]) -> pa.Table:
    """Build the table of sketches, of at least one. Raises MissingExtraError."""
    arrow = import_extra("pyarrow", EXTRA)
    rows = [len(sketch.steps) for sketch in sketches]
    columns: dict[str, Any] = {}
    index = np.repeat(np.arange(len(sketches)), rows)
    for name in _RANK_TEXTS:
        columns[name] = build_texts(arrow, [getattr(sketch, name) for sketch in sketches], index)
    for name, field in _RANK_NUMBERS.items():
        columns[name] = build_numbers(arrow, np.repeat([getattr(sketch, field) for sketch in sketches], rows))
    columns["causes"] = _repeat_tuples(arrow, [sketch.causes for sketch in sketches], rows, _CAUSE_FIELDS)
    columns["groups"] = _repeat_tuples(arrow, [sketch.groups for sketch in sketches], rows, _GROUP_FIELDS)
    problems = [sketch.problems for sketch in sketches]
    texts = [text for each, count in zip(problems, rows, strict=True) for _ in range(count) for text in each]
    lengths = np.repeat([len(each) for each in problems], rows)
    columns["problems"] = build_lists(arrow, lengths, build_texts(arrow, texts, np.arange(len(texts))))
    for name, field in _STEP_NUMBERS.items():
        columns[name] = build_numbers(arrow, np.concatenate([getattr(sketch.steps, field) for sketch in sketches]))
    idle = np.concatenate([sketch.steps.idle.reshape(-1) for sketch in sketches])
    columns["idle_ns"] = build_lists(arrow, np.full(sum(rows), len(IdleCause)), build_numbers(arrow, idle))
    collectives = [sketch.collectives for sketch in sketches]
    coded = {name: [(getattr(each, name), each.texts) for each in collectives] for name in ("group", "operation")}
    order = {"order": build_numbers(arrow, np.concatenate([each.order for each in collectives]), np.int32)}
    columns["collectives"] = _build_structs(arrow, collectives, rows, coded, order, _COLLECTIVE_NUMBERS)
    for name in ("kernels", "ops"):
        durations = [getattr(sketch, name) for sketch in sketches]
        names = {"name": [(each.name, each.names) for each in durations]}
        columns[name] = _build_structs(arrow, durations, rows, names, {}, _DURATION_NUMBERS)
    return arrow.table(columns)


def _repeat_tuples(
    arrow: Any, values: Sequence[Sequence[tuple[Any, ...]]], rows: Sequence[int], fields: Sequence[str]
) -> Any:
    """Build a list of structs for each row, equal in all rows of a sketch: a text, then numbers."""
    repeated = [part for each, count in zip(values, rows, strict=True) for _ in range(count) for part in each]
    arrays = [build_texts(arrow, [part[0] for part in repeated], np.arange(len(repeated)))]
    arrays += [build_numbers(arrow, [part[at] for part in repeated]) for at in range(1, len(fields))]
    lengths = np.repeat([len(each) for each in values], rows)
    return build_lists(arrow, lengths, arrow.StructArray.from_arrays(arrays, names=list(fields)))


def _build_structs(
    arrow: Any,
    tables: Sequence[SketchCollectives | DurationQuantiles],
    rows: Sequence[int],
    texts: Mapping[str, Sequence[tuple[Any, Sequence[str]]]],
    others: dict[str, Any],
    numbers: dict[str, str],
) -> Any:
    """Build a list of structs for each row: texts (indexes and texts of each table), others, numbers."""
    fields = {}
    for name, pairs in texts.items():
        offsets = np.concatenate([[0], np.cumsum([len(known) for _, known in pairs])])[:-1]
        index = np.concatenate([index + offset for (index, _), offset in zip(pairs, offsets, strict=True)])
        fields[name] = build_texts(arrow, [text for _, known in pairs for text in known], index)
    fields |= others
    for name, field in numbers.items():
        fields[name] = build_numbers(arrow, np.concatenate([getattr(each, field) for each in tables]))
    first = np.concatenate([[0], np.cumsum(rows)])[:-1]
    row = np.concatenate([each.step + start for each, start in zip(tables, first, strict=True)])
    values = arrow.StructArray.from_arrays(list(fields.values()), names=list(fields))
    return build_lists(arrow, np.bincount(row, minlength=sum(rows)), values)


def encode_sketches(sketches: Sequence[RankSketch]) -> bytes:
    """Encode sketches as one Parquet file: equal sketches give equal bytes. Raises MissingExtraError."""
    table = build_sketch_table(sketches)
    parquet = import_extra("pyarrow.parquet", EXTRA)
    out = io.BytesIO()
    with parquet.ParquetWriter(
        out, table.schema, compression="zstd", write_statistics=False, store_schema=False, write_page_checksum=True
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            {_VERSION_KEY: str(SKETCH_VERSION), "idle_causes": ",".join(cause.id for cause in IdleCause)}
        )
    return out.getvalue()


def decode_sketches(data: bytes) -> list[RankSketch]:
    """Decode the sketches of a Parquet file. Raises TraceError where it is none of this version."""
    arrow = import_extra("pyarrow", EXTRA)
    parquet = import_extra("pyarrow.parquet", EXTRA)
    try:
        file = parquet.ParquetFile(
            arrow.BufferReader(data), pre_buffer=False, page_checksum_verification=True, read_dictionary=_CODED
        )
        metadata = file.metadata.metadata or {}
        if metadata.get(_VERSION_KEY.encode()) != str(SKETCH_VERSION).encode():
            raise TraceError("not sketches of this version")
        return _decode_table(file.read(use_threads=False).combine_chunks())
    except (arrow.ArrowException, OSError, KeyError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"not a Parquet file of sketches ({' '.join(str(error).split())[:100]})") from error


def _decode_table(table: Any) -> list[RankSketch]:
    """Decode all sketches of a table. Whole columns are converted once: a rank is a slice of each."""
    if not table.num_rows:
        return []
    file, _ = read_codes(_chunk(table, "file"))
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(file)) + 1, [table.num_rows]]).tolist()
    repeated = (*_RANK_TEXTS, *_RANK_NUMBERS, "causes", "groups", "problems")
    of_rank = {name: [_chunk(table, name)[row].as_py() for row in bounds[:-1]] for name in repeated}
    firsts = [dict(zip(of_rank, values, strict=True)) for values in zip(*of_rank.values(), strict=True)]
    idle = read_numbers(read_lists(_chunk(table, "idle_ns"))[1], np.int64).reshape(table.num_rows, -1)
    steps = {field: read_numbers(_chunk(table, name), np.int64) for name, field in _STEP_NUMBERS.items()}
    collectives = _Flat(_chunk(table, "collectives"), ("group", "operation"), tuple(_COLLECTIVE_NUMBERS))
    order = read_numbers(_chunk(table, "collectives").values.field("order"), np.int32)
    durations = [_Flat(_chunk(table, name), ("name",), tuple(_DURATION_NUMBERS)) for name in ("kernels", "ops")]
    found = []
    for first, (low, high) in zip(firsts, pairwise(bounds), strict=True):
        kernels, ops = (_decode_durations(flat, low, high) for flat in durations)
        step, part = collectives.find_steps(low, high)
        group, group_texts = collectives.take_texts("group", part)
        operation, operation_texts = collectives.take_texts("operation", part)
        found.append(
            RankSketch(
                **{name: first[name] for name in _RANK_TEXTS},
                **{field: first[name] for name, field in _RANK_NUMBERS.items()},
                causes=tuple(tuple(part[name] for name in _CAUSE_FIELDS) for part in first["causes"]),
                groups=tuple(tuple(group[name] for name in _GROUP_FIELDS) for group in first["groups"]),
                problems=tuple(first["problems"]),
                steps=SketchSteps(**{field: column[low:high] for field, column in steps.items()}, idle=idle[low:high]),
                collectives=SketchCollectives(
                    step=step,
                    group=group,
                    operation=(operation + len(group_texts)).astype(np.int32),
                    order=order[part],
                    **{field: collectives.numbers[name][part] for name, field in _COLLECTIVE_NUMBERS.items()},
                    texts=(*group_texts, *operation_texts),
                ),
                kernels=kernels,
                ops=ops,
            )
        )
    return found


class _Flat:
    """The values of a column of lists of structs, as numpy arrays. `codes`: of a text, into `texts`."""

    def __init__(self, lists: Any, texts: Sequence[str], numbers: Sequence[str]) -> None:
        self.offsets, values = read_lists(lists)
        self.numbers = {name: read_numbers(values.field(name), np.int64) for name in numbers}
        self.codes, self.texts = {}, {}
        for name in texts:
            self.codes[name], self.texts[name] = read_codes(values.field(name))

    def find_steps(self, low: int, high: int) -> tuple[Any, slice]:
        """Return the index of the step, from `low` on, of each value of some rows (int32[k]), and these values."""
        part = slice(int(self.offsets[low]), int(self.offsets[high]))
        lengths = np.diff(self.offsets[low : high + 1])
        return np.repeat(np.arange(high - low, dtype=np.int32), lengths), part

    def take_texts(self, name: str, part: slice) -> tuple[Any, tuple[str, ...]]:
        """Return indexes int32[k] into the texts of some values alone, in the order in which these first occur."""
        codes = self.codes[name][part]
        used, first, index = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        place = np.empty(len(used), np.int32)
        place[order] = np.arange(len(used), dtype=np.int32)
        texts = self.texts[name]
        return place[index.reshape(-1)], tuple(texts[code] for code in used[order].tolist())


def _chunk(table: Any, name: str) -> Any:
    return table.column(name).chunk(0)


def _decode_durations(flat: _Flat, low: int, high: int) -> DurationQuantiles:
    step, part = flat.find_steps(low, high)
    name, names = flat.take_texts("name", part)
    numbers = {field: flat.numbers[column][part] for column, field in _DURATION_NUMBERS.items()}
    return DurationQuantiles(step=step, name=name, names=names, **numbers)
