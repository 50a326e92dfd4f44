"""The profiler's table: from a mapped trace to its rows, and what a key costs after that."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import median
from torchprof_tui.analysis.table.event_scope import in_range
from torchprof_tui.analysis.table.profiler_table import Profile
from torchprof_tui.analysis.table.table_rows import By, Column
from torchprof_tui.trace.loading.load import load


@dataclass(frozen=True, slots=True)
class Timed:
    """One thing that a person asks of the table, in seconds; `on_a_key`: once the table is there."""

    name: str
    seconds: float
    on_a_key: bool


def table_times(trace_file: Path, runs: int) -> list[Timed]:
    """Medians. The trace is loaded once (from the cache where it is there); a first table starts from nothing."""
    trace = load(str(trace_file))
    first, last = trace.span
    profile = Profile(trace)
    table = profile.table()
    stacks = profile.table(By.STACK)
    some = in_range(trace, first, (first + last) // 2)
    asked: list[tuple[str, Callable[[], Any]]] = [
        ("first table", lambda: Profile(trace).table()),
        ("half of the trace", lambda: profile.table(only=some)),
        ("sort", lambda: table.order(Column.SELF_GPU)),
        ("filter", lambda: table.matching("/^aten::.*mm$/")),
        ("first table by stack", lambda: Profile(trace).table(By.STACK)),
        (f"sort {len(stacks):,} rows", lambda: stacks.order(Column.CPU)),
        (f"filter {len(stacks):,} rows", lambda: stacks.matching("linear")),
    ]
    return [
        Timed(name, median([_seconds(ask) for _ in range(runs)]), not name.startswith("first")) for name, ask in asked
    ]


def _seconds(ask: Callable[[], Any]) -> float:
    began = time.perf_counter()
    ask()
    return time.perf_counter() - began
