"""Sketches as Parquet: one row per rank and step, its collectives, kernels and ops as lists. Needs the extra `arrow`.

Columns of a row, with their units; times are ns from the rank's first event, sizes bytes:

- `file`, `rank` (-1: unknown), `world_size` (0: unknown), `host`, `device`, `device_count`, `torch_version`, `regime`,
  `time_zero_ns` (since the epoch), `memory_peak_bytes` (-1: not recorded), `causes` (list of `id`, `ns`), `groups`
  (list of `name`, `position`, `size`: its process groups), `problems` (list of texts): of the rank, in each of its rows
- `step` (-1: no steps), `start_ns`, `end_ns`, `busy_ns`, `compute_ns`, `communication_ns`, `exposed_ns`,
  `cpu_ns`, `collective_count`, `idle_ns` (list, in the order of the key `idle_causes` of the file's metadata)
- `collectives`: list of `group`, `operation`, `order`, `start_ns`, `end_ns`, `bytes`
- `kernels` (by class), `ops` (by name): list of `name`, `count`, `total_ns`, `median_ns`, `p90_ns`, `longest_ns`

A rank without any step has no row; every trace has at least one.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from torchprof_tui.analysis.fleet.rank_sketch import (
    SKETCH_VERSION,
    DurationQuantiles,
    RankSketch,
    SketchCollectives,
    SketchSteps,
)
from torchprof_tui.analysis.patterns.engine.gpu_idle_causes import IdleCause
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.optional_modules import import_extra

if TYPE_CHECKING:
    import pyarrow as pa

EXTRA = "arrow"

_VERSION_KEY = "torchprof_tui_sketch"

_RANK_TEXTS = ("file", "host", "device", "torch_version", "regime")
_RANK_NUMBERS = {
    "rank": "rank",
    "world_size": "world_size",
    "device_count": "device_count",
    "time_zero_ns": "time_zero",
    "memory_peak_bytes": "memory_peak",
}
_STEP_NUMBERS = {
    "step": "number",
    "start_ns": "start",
    "end_ns": "end",
    "busy_ns": "busy",
    "compute_ns": "compute",
    "communication_ns": "communication",
    "exposed_ns": "exposed",
    "cpu_ns": "cpu",
    "collective_count": "collective_count",
}
_CAUSE_FIELDS = ("id", "ns")
_GROUP_FIELDS = ("name", "position", "size")
_DURATION_NUMBERS = {
    "count": "count",
    "total_ns": "total",
    "median_ns": "median",
    "p90_ns": "p90",
    "longest_ns": "longest",
}


def build_sketch_table(sketches: Sequence[RankSketch]) -> pa.Table:
    """Build the table of sketches. Raises MissingExtraError."""
    arrow = import_extra("pyarrow", EXTRA)
    tables = [_build_rank_table(arrow, sketch) for sketch in sketches]
    return arrow.concat_tables(tables).combine_chunks()


def _build_rank_table(arrow: Any, sketch: RankSketch) -> pa.Table:
    steps = sketch.steps
    rows = len(steps)
    columns: dict[str, Any] = {name: arrow.array([getattr(sketch, name)] * rows) for name in _RANK_TEXTS}
    for name, field in _RANK_NUMBERS.items():
        columns[name] = _numbers(arrow, np.full(rows, getattr(sketch, field), np.int64))
    columns["causes"] = _repeat_tuples(arrow, sketch.causes, rows, _CAUSE_FIELDS)
    columns["groups"] = _repeat_tuples(arrow, sketch.groups, rows, _GROUP_FIELDS)
    problems = arrow.array(list(sketch.problems) * rows, arrow.string())
    columns["problems"] = _lists(arrow, np.full(rows, len(sketch.problems)), problems)
    for name, field in _STEP_NUMBERS.items():
        columns[name] = _numbers(arrow, getattr(steps, field))
    columns["idle_ns"] = _lists(arrow, np.full(rows, len(IdleCause)), _numbers(arrow, steps.idle.reshape(-1)))
    collectives = sketch.collectives
    fields = {
        "group": _texts(arrow, collectives.group, collectives.texts),
        "operation": _texts(arrow, collectives.operation, collectives.texts),
        "order": arrow.array(collectives.order),
        "start_ns": _numbers(arrow, collectives.start),
        "end_ns": _numbers(arrow, collectives.end),
        "bytes": _numbers(arrow, collectives.bytes),
    }
    columns["collectives"] = _structs(arrow, collectives.step, rows, fields)
    for name, quantiles in (("kernels", sketch.kernels), ("ops", sketch.ops)):
        fields = {"name": _texts(arrow, quantiles.name, quantiles.names)}
        for column, field in _DURATION_NUMBERS.items():
            fields[column] = _numbers(arrow, getattr(quantiles, field))
        columns[name] = _structs(arrow, quantiles.step, rows, fields)
    return arrow.table(columns)


def _repeat_tuples(arrow: Any, values: Sequence[tuple[Any, ...]], rows: int, fields: Sequence[str]) -> Any:
    """Build the same list of structs for each row; the first field is a text, the others are numbers."""
    kinds = [arrow.string(), *[arrow.int64()] * (len(fields) - 1)]
    arrays = [arrow.array([value[at] for value in values] * rows, kind) for at, kind in enumerate(kinds)]
    return _lists(arrow, np.full(rows, len(values)), arrow.StructArray.from_arrays(arrays, names=list(fields)))


def _numbers(arrow: Any, values: Any) -> Any:
    return arrow.array(np.ascontiguousarray(values, np.int64))


def _texts(arrow: Any, index: Any, texts: Sequence[str]) -> Any:
    """Build an array of texts. Lone surrogates, which names in a trace may contain, are replaced."""
    clean = [text.encode(errors="replace").decode() for text in texts]
    return arrow.array(clean, arrow.string()).take(arrow.array(index))


def _lists(arrow: Any, lengths: Any, values: Any) -> Any:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return arrow.ListArray.from_arrays(arrow.array(offsets), values)


def _structs(arrow: Any, step: Any, rows: int, fields: dict[str, Any]) -> Any:
    values = arrow.StructArray.from_arrays(list(fields.values()), names=list(fields))
    return _lists(arrow, np.bincount(step, minlength=rows), values)


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
        file = parquet.ParquetFile(arrow.BufferReader(data), pre_buffer=False, page_checksum_verification=True)
        metadata = file.metadata.metadata or {}
        if metadata.get(_VERSION_KEY.encode()) != str(SKETCH_VERSION).encode():
            raise TraceError("not sketches of this version")
        table = file.read(use_threads=False).combine_chunks()
        names = table.column("file").to_pylist()
        bounds = [row for row in range(len(names)) if not row or names[row] != names[row - 1]] + [len(names)]
        return [_decode_rank(table.slice(first, last - first)) for first, last in pairwise(bounds)]
    except (arrow.ArrowException, OSError, KeyError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"not a Parquet file of sketches ({' '.join(str(error).split())[:100]})") from error


def _decode_rank(table: Any) -> RankSketch:
    repeated = (*_RANK_TEXTS, *_RANK_NUMBERS, "causes", "groups", "problems")
    first = {name: table.column(name)[0].as_py() for name in repeated}
    idle = _values(_chunk(table, "idle_ns").flatten()).reshape(table.num_rows, -1)
    return RankSketch(
        **{name: first[name] for name in _RANK_TEXTS},
        **{field: first[name] for name, field in _RANK_NUMBERS.items()},
        causes=tuple(tuple(part[name] for name in _CAUSE_FIELDS) for part in first["causes"]),
        groups=tuple(tuple(group[name] for name in _GROUP_FIELDS) for group in first["groups"]),
        problems=tuple(first["problems"]),
        steps=SketchSteps(**{field: _values(_chunk(table, name)) for name, field in _STEP_NUMBERS.items()}, idle=idle),
        collectives=_decode_collectives(_chunk(table, "collectives")),
        kernels=_decode_durations(_chunk(table, "kernels")),
        ops=_decode_durations(_chunk(table, "ops")),
    )


def _chunk(table: Any, name: str) -> Any:
    return table.column(name).chunk(0)


def _values(array: Any) -> Any:
    return array.to_numpy(zero_copy_only=False).copy()


def _list_steps(lists: Any) -> Any:
    """Return the index of the row that each value of a list array belongs to: int32[k]."""
    offsets = lists.offsets.to_numpy()
    return np.repeat(np.arange(len(lists), dtype=np.int32), np.diff(offsets))


def _decode_texts(array: Any) -> tuple[Any, tuple[str, ...]]:
    encoded = array.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32), tuple(encoded.dictionary.to_pylist())


def _decode_collectives(lists: Any) -> SketchCollectives:
    values = lists.flatten()
    group, group_texts = _decode_texts(values.field("group"))
    operation, operation_texts = _decode_texts(values.field("operation"))
    return SketchCollectives(
        step=_list_steps(lists),
        group=group,
        operation=(operation + len(group_texts)).astype(np.int32),
        order=_values(values.field("order")),
        start=_values(values.field("start_ns")),
        end=_values(values.field("end_ns")),
        bytes=_values(values.field("bytes")),
        texts=(*group_texts, *operation_texts),
    )


def _decode_durations(lists: Any) -> DurationQuantiles:
    values = lists.flatten()
    name, names = _decode_texts(values.field("name"))
    numbers = {field: _values(values.field(column)) for column, field in _DURATION_NUMBERS.items()}
    return DurationQuantiles(step=_list_steps(lists), name=name, names=names, **numbers)
