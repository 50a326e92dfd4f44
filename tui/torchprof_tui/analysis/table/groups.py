"""Group calls into rows: by name, kernel class, step, input shapes, Python stack or module."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import classify_names
from torchprof_tui.analysis.serving.report import NO_SERVING_STEPS, RECORD_SERVING_STEPS
from torchprof_tui.analysis.serving.serving_steps import KINDS
from torchprof_tui.analysis.table.captured_calls import CallSitesWithCaptures
from torchprof_tui.analysis.table.counted_calls import Calls
from torchprof_tui.analysis.table.event_scope import NotRecordedError, step_index_at
from torchprof_tui.analysis.table.op_args import OpArgs
from torchprof_tui.analysis.table.profiler_table import GroupBy, Groups
from torchprof_tui.trace.core.arrays import I32, I64
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
