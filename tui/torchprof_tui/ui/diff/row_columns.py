"""Format the matched rows as columns that fit a width: the mark, the name, calls, times of both sides, changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from torchprof_tui.analysis.compare.comparison import ROW_MARKS, describe_row, format_calls, format_change
from torchprof_tui.analysis.compare.matched_rows import By, ComparedRow
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import truncate
from torchprof_tui.ui.common.number_format import format_share

MIN_NAME_CELLS = 24


@dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers. `importance`: those of a low one are left out first."""

    title: str
    cells: int
    importance: int


COLUMNS = (
    Column("calls", 9, 2),
    Column("GPU: A", 9, 3),
    Column("B", 9, 3),
    Column("change", 10, 5),
    Column("CPU self", 10, 4),
    Column("share", 7, 1),
)

CPU_COLUMNS = (
    Column("calls", 9, 2),
    Column("CPU: A", 9, 3),
    Column("B", 9, 3),
    Column("change", 10, 5),
    Column("share", 7, 1),
)
"""Columns where neither side has GPU work: CPU self times."""


def choose_columns(width: int, on_gpu: bool) -> list[Column]:
    """Choose the columns that leave at least MIN_NAME_CELLS for the name."""
    chosen = list(COLUMNS if on_gpu else CPU_COLUMNS)
    while chosen and width - sum(column.cells + 1 for column in chosen) < MIN_NAME_CELLS:
        least = min(column.importance for column in chosen)
        chosen = [column for column in chosen if column.importance > least]
    return chosen


def format_header(by: By, width: int, on_gpu: bool) -> str:
    """Format the titles of the columns."""
    cells = [(column.title, column.cells) for column in choose_columns(width, on_gpu)]
    return _join(f"per step, by {by}", cells, width)


def format_row(row: ComparedRow, by: By, width: int, label: str = "") -> str:
    """Format a row in exactly `width` cells; `label` in place of its name."""
    mark = ROW_MARKS.get(row.status, " ")
    columns = choose_columns(width, row.on_gpu)
    titles = (column.title for column in (COLUMNS if row.on_gpu else CPU_COLUMNS))
    values = dict(zip(titles, _list_values(row), strict=True))
    cells = [(values[column.title], column.cells) for column in columns]
    text = clean(label or describe_row(row, by))
    room = width - sum(column.cells + 1 for column in columns) - 2
    if by == "module" and cell_len(text) > room:
        text = f"…{text[len(text) - room + 1 :]}"  # the end says which layer it is
    return _join(f"{mark} {text}", cells, width)


def _list_values(row: ComparedRow) -> Sequence[str]:
    calls = format_calls(row.calls_a)
    if row.calls_a != row.calls_b:
        calls = f"{calls}→{format_calls(row.calls_b)}"
    times = (row.gpu_ns_a, row.gpu_ns_b) if row.on_gpu else (row.cpu_ns_a, row.cpu_ns_b)
    changes = (row.gpu_delta_ns, row.cpu_delta_ns) if row.on_gpu else (row.cpu_delta_ns,)
    return (
        calls,
        *(format_duration(time) if time else "-" for time in times),
        *map(format_change, changes),
        format_share(row.share) if row.share else "-",
    )


def _join(name: str, cells: Sequence[tuple[str, int]], width: int) -> str:
    numbers = "".join(f" {truncate(text, size):>{size}}" for text, size in cells)
    room = max(width - len(numbers), 0)
    name = truncate(name, room)
    return name + " " * (room - cell_len(name)) + numbers
