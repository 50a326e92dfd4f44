"""Measure the profiler's table: from a mapped trace to its rows, and the cost of a key after that."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import median
from torchprof_tui.analysis.table.event_scope import range_mask
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.table_sheet import build_table_sheet
from torchprof_tui.trace.loading.load_in_process import load_trace


@dataclass(frozen=True, slots=True)
class TableTime:
    """Seconds of one operation of the table; `on_a_key`: one that a key starts once the table is open."""

    name: str
    seconds: float
    on_a_key: bool


def measure_table(trace_file: Path, runs: int) -> list[TableTime]:
    """Measure medians. The trace is loaded once, from the cache if possible; a first table starts without any state."""
    trace = load_trace(str(trace_file))
    first, last = trace.span
    profile = Profile(trace)
    table = build_table_sheet(profile.build_table(), profile.calls)
    stacks = build_table_sheet(profile.build_table(GroupBy.STACK), profile.calls)
    half = range_mask(trace, first, (first + last) // 2)
    operations: list[tuple[str, Callable[[], Any]]] = [
        ("first table", lambda: Profile(trace).build_table()),
        ("half of the trace", lambda: profile.build_table(event_mask=half)),
        ("sort", lambda: table.sort_rows("self_gpu")),
        ("filter", lambda: table.filter_rows("/^aten::.*mm$/")),
        ("first table by stack", lambda: Profile(trace).build_table(GroupBy.STACK)),
        (f"sort {len(stacks):,} rows", lambda: stacks.sort_rows("cpu")),
        (f"filter {len(stacks):,} rows", lambda: stacks.filter_rows("linear")),
    ]
    return [
        TableTime(name, median([_time(operation) for _ in range(runs)]), not name.startswith("first"))
        for name, operation in operations
    ]


def _time(operation: Callable[[], Any]) -> float:
    start = time.perf_counter()
    operation()
    return time.perf_counter() - start
