"""Add what a serving engine's steps served, and their times, to the tables by step and by kind of step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.serving.measure_steps import get_serving_steps
from torchprof_tui.analysis.serving.report import summarize_kinds
from torchprof_tui.analysis.serving.serving_steps import KINDS, NOT_GRAPHED_TEXT, KindSummary, ServingSteps
from torchprof_tui.analysis.table.event_scope import compute_request_times, step_index_at
from torchprof_tui.analysis.table.groups import OUTSIDE_STEPS
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.sheets import Field, Sheet, Unit
from torchprof_tui.trace.core.arrays import F64, I64, Bool
from torchprof_tui.trace.model.steps import UNKNOWN
from torchprof_tui.trace.model.trace import Trace

_KIND_COLUMNS: tuple[tuple[Field, Callable[[KindSummary], float | None]], ...] = (
    (Field("steps", "steps", Unit.COUNT), lambda kind: kind.count),
    (Field("tokens", "tokens", Unit.COUNT), lambda kind: kind.tokens),
    (Field("tokens_per_second", "tokens/s", Unit.COUNT), lambda kind: kind.tokens_per_second),
    (Field("step_p50", "step p50", Unit.NS), lambda kind: kind.step_time_p50),
    (Field("step_p95", "step p95", Unit.NS), lambda kind: kind.step_time_p95),
    (Field("token_p50", "time/token p50", Unit.NS), lambda kind: kind.time_per_token_p50),
    (Field("token_p95", "time/token p95", Unit.NS), lambda kind: kind.time_per_token_p95),
    (Field("graph_share", "in graphs", Unit.SHARE), lambda kind: kind.graph_share),
    (Field("kernels_per_token", "kernels/token", Unit.NUMBER), lambda kind: kind.kernels_per_token),
    (Field("cpu_per_token", "CPU/token", Unit.NS), lambda kind: kind.cpu_time_per_token),
    (Field("gap_p50", "gap p50", Unit.NS), lambda kind: kind.gap_p50),
    (Field("batch", "batch", Unit.COUNT), lambda kind: kind.batch_p50),
)

_STEP_FIELDS = (
    Field("number", "#", Unit.COUNT),
    Field("kind", "kind", Unit.TEXT),
    Field("batch", "batch", Unit.COUNT),
    Field("tokens", "tokens", Unit.COUNT),
    Field("kv_length", "KV", Unit.COUNT),
    Field("step", "step", Unit.NS),
)


def add_serving_columns(sheet: Sheet, group_by: GroupBy, trace: Trace, event_mask: Bool | None = None) -> Sheet:
    """Add the columns to a table by step or by kind of step, over all steps or those in `event_mask` (bool[n]).

    Other tables, and those of traces without a serving engine's steps, are returned unchanged.
    """
    if group_by not in (GroupBy.STEP, GroupBy.STEP_KIND) or not trace.steps or trace.steps[0].serving is None:
        return sheet
    steps = get_serving_steps(trace)
    if group_by is GroupBy.STEP:
        return _insert(sheet, _STEP_FIELDS, _build_step_columns(sheet, steps, trace))
    chosen = None if event_mask is None else event_mask[steps.event]
    kinds = {kind.kind.value: kind for kind in summarize_kinds(steps, chosen)}
    rows = [kinds.get(str(name)) for name in sheet.columns["name"]]
    columns = {field.key: _to_column(rows, read) for field, read in _KIND_COLUMNS}
    sheet = _insert(sheet, tuple(field for field, _ in _KIND_COLUMNS), columns)
    return replace(sheet, totals=(*sheet.totals, *format_reasons(tuple(kinds.values()))))


def format_reasons(kinds: Sequence[KindSummary]) -> list[str]:
    """Say of each kind why how many of its kernels were not launched by a graph, one line each."""
    return [
        f"{kind.kind.value}: {count:,} of {kind.kernels:,} kernels not in graphs: {NOT_GRAPHED_TEXT[reason]}"
        for kind in kinds
        for reason, count in kind.not_graphed
    ]


def _to_column(rows: Sequence[KindSummary | None], read: Callable[[KindSummary], float | None]) -> F64:
    values = (None if row is None else read(row) for row in rows)
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _insert(sheet: Sheet, fields: tuple[Field, ...], columns: Mapping[str, Sequence[str] | I64 | F64]) -> Sheet:
    return replace(sheet, fields=(sheet.fields[0], *fields, *sheet.fields[1:]), columns={**sheet.columns, **columns})


def _build_step_columns(sheet: Sheet, steps: ServingSteps, trace: Trace) -> dict[str, Sequence[str] | I64 | F64]:
    """Build the columns by the step that requested the first event of each row."""
    index = np.full(len(sheet), -1, np.int64)
    inside = np.array([name != OUTSIDE_STEPS for name in sheet.columns["name"]], np.bool_)
    first = sheet.members[np.minimum(sheet.first[:-1], max(len(sheet.members) - 1, 0))]
    times = compute_request_times(trace)[first]
    index[inside] = step_index_at(trace, times[inside])
    kinds = ["" if row < 0 else KINDS[steps.kind[row]].value for row in index.tolist()]

    def column(values: I64) -> F64:
        known = (index >= 0) & (values[np.maximum(index, 0)] != UNKNOWN)
        return np.where(known, values[np.maximum(index, 0)], np.nan)

    return {
        "number": column(steps.number),
        "kind": kinds,
        "batch": column(steps.batch),
        "tokens": column(steps.tokens),
        "kv_length": column(steps.kv_length),
        "step": column(steps.step_time),
    }
