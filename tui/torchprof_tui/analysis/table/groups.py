"""Group calls into rows: by name, kernel class, step, input shapes, Python stack or module; add what was served.

Costly intermediate results are computed once for each trace and kept. Shares of GPU time for charts are
by kernel class, by module, and by class in each step, to show drift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.dispatch.call_sites import CallSites
from torchprof_tui.analysis.graphs.captured_ops import get_captured_ops
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import classify_names
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.verdict.verdict import ScopeRegime, measure_regime
from torchprof_tui.analysis.serving.measure_steps import get_serving_steps
from torchprof_tui.analysis.serving.report import NO_SERVING_STEPS, RECORD_SERVING_STEPS, summarize_kinds
from torchprof_tui.analysis.serving.serving_steps import KINDS, NOT_GRAPHED_TEXT, ServingSteps
from torchprof_tui.analysis.table.captured_calls import (
    CallSitesWithCaptures,
    add_captured_calls,
    read_args_with_captures,
)
from torchprof_tui.analysis.table.counted_calls import Calls, build_calls
from torchprof_tui.analysis.table.event_scope import NotRecordedError, compute_request_times, step_index_at
from torchprof_tui.analysis.table.flops import CallFlops, compute_call_flops
from torchprof_tui.analysis.table.op_args import OpArgs
from torchprof_tui.analysis.table.profiler_table import GroupBy, Groups, ProfilerTable, sum_calls
from torchprof_tui.analysis.table.sheets import Field, Sheet, Unit
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool, is_in, sorted_unique, sum_by_index
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.steps import UNKNOWN
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import ReportChunks

OUTSIDE_STEPS = "(outside of all steps)"
NO_MODULE = "(no module)"
NO_SHAPES = "no input shapes in this trace (they are recorded with record_shapes=True)"
NO_FRAMES = "no Python frames in this trace (they are recorded with with_stack=True)"


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
    used_names = sorted_unique(calls.name[work])
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


def _group_per_name(group_by: GroupBy, calls: Calls, detail: I32, details: list[str], missing: str = "") -> Groups:
    """Group by (name, side, annotation, detail); rows are numbered by ascending key.

    Without details, raises NotRecordedError of what is `missing`, if anything is.
    """
    if missing and len(details) < 2:
        raise NotRecordedError(missing)
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


_KIND_FIELDS = (
    Field("steps", "steps", Unit.COUNT),
    Field("tokens", "tokens", Unit.COUNT),
    Field("tokens_per_second", "tokens/s", Unit.COUNT),
    Field("step_p50", "step p50", Unit.NS),
    Field("step_p95", "step p95", Unit.NS),
    Field("token_p50", "time/token p50", Unit.NS),
    Field("token_p95", "time/token p95", Unit.NS),
    Field("graph_share", "in graphs", Unit.SHARE),
    Field("kernels_per_token", "kernels/token", Unit.NUMBER),
    Field("cpu_per_token", "CPU/token", Unit.NS),
    Field("gap_p50", "gap p50", Unit.NS),
    Field("batch", "batch", Unit.COUNT),
)
"""Keys are names of the fields of KindSummary."""

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
    columns: dict[str, Sequence[str] | I64 | F64] = {}
    for field in _KIND_FIELDS:
        values = [None if row is None else getattr(row, field.key) for row in rows]
        columns[field.key] = np.array([np.nan if value is None else value for value in values], np.float64)
    sheet = _insert(sheet, _KIND_FIELDS, columns)
    reasons = [
        f"{kind.kind.value}: {count:,} of {kind.kernels:,} kernels not in graphs: {NOT_GRAPHED_TEXT[reason]}"
        for kind in kinds.values()
        for reason, count in kind.not_graphed
    ]
    return replace(sheet, totals=(*sheet.totals, *reasons))


def _insert(sheet: Sheet, fields: tuple[Field, ...], columns: Mapping[str, Sequence[str] | I64 | F64]) -> Sheet:
    return replace(sheet, fields=(sheet.fields[0], *fields, *sheet.fields[1:]), columns={**sheet.columns, **columns})


def _build_step_columns(sheet: Sheet, steps: ServingSteps, trace: Trace) -> dict[str, Sequence[str] | I64 | F64]:
    """Build the columns by the step that requested the first event of each row."""
    index = np.full(len(sheet), -1, np.int64)
    inside = np.array([name != OUTSIDE_STEPS for name in sheet.columns["name"]], np.bool_)
    first = sheet.members[np.minimum(sheet.first[:-1], max(len(sheet.members) - 1, 0))]
    times = compute_request_times(trace)[first]
    index[inside] = step_index_at(trace, times[inside])
    columns: dict[str, Sequence[str] | I64 | F64] = {
        "kind": ["" if row < 0 else KINDS[steps.kind[row]].value for row in index.tolist()]
    }
    numbers = {"number": steps.number, "batch": steps.batch, "tokens": steps.tokens}
    for key, values in (numbers | {"kv_length": steps.kv_length, "step": steps.step_time}).items():
        of_row = values[np.maximum(index, 0)]
        columns[key] = np.where((index >= 0) & (of_row != UNKNOWN), of_row, np.nan)
    return columns


STACK_DEPTH = 5  # frames in a stack: `key_averages(group_by_stack_n=5)` is the usual call

MEMORY_ROW = "[memory]"


class Profile:
    """The tables over one trace.

    `measure_regime`: measures what limits a scope (None: the whole trace) where a checker of the trace is at hand; else
    one is made when it is first needed.
    """

    def __init__(self, trace: Trace, measure_regime: Callable[[Scope | None], ScopeRegime] | None = None) -> None:
        self.trace = trace
        self.measure_regime = measure_regime or self._measure_regime
        self._checker: Checker | None = None
        self._args: OpArgs | None = None
        self._flops: CallFlops | None = None
        self._groups: dict[GroupBy, Groups] = {}

    @cached_property
    def calls(self) -> Calls:
        """All calls that a table may count, with the ops that were captured for the kernels of replays."""
        ops = get_captured_ops(self.trace)
        return self.own_calls if ops is None else add_captured_calls(self.trace, self.own_calls, ops)

    def _measure_regime(self, scope: Scope | None) -> ScopeRegime:
        checker = self._checker = self._checker or Checker(self.trace)
        return measure_regime(checker.view(scope or checker.default_scope))

    @cached_property
    def own_calls(self) -> Calls:
        return build_calls(self.trace)

    @cached_property
    def request_times(self) -> I64:
        """int64[n] ns: when the CPU requested each event; see `event_scope.compute_request_times`."""
        return compute_request_times(self.trace)

    @cached_property
    def call_sites(self) -> CallSitesWithCaptures:
        return CallSitesWithCaptures(CallSites(self.trace), self.calls)

    def args(self, report: ReportChunks | None = None) -> OpArgs:
        """Return the operators' inputs. The first call reads through the file; raises OSError, LookupError."""
        if self._args is None:
            self._args = read_args_with_captures(self.trace, self.calls, report)
        return self._args

    def flops(self, report: ReportChunks | None = None) -> CallFlops:
        """Return the FLOPs of every call; cached. Raises the errors of `args`."""
        if self._flops is None:
            self._flops = compute_call_flops(self.trace, self.calls, self.args(report))
        return self._flops

    def groups(self, group_by: GroupBy, report: ReportChunks | None = None) -> Groups:
        """Return the row of each call; cached. Raises NotRecordedError, and the errors of `args` for shapes."""
        calls = self.calls
        builders: dict[GroupBy, Callable[[], Groups]] = {
            GroupBy.NAME: lambda: _group_per_name(GroupBy.NAME, calls, np.zeros(len(calls), np.int32), [""]),
            GroupBy.SHAPE: lambda: _group_per_name(
                GroupBy.SHAPE, calls, self.args(report).shape_index, self.args().shapes, NO_SHAPES
            ),
            GroupBy.STACK: lambda: _group_per_name(
                GroupBy.STACK, calls, *self.call_sites.factorize_stacks(STACK_DEPTH), NO_FRAMES
            ),
            GroupBy.MODULE: lambda: group_by_module(calls, self.call_sites),
            GroupBy.CLASS: lambda: group_by_class(calls),
            GroupBy.STEP: lambda: group_by_step(self.trace, calls, self.request_times),
            GroupBy.STEP_KIND: lambda: group_by_step_kind(self.trace, calls, self.request_times),
        }
        if group_by not in self._groups:
            self._groups[group_by] = builders[group_by]()
        return self._groups[group_by]

    def build_table(
        self, group_by: GroupBy = GroupBy.NAME, event_mask: Bool | None = None, report: ReportChunks | None = None
    ) -> ProfilerTable:
        """Build the table over all events or those of a mask (bool[n]). Raises the errors of `groups`."""
        calls = self.calls
        table = sum_calls(calls, self.groups(group_by, report), None if event_mask is None else event_mask[calls.event])
        if group_by is GroupBy.NAME and event_mask is None and calls.top_level_memory_records:
            return replace(
                table,
                names=[*table.names, MEMORY_ROW],
                details=[*table.details, ""],
                on_gpu=np.append(table.on_gpu, False),
                annotation=np.append(table.annotation, False),
                calls=np.append(table.calls, calls.top_level_memory_records),
                first=np.append(table.first, table.first[-1]),
                self_cpu=np.append(table.self_cpu, 0),
                cpu=np.append(table.cpu, 0),
                self_gpu=np.append(table.self_gpu, 0),
                gpu=np.append(table.gpu, 0),
            )
        return table


