"""Which row each call belongs to: by name, kernel class, step, input shapes, Python stack or module."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.names.classes import classify_names
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.table.call_sites import CallSites
from torchprof_tui.analysis.table.calls import Calls
from torchprof_tui.analysis.table.op_args import OpArgs
from torchprof_tui.analysis.table.table_rows import GroupBy, Groups
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.trace import Trace

OUTSIDE_STEPS = "(outside of all steps)"
NO_MODULE = "(no module)"


class NotRecordedError(Exception):
    """The trace does not hold what is asked; the text says what to record."""


def group_by_name(calls: Calls) -> Groups:
    """Torch's own rows: a name, apart for the CPU and the GPU, apart for annotations and what torch runs itself."""
    return _group_per_name(GroupBy.NAME, calls, np.zeros(len(calls), np.int32), [""])


def group_by_shape(calls: Calls, args: OpArgs) -> Groups:
    """Names apart for each set of input shapes. Raises NotRecordedError where no operator has any."""
    if len(args.shapes) < 2:
        raise NotRecordedError("no input shapes in this trace (they are recorded with record_shapes=True)")
    return _group_per_name(GroupBy.SHAPE, calls, args.shape_index, args.shapes)


def group_by_stack(calls: Calls, call_sites: CallSites, depth: int) -> Groups:
    """Names apart for each stack of the `depth` innermost Python frames, innermost first, one a line.

    GPU work has the stack of its launch, what runs backward that of its forward. Raises NotRecordedError.
    """
    stack, texts = call_sites.factorize_stacks(calls.event, depth)
    if len(texts) < 2:
        raise NotRecordedError("no Python frames in this trace (they are recorded with with_stack=True)")
    return _group_per_name(GroupBy.STACK, calls, stack, texts)


def group_by_module(calls: Calls, call_sites: CallSites) -> Groups:
    """All calls made by one nn.Module, itself and not its submodules. Raises NotRecordedError."""
    module, paths = call_sites.factorize_modules(calls.event)
    if len(paths) < 2:
        raise NotRecordedError("no modules in this trace (they are recorded with with_stack=True)")
    paths = [path or NO_MODULE for path in paths]
    return Groups(GroupBy.MODULE, module, paths, [""] * len(paths), per_name=False)


def group_by_class(calls: Calls) -> Groups:
    """GPU work by what sort of kernel it is; calls on the CPU are left out."""
    work = np.flatnonzero(calls.on_gpu & ~calls.annotation)
    used = np.unique(calls.name[work])
    sort = np.zeros(len(calls.names), np.int32)
    sort[used] = classify_names([calls.names[place] for place in used.tolist()])
    row = np.full(len(calls), -1, np.int32)
    row[work] = sort[calls.name[work]]
    labels = [kind.label for kind in KernelClass]
    return Groups(GroupBy.CLASS, row, labels, [""] * len(labels), per_name=False)


def group_by_step(trace: Trace, calls: Calls, request_times: I64) -> Groups:
    """All calls of one step. `asked` int64[n]: when each event was asked for; see `scope.asked_at`."""
    if not trace.steps:
        raise NotRecordedError("no steps in this trace (they are recorded with prof.step())")
    step = step_index_at(trace, request_times[calls.event])
    names = [*(step.name for step in trace.steps), OUTSIDE_STEPS]
    row = np.where(step >= 0, step, len(trace.steps)).astype(np.int32)
    return Groups(GroupBy.STEP, row, names, [""] * len(names), per_name=False)


def step_index_at(trace: Trace, times: I64) -> I32:
    """int32[k]: which of `trace.steps` is under way at each time, -1 for none."""
    if not trace.steps:
        return np.full(len(times), -1, np.int32)
    start = np.array([step.start for step in trace.steps], np.int64)
    end = start + np.array([step.duration for step in trace.steps], np.int64)
    place = np.searchsorted(start, times, side="right") - 1
    inside = (place >= 0) & (times < np.maximum(end, start + 1)[np.maximum(place, 0)])
    return np.where(inside, place, -1).astype(np.int32)


def _group_per_name(by: GroupBy, calls: Calls, detail: I32, details: list[str]) -> Groups:
    """Rows by (name, side, annotation, detail), numbered as their keys ascend."""
    side = calls.on_gpu.astype(np.int64) * 2 + calls.annotation
    key = (detail.astype(np.int64) * len(calls.names) + calls.name) * 4 + side
    slots = len(details) * len(calls.names) * 4
    if slots <= 8 * len(key) + 1024:  # counting beats sorting as long as the keys are dense
        used = np.flatnonzero(np.bincount(key, minlength=slots))
        number = np.zeros(slots, np.int32)
        number[used] = np.arange(len(used), dtype=np.int32)
        row = number[key]
    else:
        used, inverse = np.unique(key, return_inverse=True)
        row = inverse.astype(np.int32)
    which = used // 4
    names = [calls.names[place] for place in (which % len(calls.names)).tolist()]
    return Groups(by, row, names, [details[place] for place in (which // len(calls.names)).tolist()])
