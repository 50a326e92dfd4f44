"""Compute shares of GPU time for charts: by kernel class, by module, and by class in each step to show drift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import classify_names
from torchprof_tui.analysis.table.event_scope import NotRecordedError, step_index_at
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy, TableColumn
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import GPU_WORK


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A part of all GPU time: ns, and its share 0..1."""

    label: str
    time: int
    share: float


@dataclass(frozen=True)
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
    work = np.flatnonzero(np.isin(trace.kind, [int(kind) for kind in GPU_WORK]))
    names, name_index = np.unique(trace.name[work], return_inverse=True)
    class_of_work = classify_names([trace.names[name] for name in names.tolist()])[name_index]
    duration = trace.duration[work]
    time_by_class = np.bincount(class_of_work, weights=duration, minlength=len(KernelClass)).astype(np.int64)
    classes_by_time = [
        int(kernel_class) for kernel_class in np.argsort(-time_by_class, kind="stable") if time_by_class[kernel_class]
    ]
    total_time = max(int(time_by_class.sum()), 1)
    classes = [
        TimeShare(
            KernelClass(kernel_class).label,
            int(time_by_class[kernel_class]),
            int(time_by_class[kernel_class]) / total_time,
        )
        for kernel_class in classes_by_time
    ]

    step_index = step_index_at(trace, profile.request_times[work]) if trace.steps else np.full(len(work), -1, np.int32)
    time_by_step = np.zeros((len(trace.steps), len(KernelClass)), np.int64)
    in_step = step_index >= 0
    np.add.at(time_by_step, (step_index[in_step], class_of_work[in_step]), duration[in_step])
    modules, missing_reason = _module_shares(profile, total_time)
    return GpuTimeShares(
        classes=classes,
        modules=modules,
        modules_missing_reason=missing_reason,
        step_names=[trace_step.name for trace_step in trace.steps],
        step_time=np.array([trace_step.duration for trace_step in trace.steps], np.int64),
        class_labels=[KernelClass(kernel_class).label for kernel_class in classes_by_time],
        time_by_step=time_by_step[:, classes_by_time],
    )


def _module_shares(profile: Profile, total_time: int) -> tuple[list[TimeShare], str]:
    """Return (shares by module, heaviest first, ""), or ([], why modules are missing)."""
    try:
        table = profile.build_table(GroupBy.MODULE)
    except NotRecordedError as error:
        return [], str(error)
    heaviest = table.sort_rows(TableColumn.GPU).tolist()
    shares = [TimeShare(table.names[row], int(table.gpu[row]), int(table.gpu[row]) / total_time) for row in heaviest]
    return [share for share in shares if share.time], ""
