"""Write the events of a trace as an Arrow table, in Parquet or in Arrow's own file format. Needs the extra `arrow`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchprof_tui.analysis.export.event_columns import (
    COLUMNS,
    MISSING,
    TEXT_COLUMNS,
    TIME_COLUMNS,
    DictionaryColumn,
    EventColumns,
)
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.core.atomic_file import open_atomically
from torchprof_tui.trace.core.extensions import import_extra

if TYPE_CHECKING:
    import pyarrow as pa

EXTRA = "arrow"

_ROWS_PER_GROUP = 1 << 20
_MAX_DICTIONARY_BYTES = 64 << 20
"""Beyond this, Parquet repeats texts row by row; names of a large trace take a few MB."""

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
            arrays.append(_build_dictionary_array(arrow, column))
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


def _build_dictionary_array(arrow: Any, column: DictionaryColumn) -> Any:
    used = column.compact()
    texts = [value.encode() for value in used.values]
    bounds = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    is_large = bounds[-1] > np.iinfo(np.int32).max
    offsets = arrow.py_buffer(bounds if is_large else bounds.astype(np.int32))
    kind = arrow.large_string() if is_large else arrow.string()
    values = arrow.Array.from_buffers(kind, len(texts), [None, offsets, arrow.py_buffer(b"".join(texts))])
    return arrow.DictionaryArray.from_arrays(_build_number_array(arrow, used.codes, False), values)


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
