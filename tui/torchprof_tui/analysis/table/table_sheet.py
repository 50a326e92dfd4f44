"""Build the profiler's table as a sheet, with FLOP columns if they were computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.patterns.engine.check_scope import Scope, step_scope
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.table.counted_calls import STEP_NAME, Calls, find_main_lane
from torchprof_tui.analysis.table.event_scope import NotRecordedError, step_mask
from torchprof_tui.analysis.table.flops import RowFlops, sum_row_flops
from torchprof_tui.analysis.table.groups import Profile, add_serving_columns
from torchprof_tui.analysis.table.profiler_table import GroupBy, ProfilerTable
from torchprof_tui.analysis.table.sheets import CALLS_FIELD, NAME_FIELD, CallTotals, Field, Sheet, Unit, ratio
from torchprof_tui.analysis.table.table_reading import describe_balance, has_balance
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import F64, I64, Bool, is_in
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Step, Trace

_DETAIL_FIELDS = {
    GroupBy.SHAPE: Field("input_shapes", "input shapes", Unit.TEXT),
    GroupBy.STACK: Field("stack", "stack", Unit.TEXT),
}

_TITLES = {
    GroupBy.NAME: "Profiler table",
    GroupBy.SHAPE: "Profiler table by input shape",
    GroupBy.STACK: "Profiler table by Python stack",
    GroupBy.MODULE: "Modules",
    GroupBy.CLASS: "Kernel classes",
    GroupBy.STEP: "Steps",
    GroupBy.STEP_KIND: "Steps by kind",
}

_CPU_FIELDS = (
    Field("self_cpu", "self CPU", Unit.NS),
    Field("self_cpu_share", "%", Unit.SHARE),
    Field("cpu", "CPU total", Unit.NS),
    Field("cpu_share", "%", Unit.SHARE),
    Field("cpu_avg", "CPU avg", Unit.NS),
)
_GPU_FIELDS = (
    Field("self_gpu", "self GPU", Unit.NS),
    Field("self_gpu_share", "%", Unit.SHARE),
    Field("gpu", "GPU total", Unit.NS),
    Field("gpu_share", "%", Unit.SHARE),
    Field("gpu_avg", "GPU avg", Unit.NS),
)
_DEVICE_FIELD = Field("device", "on", Unit.TEXT)
_GPU_TOTAL = "Self GPU time total"
_RATE_FIELDS = (Field("tflops", "TFLOP/s", Unit.TFLOPS), Field("peak_share", "of peak", Unit.SHARE))
_FLOP_FIELDS = (Field("flops", "FLOP", Unit.FLOPS), *_RATE_FIELDS)


NESTED_CALLS = "above 100 %: shares are of the self time total, and calls of one name contain each other"
"""Footer of a table with such a row: torch's totals add up a call and the calls of the same name inside it."""

DATA_LOADING_PREFIX = "enumerate(DataLoader)"
"""An annotation of torch's that is work of its own: loading the next batch, or waiting for it."""

NEGATIVE_SELF_TIME = "negative self CPU: profiler overhead overlaps other calls, and both are subtracted, as in torch"
"""Footer of a table with such a row: torch's `FunctionEvent.self_cpu_time_total` subtracts each child's duration."""


def build_table_sheet(table: ProfilerTable, calls: Calls, flops: RowFlops | None = None) -> Sheet:
    """Build the sheet of a table: all its columns, with torch's footer as totals. Members are events of the trace."""
    columns: dict[str, Sequence[str] | I64 | F64] = {
        "name": table.names,
        "device": ["GPU" if gpu else "CPU" for gpu in table.on_gpu.tolist()],
        "calls": table.calls,
        "self_cpu": table.self_cpu,
        "self_cpu_share": ratio(table.self_cpu, table.self_cpu_total),
        "cpu": table.cpu,
        "cpu_share": ratio(table.cpu, table.self_cpu_total),
        "cpu_avg": table.cpu / np.maximum(table.calls, 1),
        "self_gpu": table.self_gpu,
        "self_gpu_share": ratio(table.self_gpu, table.self_gpu_total),
        "gpu": table.gpu,
        "gpu_share": ratio(table.gpu, table.self_gpu_total),
        "gpu_avg": table.gpu / np.maximum(table.calls, 1),
    }
    fields = [NAME_FIELD]
    detail = _DETAIL_FIELDS.get(table.group_by)
    if detail is not None:
        fields.append(detail)
        columns[detail.key] = table.details
    fields += [_DEVICE_FIELD, CALLS_FIELD] if table.per_name else [CALLS_FIELD]
    fields += [*(_CPU_FIELDS if table.group_by is not GroupBy.CLASS else ()), *_GPU_FIELDS]
    if flops is not None:
        fields += _FLOP_FIELDS
        columns |= {"flops": flops.flops, "tflops": flops.tflops, "peak_share": flops.share}
    keys = {field.key for field in fields}
    is_loading = np.fromiter((name.startswith(DATA_LOADING_PREFIX) for name in table.names), np.bool_, len(table))
    is_step = np.fromiter((name == STEP_NAME for name in table.names), np.bool_, len(table))  # torch 1.9: operators
    span_mask = np.asarray((table.annotation | is_step) & ~is_loading)
    sums = CallTotals(int(table.self_cpu_total), int(table.self_gpu_total))
    return Sheet(
        title=_TITLES[table.group_by],
        fields=tuple(fields),
        columns={key: column for key, column in columns.items() if key in keys},
        members=calls.event[table.members],
        first=table.first,
        sums=sums,
        totals=(
            f"Self CPU time total: {format_torch_time(sums.self_cpu)}",
            f"{_GPU_TOTAL}: {format_torch_time(sums.self_gpu)}",
            *([NEGATIVE_SELF_TIME] if (table.self_cpu < 0).any() else []),
            *([NESTED_CALLS] if _has_share_above_one(table, span_mask) else []),
        ),
        gpu_mask=table.on_gpu & ~table.annotation if table.per_name else None,
        span_mask=span_mask if table.per_name else None,
    )


