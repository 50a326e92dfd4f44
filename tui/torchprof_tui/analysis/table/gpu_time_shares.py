"""Where GPU time goes, for pictures: by kernel class, by module, and by class in each step, so that drift is seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.kernel.names.classes import classify_names
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.table.groups import NotRecordedError, step_index_at
from torchprof_tui.analysis.table.profiler_table import Profile
from torchprof_tui.analysis.table.table_rows import GroupBy, TableColumn
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
    """`classes` and `modules` heaviest first; `modules_missing` says why there are none.

    `steps`: names; `step_time` int64[s] ns of each on the CPU; `of_step` int64[s, c] ns of GPU work launched in it, by
    the class `columns[c]`, heaviest class first.
    """

    classes: list[TimeShare]
    modules: list[TimeShare]
    modules_missing_reason: str
    step_names: list[str]
    step_time: I64
    class_labels: list[str]
    time_by_step: I64


def compute_gpu_time_shares(profile: Profile) -> GpuTimeShares:
    """A few passes over the GPU work."""
    trace = profile.trace
    work = np.flatnonzero(np.isin(trace.kind, [int(kind) for kind in GPU_WORK]))
    names, which = np.unique(trace.name[work], return_inverse=True)
    sort = classify_names([trace.names[name] for name in names.tolist()])[which]
    duration = trace.duration[work]
    total = np.bincount(sort, weights=duration, minlength=len(KernelClass)).astype(np.int64)
    order = [int(each) for each in np.argsort(-total, kind="stable") if total[each]]
    whole = max(int(total.sum()), 1)
    classes = [TimeShare(KernelClass(each).label, int(total[each]), int(total[each]) / whole) for each in order]

    step = step_index_at(trace, profile.request_times[work]) if trace.steps else np.full(len(work), -1, np.int32)
    table = np.zeros((len(trace.steps), len(KernelClass)), np.int64)
    inside = step >= 0
    np.add.at(table, (step[inside], sort[inside]), duration[inside])
    modules, missing = _module_shares(profile, whole)
    return GpuTimeShares(
        classes=classes,
        modules=modules,
        modules_missing_reason=missing,
        step_names=[each.name for each in trace.steps],
        step_time=np.array([each.duration for each in trace.steps], np.int64),
        class_labels=[KernelClass(each).label for each in order],
        time_by_step=table[:, order],
    )


def _module_shares(profile: Profile, whole: int) -> tuple[list[TimeShare], str]:
    try:
        table = profile.build_table(GroupBy.MODULE)
    except NotRecordedError as error:
        return [], str(error)
    heaviest = table.sort_rows(TableColumn.GPU).tolist()
    found = [TimeShare(table.names[row], int(table.gpu[row]), int(table.gpu[row]) / whole) for row in heaviest]
    return [each for each in found if each.time], ""
