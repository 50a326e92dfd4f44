"""The rows of the profiler's table, one by one."""

from __future__ import annotations

from typing import NamedTuple

from torchprof_tui.analysis.table.profiler_table import ProfilerTable


class ProfilerRow(NamedTuple):
    """One row of a table; times ns."""

    name: str
    on_gpu: bool
    annotation: bool
    calls: int
    self_cpu: int
    cpu: int
    self_gpu: int
    gpu: int


def list_rows(table: ProfilerTable) -> list[ProfilerRow]:
    """List the rows of a table."""
    columns = (getattr(table, name).tolist() for name in ProfilerRow._fields[1:])
    return [ProfilerRow(*values) for values in zip(table.names, *columns, strict=True)]