def _has_share_above_one(table: ProfilerTable, span_mask: Bool) -> bool:
    """Return whether a row of work takes more than the total that its percentages are of."""
    is_work = ~span_mask
    return any(
        bool((column[is_work] > max(total, 1) * 1.005).any())
        for column, total in ((table.cpu, table.self_cpu_total), (table.gpu, table.self_gpu_total))
    )


def drop_empty_gpu_columns(sheet: Sheet) -> Sheet:
    """Drop the columns and the total of GPU times from a table of CPU calls without any; return others unchanged.

    So go the rates of GPU work, and the device, which is the CPU in each row.
    """
    if "self_cpu" not in sheet.columns or np.any(sheet.columns["self_gpu"]) or np.any(sheet.columns["gpu"]):
        return sheet
    keys = {field.key for field in (*_GPU_FIELDS, *_RATE_FIELDS, _DEVICE_FIELD)}
    return replace(
        sheet,
        fields=tuple(field for field in sheet.fields if field.key not in keys),
        columns={key: column for key, column in sheet.columns.items() if key not in keys},
        totals=tuple(total for total in sheet.totals if not total.startswith(_GPU_TOTAL)),
    )


def format_torch_time(ns: float) -> str:
    """Format a time as torch's tables do: "8.384us", "10.589ms", "1.200s" (`profiler_util.py::_format_time`)."""
    us = ns / 1000
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


MIN_SHARE = 0.2
"""Share of the window from which the line is shown: less than a fifth is no surprise next to a table of ops."""

_ROW_KINDS = (Kind.OP, Kind.RUNTIME, Kind.OVERHEAD)


def measure_outside_ops(trace: Trace) -> tuple[int, int] | None:
    """Measure the ns of a window (the steps, or from the first op to the last) in which no op ran, and the window.

    None for a trace with GPU work or without ops, and below MIN_SHARE. Loading data counts as work, because the table
    has a row for it, as do runtime calls and the profiler's overhead.
    """
    if trace.links.gpu_events or trace.format != "kineto":
        return None
    on_main = np.flatnonzero(trace.lane == find_main_lane(trace))
    is_row = is_in(trace.kind[on_main], [int(kind) for kind in _ROW_KINDS])
    is_loading = match_names(trace, lambda name: name.startswith(DATA_LOADING_PREFIX), trace.name[on_main])
    rows = on_main[is_row | is_loading]
    if not len(rows):
        return None
    start, end = np.asarray(trace.start[rows]), np.asarray(trace.start[rows] + trace.duration[rows])
    if trace.steps:
        t0, t1 = trace.steps[0].start, max(step.start + step.duration for step in trace.steps)
    else:
        t0, t1 = int(start.min()), int(end.max())
    time = (t1 - t0) - union(start, end).clip(t0, t1).total
    return None if time < MIN_SHARE * (t1 - t0) or t1 <= t0 else (time, t1 - t0)


def add_outside_ops(sheet: Sheet, trace: Trace, frames_hint: str, record_hint: str) -> Sheet:
    """Add a line before the totals: ``outside ops: 573 ms of 857 ms (T shows the frames)``.

    `frames_hint` says where recorded Python frames are shown, `record_hint` how to record them.
    """
    measured = measure_outside_ops(trace)
    if measured is None:
        return sheet
    time, window = measured
    hint = frames_hint if (trace.kind == Kind.PYTHON).any() else record_hint
    line = f"outside ops: {format_duration(time)} of {format_duration(window)} ({hint})"
    sums = sheet.sums
    if isinstance(sums, CallTotals):
        sums = replace(sums, outside_ops=time, outside_window=window)
    return replace(sheet, totals=(line, *sheet.totals), sums=sums)


def build_calls_sheet(profile: Profile, group_by: GroupBy, step: Step | None, with_flops: bool) -> Sheet:
    """Build the table of a step, None for the whole trace. Raises NotRecordedError, OSError, LookupError."""
    event_mask = None if step is None else step_mask(profile.trace, step, profile.request_times)
    table, calls = profile.build_table(group_by, event_mask), profile.calls
    sheet = build_table_sheet(table, calls, sum_row_flops(table, calls, profile.flops()) if with_flops else None)
    sheet = add_serving_columns(sheet, group_by, profile.trace, event_mask)
    sheet = replace(sheet, reading=read_balance(profile, table, None if step is None else step_scope(step)))
    if step is not None:
        return sheet
    return add_outside_ops(
        sheet, profile.trace, "T in the app shows the frames", "record with --with-stack to see the code"
    )


def read_balance(profile: Profile, table: ProfilerTable, scope: Scope | None) -> str:
    """Describe a table's balance of CPU and GPU in the scope that it covers, None for the whole trace."""
    return describe_balance(table, profile.measure_regime(scope)) if has_balance(table) else ""


def find_step(trace: Trace, number: int) -> Step:
    """Find the step of this number. Raises NotRecordedError."""
    steps = trace.steps
    found = next((step for step in steps if step.number == number), None)
    if found is None:
        known = f"it has {steps[0].number} to {steps[-1].number}" if steps else "it has none"
        raise NotRecordedError(f"no step {number} in this trace ({known})")
    return found
