"""The profiler's table: from a mapped trace to its rows, and what a key costs after that."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import median
from torchprof_tui.analysis.table.event_scope import range_mask
from torchprof_tui.analysis.table.profiler_table import Profile
from torchprof_tui.analysis.table.table_rows import GroupBy, TableColumn
from torchprof_tui.trace.loading.load import load_trace


@dataclass(frozen=True, slots=True)
class Timed:
    """One thing that a person asks of the table, in seconds; `on_a_key`: once the table is there."""

    name: str
    seconds: float
    on_a_key: bool


def table_times(trace_file: Path, runs: int) -> list[Timed]:
    """Medians. The trace is loaded once (from the cache where it is there); a first table starts from nothing."""
    trace = load_trace(str(trace_file))
    first, last = trace.span
    profile = Profile(trace)
    table = profile.build_table()
    stacks = profile.build_table(GroupBy.STACK)
    some = range_mask(trace, first, (first + last) // 2)
    asked: list[tuple[str, Callable[[], Any]]] = [
        ("first table", lambda: Profile(trace).build_table()),
        ("half of the trace", lambda: profile.build_table(event_mask=some)),
        ("sort", lambda: table.sort_rows(TableColumn.SELF_GPU)),
        ("filter", lambda: table.filter_rows("/^aten::.*mm$/")),
        ("first table by stack", lambda: Profile(trace).build_table(GroupBy.STACK)),
        (f"sort {len(stacks):,} rows", lambda: stacks.sort_rows(TableColumn.CPU)),
        (f"filter {len(stacks):,} rows", lambda: stacks.filter_rows("linear")),
    ]
    return [
        Timed(name, median([_seconds(ask) for _ in range(runs)]), not name.startswith("first")) for name, ask in asked
    ]


def _seconds(ask: Callable[[], Any]) -> float:
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began