@record
class TimeShare:
    """A part of all GPU time: ns, and its share 0..1."""

    label: str
    time: int
    share: float


@record(slots=False)
class GpuTimeShares:
    """Shares of GPU time. `classes` and `modules` heaviest first.

    `modules_missing_reason`: why there are no modules. `step_time` int64[s]: ns of each step on the CPU; `time_by_step`
    int64[s, c]: ns of GPU work launched in it, by class `class_labels[c]`, heaviest class first.
    """

    classes: list[TimeShare]
    modules: list[TimeShare]
    modules_missing_reason: str
    step_names: list[str]
    step_time: I64
    class_labels: list[str]
    time_by_step: I64


def compute_gpu_time_shares(profile: Profile) -> GpuTimeShares:
    """Compute the shares, in a few passes over the GPU work."""
    trace = profile.trace
    work = np.flatnonzero(is_in(trace.kind, [int(kind) for kind in GPU_WORK]))
    names, name_index = np.unique(trace.name[work], return_inverse=True)
    class_of_work = classify_names([trace.names[name] for name in names.tolist()])[name_index]
    duration = trace.duration[work]
    time_by_class = sum_by_index(class_of_work, duration, len(KernelClass))
    heaviest = [number for number in np.argsort(-time_by_class, kind="stable").tolist() if time_by_class[number]]
    labels = [KernelClass(number).label for number in heaviest]
    total_time = max(int(time_by_class.sum()), 1)

    def share(label: str, time: int) -> TimeShare:
        return TimeShare(label, time, time / total_time)

    step_index = step_index_at(trace, profile.request_times[work]) if trace.steps else np.full(len(work), -1, np.int32)
    time_by_step = np.zeros((len(trace.steps), len(KernelClass)), np.int64)
    in_step = step_index >= 0
    np.add.at(time_by_step, (step_index[in_step], class_of_work[in_step]), duration[in_step])
    modules, missing_reason = [], ""
    try:
        table = profile.build_table(GroupBy.MODULE)
        rows = np.argsort(-table.gpu, kind="stable").tolist()
        modules = [share(table.names[row], int(table.gpu[row])) for row in rows if table.gpu[row]]
    except NotRecordedError as error:
        missing_reason = str(error)
    return GpuTimeShares(
        classes=[share(label, int(time_by_class[number])) for label, number in zip(labels, heaviest, strict=True)],
        modules=modules,
        modules_missing_reason=missing_reason,
        step_names=[step.name for step in trace.steps],
        step_time=np.array([step.duration for step in trace.steps], np.int64),
        class_labels=labels,
        time_by_step=time_by_step[:, heaviest],
    )
