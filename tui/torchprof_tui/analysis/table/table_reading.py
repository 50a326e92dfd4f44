"""Say in a sentence what a profiler's table shows: the balance of CPU and GPU, and what is notable of a row."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.table.profiler_table import ProfilerTable
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.analysis.time.host_stalls import SYNC_CALL_REGEX
from torchprof_tui.trace.core.time_format import format_duration

CLEAR_RATIO, OVERHEAD_RATIO = 2.0, 5.0
"""From here on one side is called the longer one, and the other idle: sums over threads and streams overlap."""

LARGE_SHARE = 1 / 3
"""Of the CPU's time: it is named before dispatch, which every program has."""

HOTSPOT_SHARE = 0.40
CHILDREN_RATIO = 5.0
MANY_CALLS = 100
SHORT_CALL = 20_000
"""Of a row: its share, its total by its self time, its calls, and their mean self time in ns."""

_SYNC_CALL = re.compile(SYNC_CALL_REGEX)
_COMPILING = re.compile(r"dynamo|inductor|compile|aot", re.IGNORECASE)
_LOADING = "enumerate(DataLoader)"


def describe_balance(table: ProfilerTable) -> str:
    """Describe the CPU's self time without its waits beside the GPU's; "" where one of them has none.

    Example: CPU 397 µs : GPU 11 µs = 36 : 1, the CPU dispatches: overhead-bound.
    """
    if not table.per_name or table.self_gpu_total <= 0:
        return ""
    waits = sum(
        int(table.self_cpu[row])
        for row, name in enumerate(table.names)
        if not table.on_gpu[row] and _SYNC_CALL.match(name)
    )
    cpu, gpu = max(int(table.self_cpu_total) - waits, 0), int(table.self_gpu_total)
    if not cpu:
        return ""
    waited = f" and waits for {format_duration(waits)}" if waits else ""
    text = f"CPU {format_duration(cpu)} : GPU {format_duration(gpu)} = {_format_ratio(cpu / gpu)}, "
    if cpu >= gpu * CLEAR_RATIO:
        return text + _describe_cpu(table, cpu, gpu)
    if gpu >= cpu * CLEAR_RATIO:
        return f"{text}the CPU runs ahead{waited}: the GPU limits"
    return f"{text}neither is clearly the longer: look for gaps on the GPU's lanes"


def _format_ratio(ratio: float) -> str:
    larger = ratio if ratio >= 1 else 1 / ratio
    shown = f"{larger:.0f}" if larger >= 10 else f"{larger:.1f}"
    return f"{shown} : 1" if ratio >= 1 else f"1 : {shown}"


def _describe_cpu(table: ProfilerTable, cpu: int, gpu: int) -> str:
    """Describe what a CPU does that is busy for longer than the GPU."""
    rows = [row for row in range(len(table.names)) if not table.on_gpu[row]]
    loading = sum(int(table.cpu[row]) for row in rows if table.names[row].startswith(_LOADING))
    compiling = sum(int(table.self_cpu[row]) for row in rows if _COMPILING.search(table.names[row]))
    if loading >= cpu * LARGE_SHARE:
        return f"the CPU loads data ({loading / cpu:.0%}): input-bound"
    if compiling >= cpu * LARGE_SHARE:
        return f"the CPU compiles ({compiling / cpu:.0%})"
    if cpu >= gpu * OVERHEAD_RATIO:
        return "the CPU dispatches: overhead-bound"
    return "the CPU takes longer: overhead-bound where the GPU waits for it"


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
        if value(f"self_{side}_share") >= HOTSPOT_SHARE
    ]
    if value("cpu_share") >= 0.1 and value("cpu") >= CHILDREN_RATIO * max(value("self_cpu"), 1):
        found.append(f"cost in its children: self is {value('self_cpu') / value('cpu'):.0%} of its CPU total")
    calls = value("calls")
    if calls >= MANY_CALLS and 0 < value("self_cpu") < calls * SHORT_CALL:
        found.append(f"many short calls: {calls:,.0f} of {format_duration(value('self_cpu') / calls)}")
    return "; ".join(found)
