"""Group calls into rows: by name, kernel class, step, input shapes, Python stack or module; add what was served."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import classify_names
from torchprof_tui.analysis.serving.measure_steps import get_serving_steps
from torchprof_tui.analysis.serving.report import NO_SERVING_STEPS, RECORD_SERVING_STEPS, summarize_kinds
from torchprof_tui.analysis.serving.serving_steps import KINDS, NOT_GRAPHED_TEXT, KindSummary, ServingSteps
from torchprof_tui.analysis.table.captured_calls import CallSitesWithCaptures
from torchprof_tui.analysis.table.counted_calls import Calls
from torchprof_tui.analysis.table.event_scope import NotRecordedError, compute_request_times, step_index_at
from torchprof_tui.analysis.table.op_args import OpArgs
from torchprof_tui.analysis.table.profiler_table import GroupBy, Groups
from torchprof_tui.analysis.table.sheets import Field, Sheet, Unit
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool
from torchprof_tui.trace.model.steps import UNKNOWN
from torchprof_tui.trace.model.trace import Trace

OUTSIDE_STEPS = "(outside of all steps)"
NO_MODULE = "(no module)"


def group_by_name(calls: Calls) -> Groups:
    """Group as torch does: by name, with CPU and GPU and annotations and other calls in separate rows."""
    return _group_per_name(GroupBy.NAME, calls, np.zeros(len(calls), np.int32), [""])


def group_by_shape(calls: Calls, args: OpArgs) -> Groups:
    """Group by name and input shapes. Raises NotRecordedError where no operator has any."""
    if len(args.shapes) < 2:
        raise NotRecordedError("no input shapes in this trace (they are recorded with record_shapes=True)")
    return _group_per_name(GroupBy.SHAPE, calls, args.shape_index, args.shapes)


def group_by_stack(calls: Calls, call_sites: CallSitesWithCaptures, depth: int) -> Groups:
    """Group by name and stack: the `depth` innermost Python frames, innermost first, one per line.

    GPU work has the stack of its launch, backward operators that of their forward. Raises NotRecordedError.
    """
    stack, texts = call_sites.factorize_stacks(depth)
    if len(texts) < 2:
        raise NotRecordedError("no Python frames in this trace (they are recorded with with_stack=True)")
    return _group_per_name(GroupBy.STACK, calls, stack, texts)


def group_by_module(calls: Calls, call_sites: CallSitesWithCaptures) -> Groups:
    """Group all calls made by one nn.Module itself, without its submodules. Raises NotRecordedError."""
    module, paths = call_sites.factorize_modules()
    if len(paths) < 2:
        raise NotRecordedError("no modules in this trace (they are recorded with with_stack=True)")
    paths = [path or NO_MODULE for path in paths]
    return Groups(GroupBy.MODULE, module, paths, [""] * len(paths), per_name=False)


def group_by_class(calls: Calls) -> Groups:
    """Group GPU work by kernel class; calls on the CPU are left out."""
    work = np.flatnonzero(calls.on_gpu & ~calls.annotation)
    used_names = np.unique(calls.name[work])
    class_of_name = np.zeros(len(calls.names), np.int32)
    class_of_name[used_names] = classify_names([calls.names[name] for name in used_names.tolist()])
    row = np.full(len(calls), -1, np.int32)
    row[work] = class_of_name[calls.name[work]]
    labels = [kind.label for kind in KernelClass]
    return Groups(GroupBy.CLASS, row, labels, [""] * len(labels), per_name=False)


def group_by_step(trace: Trace, calls: Calls, request_times: I64) -> Groups:
    """Group calls by step; `request_times` int64[n] ns: see `event_scope`. Raises NotRecordedError."""
    if not trace.steps:
        raise NotRecordedError("no steps in this trace (they are recorded with prof.step())")
    step = step_index_at(trace, request_times[calls.event])
    names = [*(step.name for step in trace.steps), OUTSIDE_STEPS]
    row = np.where(step >= 0, step, len(trace.steps)).astype(np.int32)
    return Groups(GroupBy.STEP, row, names, [""] * len(names), per_name=False)


def group_by_step_kind(trace: Trace, calls: Calls, request_times: I64) -> Groups:
    """Group calls by the kind of a serving engine's step: prefill, decode, … Raises NotRecordedError."""
    if not trace.steps or trace.steps[0].serving is None:
        raise NotRecordedError(f"{NO_SERVING_STEPS}; {RECORD_SERVING_STEPS}")
    said = [step.serving for step in trace.steps]
    kind = np.array([len(KINDS) if each is None else KINDS.index(each.kind) for each in said], np.int32)
    step = step_index_at(trace, request_times[calls.event])
    row = np.where(step >= 0, kind[step], len(KINDS)).astype(np.int32)
    names = [*(kind.value for kind in KINDS), OUTSIDE_STEPS]
    return Groups(GroupBy.STEP_KIND, row, names, [""] * len(names), per_name=False)


def _group_per_name(group_by: GroupBy, calls: Calls, detail: I32, details: list[str]) -> Groups:
    """Group by (name, side, annotation, detail); rows are numbered by ascending key."""
    side = calls.on_gpu.astype(np.int64) * 2 + calls.annotation
    key = (detail.astype(np.int64) * len(calls.names) + calls.name) * 4 + side
    key_count = len(details) * len(calls.names) * 4
    if key_count <= 8 * len(key) + 1024:  # for dense keys counting is faster than sorting
        used_keys = np.flatnonzero(np.bincount(key, minlength=key_count))
        row_of_key = np.zeros(key_count, np.int32)
        row_of_key[used_keys] = np.arange(len(used_keys), dtype=np.int32)
        row = row_of_key[key]
    else:
        used_keys, inverse = np.unique(key, return_inverse=True)
        row = inverse.astype(np.int32)
    name_and_detail = used_keys // 4
    names = [calls.names[index] for index in (name_and_detail % len(calls.names)).tolist()]
    return Groups(group_by, row, names, [details[index] for index in (name_and_detail // len(calls.names)).tolist()])


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
