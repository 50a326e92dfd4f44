"""Say in a sentence what a profiler's table shows: the balance of CPU and GPU, and what is notable of a row."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.verdict.verdict import Regime, ScopeRegime
from torchprof_tui.analysis.table.profiler_table import ProfilerTable
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.analysis.time.host_stalls import SYNC_CALL_REGEX
from torchprof_tui.trace.core.time_format import format_duration

LARGE_SHARE = 1 / 3  # of the CPU's time: it is named before dispatch, which every program has

CHILDREN_RATIO = 5.0
MANY_CALLS = 100
SHORT_CALL = 20_000  # of a row: its total by its self time, its calls, and their mean self time in ns

_SYNC_CALL = re.compile(SYNC_CALL_REGEX)
_COMPILING = re.compile(r"dynamo|inductor|compile|aot", re.IGNORECASE)
_LOADING = "enumerate(DataLoader)"


def has_balance(table: ProfilerTable) -> bool:
    """Return whether a table has rows by name and GPU time beside the CPU's."""
    return table.per_name and table.self_gpu_total > 0


def describe_balance(table: ProfilerTable, measured: ScopeRegime) -> str:
    """Describe the CPU's self time without its waits beside the GPU's, and what limits; "" without CPU time.

    `table`: see `has_balance`. `measured`: of the same scope, as its verdict says it; sums over threads and streams
    overlap, so their ratio decides nothing.
    Example: self CPU 397 µs : self GPU 11 µs = 36 : 1, GPU busy 2.4 % of the steps: overhead-bound, the CPU dispatches.
    """
    waits = sum(
        int(table.self_cpu[row])
        for row, name in enumerate(table.names)
        if not table.on_gpu[row] and _SYNC_CALL.match(name)
    )
    cpu, gpu = max(int(table.self_cpu_total) - waits, 0), int(table.self_gpu_total)
    if not cpu:
        return ""
    ratio = cpu / gpu
    larger = max(ratio, 1 / ratio)
    shown = f"{larger:.0f}" if larger >= 10 else f"{larger:.1f}"
    shown = f"{shown} : 1" if ratio >= 1 else f"1 : {shown}"
    of = "self CPU without waits" if waits else "self CPU"
    text = f"{of} {format_duration(cpu)} : self GPU {format_duration(gpu)} = {shown}"
    if measured.busy is None:
        return text
    text = f"{text}, GPU busy {format_percent(measured.busy)} of {measured.busy_base}"
    if measured.regime is Regime.UNKNOWN:
        return f"{text}: what limits is not known (check says why)"
    return f"{text}: {measured.regime.value}, {_describe_regime(measured.regime, table, cpu)}"


def _describe_regime(regime: Regime, table: ProfilerTable, cpu: int) -> str:
    """Describe what the CPU does where the GPU waits for it, else which side limits. `cpu`: ns of its self time."""
    if regime is Regime.COMPUTE:
        return "the GPU limits"
    if regime is Regime.COMMUNICATION:
        return "the GPU waits for other GPUs"
    rows = [row for row in range(len(table.names)) if not table.on_gpu[row]]
    loading = sum(int(table.cpu[row]) for row in rows if table.names[row].startswith(_LOADING))
    compiling = sum(int(table.self_cpu[row]) for row in rows if _COMPILING.search(table.names[row]))
    if regime is Regime.INPUT or loading >= cpu * LARGE_SHARE:
        share = f" ({format_percent(loading / cpu)} of its time)" if loading else ""
        return f"the CPU loads data{share}"
    if compiling >= cpu * LARGE_SHARE:
        return f"the CPU compiles ({format_percent(compiling / cpu)} of its time)"
    return "the CPU dispatches" if regime is Regime.OVERHEAD else "neither side limits alone"


def describe_row(sheet: Sheet, row: int) -> str:
    """Describe what is notable of a row of a profiler's table: hotspot, cost in children, calls; "" for nothing."""
    columns = sheet.columns
    if "self_cpu" not in columns or (sheet.span_mask is not None and sheet.span_mask[row]):
        return ""

    def value(key: str) -> float:
        column = columns.get(key)
        return float(column[row]) if isinstance(column, np.ndarray) else 0.0

    found = [
        f"hotspot: {value(f'self_{side}_share'):.0%} of the {side.upper()}'s self time"
        for side in ("gpu", "cpu")
        if value(f"self_{side}_share") >= thresholds.HOTSPOT_SHARE.value
    ]
    if value("cpu_share") >= 0.1 and value("cpu") >= CHILDREN_RATIO * max(value("self_cpu"), 1):
        found.append(f"cost in its children: self is {value('self_cpu') / value('cpu'):.0%} of its CPU total")
    calls = value("calls")
    if calls >= MANY_CALLS and 0 < value("self_cpu") < calls * SHORT_CALL:
        found.append(f"many short calls: {calls:,.0f} of {format_duration(value('self_cpu') / calls)}")
    return "; ".join(found)
