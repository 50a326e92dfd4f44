"""Write the events of a trace as an Arrow table, in Parquet or in Arrow's own file format. Needs the extra `arrow`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchprof_tui.analysis.export.event_columns import (
    COLUMNS,
    MISSING,
    TEXT_COLUMNS,
    TIME_COLUMNS,
    DictionaryColumn,
    EventColumns,
)
from torchprof_tui.trace.core.atomic_file import open_atomically
from torchprof_tui.trace.core.optional_modules import import_extra

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
        elif name in TIME_COLUMNS:
            arrays.append(arrow.array(column))
        else:
            arrays.append(arrow.array(column, mask=column == MISSING))
    return arrow.Table.from_arrays(arrays, names=list(COLUMNS))


def _build_dictionary_array(arrow: pa, column: DictionaryColumn) -> pa.DictionaryArray:
    used = column.compact()
    return arrow.DictionaryArray.from_arrays(arrow.array(used.codes), arrow.array(used.values, arrow.string()))


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
