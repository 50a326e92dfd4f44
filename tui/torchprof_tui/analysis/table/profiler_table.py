"""Sum calls into the rows of the profiler's table. All times int64 ns."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from torchprof_tui.analysis.table.counted_calls import Calls
from torchprof_tui.trace.core.arrays import I32, I64, Bool, sum_by_index
from torchprof_tui.trace.core.records import record


class GroupBy(str, Enum):
    """How calls are grouped: a row per name (NAME, SHAPE, STACK), or a row per group of calls (the others)."""

    NAME = "name"
    SHAPE = "shape"
    STACK = "stack"
    MODULE = "module"
    CLASS = "class"
    STEP = "step"
    STEP_KIND = "step-kind"


@record(slots=False)
class Groups:
    """The row of each call: `row` int32[m], -1 for none. k rows.

    `names` and `details` are the labels of a row; details are "" for tables without them. `per_name`: a row holds calls
    of one name, on one side (CPU or GPU), either annotations or not.
    """

    group_by: GroupBy
    row: I32
    names: Sequence[str]
    details: Sequence[str]
    per_name: bool = True


@record(slots=False)
class ProfilerTable:
    """k rows in the order in which torch lists them: by their first call. Columns int64[k] and bool[k].

    `self_cpu_total` and `self_gpu_total` are torch's footer; the GPU total counts GPU work, not spans of annotations.
    Rows of groups (modules, classes, steps) count calls on the CPU (classes: kernels), sum the CPU totals of calls that
    are not inside another call of the same row, and count GPU work as their GPU time.
    """

    group_by: GroupBy
    per_name: bool
    names: list[str]
    details: list[str]
    on_gpu: Bool
    annotation: Bool
    calls: I64
    self_cpu: I64
    cpu: I64
    self_gpu: I64
    gpu: I64
    self_cpu_total: int
    self_gpu_total: int
    members: I32
    """int32[...]: indices into `Calls` of all calls counted, row by row; see `members_of`."""
    first: I64

    def __len__(self) -> int:
        return len(self.names)

    def members_of(self, row: int) -> I32:
        """Return the indices into `Calls` of a row's calls, in their order there: int32[c]."""
        return self.members[self.first[row] : self.first[row + 1]]


def sum_calls(calls: Calls, groups: Groups, call_mask: Bool | None = None) -> ProfilerTable:
    """Sum calls into the table of these groups: all calls, or those in `call_mask` (bool[m])."""
    included = groups.row >= 0 if call_mask is None else (groups.row >= 0) & call_mask
    if not groups.per_name:
        included &= ~(calls.on_gpu & calls.annotation)  # their spans contain work that is counted itself
    indices = np.flatnonzero(included)
    row = groups.row
    size = len(groups.names)
    row = row[indices]
    used_rows, first_call = _find_first_calls(calls, row, indices, size)
    row_number = np.full(size, -1, np.int32)
    row_number[used_rows] = np.arange(len(used_rows), dtype=np.int32)
    row = row_number[row]
    is_gpu_work = calls.on_gpu[indices] & ~calls.annotation[indices]
    is_outermost: Bool | None = None
    gpu_mask = None
    if not groups.per_name:
        # A call inside another of the same row is part of that one's total; GPU time is counted from GPU work alone.
        caller = calls.parent[indices]
        outermost: Bool = (
            (caller < 0) | (groups.row[np.maximum(caller, 0)] != groups.row[indices]) | calls.on_gpu[indices]
        )
        is_outermost, gpu_mask = outermost, is_gpu_work
    mask_by_column = {"self_cpu": None, "cpu": is_outermost, "self_gpu": gpu_mask, "gpu": gpu_mask}
    sums = {}
    for name, mask in mask_by_column.items():
        counted = slice(None) if mask is None else mask
        sums[name] = sum_by_index(row[counted], getattr(calls, name)[indices][counted], len(used_rows))
    row_order = np.argsort(row.astype(np.uint16) if len(used_rows) < 1 << 16 else row, kind="stable")
    count = np.bincount(row, minlength=len(used_rows))
    counted_calls = count
    if not groups.per_name and groups.group_by is not GroupBy.CLASS:
        counted_calls = np.bincount(row[~calls.on_gpu[indices]], minlength=len(used_rows))
    return ProfilerTable(
        group_by=groups.group_by,
        per_name=groups.per_name,
        names=[groups.names[old_row] for old_row in used_rows.tolist()],
        details=[groups.details[old_row] for old_row in used_rows.tolist()],
        on_gpu=calls.on_gpu[first_call],
        annotation=calls.annotation[first_call],
        calls=counted_calls.astype(np.int64),
        **sums,
        self_cpu_total=int(calls.self_cpu[indices].sum()),
        self_gpu_total=int(calls.self_gpu[indices][is_gpu_work].sum()),
        members=indices[row_order].astype(np.int32),
        first=np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
    )


def _find_first_calls(calls: Calls, row: I32, indices: I64, size: int) -> tuple[I64, I64]:
    """Find (rows that have calls, each one's first call): both int64[k], by start of that call, then longest first."""
    earliest = np.full(size, np.iinfo(np.int64).max, np.int64)
    start = calls.start[indices]
    np.minimum.at(earliest, row, start)
    candidates = np.flatnonzero(start == earliest[row])
    call_index = indices[candidates]
    longest = np.where(calls.on_gpu[call_index], calls.gpu[call_index], calls.cpu[call_index])
    order = candidates[np.lexsort((calls.ordinal[call_index], -longest, start[candidates]))]
    used_rows, first_position = np.unique(row[order], return_index=True)
    by_time = np.argsort(first_position, kind="stable")
    return used_rows[by_time].astype(np.int64), indices[order[first_position[by_time]]]
