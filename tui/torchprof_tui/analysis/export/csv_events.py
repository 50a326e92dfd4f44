"""Write the events of a trace as comma-separated values, block by block."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchprof_tui.analysis.export.event_columns import (
    COLUMNS,
    MISSING,
    TIME_COLUMNS,
    DictionaryColumn,
    EventColumns,
)
from torchprof_tui.trace.core.arrays import block_slices
from torchprof_tui.trace.core.atomic_file import open_atomically
from torchprof_tui.trace.core.printable import clean


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
