"""Build the detail of one row of the table: its instances, callers, callees and kernels. All times ns."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor, find_nearest_ancestor_or_self
from torchprof_tui.analysis.kernel.kernel_summary import (
    DurationStatistics,
    compute_duration_statistics,
)
from torchprof_tui.analysis.table.counted_calls import Calls
from torchprof_tui.analysis.table.profiler_table import GroupBy, ProfilerTable
from torchprof_tui.trace.core.arrays import I32, I64, sum_by_index
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

TOP_LEVEL = "(top level)"
NO_LAUNCH = "(no launch recorded)"


@record
class RelatedName:
    """A name related to the row: its `calls`, their `time`, and its `share` 0..1 (see `RowDetail`)."""

    name: str
    calls: int
    time: int
    share: float


@record
class RowDetail:
    """Instances, callers, callees and kernels of one row.

    `events` int32[c]: rows of the trace by start; `start`, `duration` int64[c] of these, as the table counts them.
    `spread` is None for a row without calls in the trace (`[memory]`). `callers` have shares of the row's time,
    `callees` of its CPU time (the rest is self time), `kernels` of the GPU time of the row and its descendants. All
    longest first. `message_lines` are shown instead of these.
    """

    events: I32
    start: I64
    duration: I64
    spread: DurationStatistics | None
    callers: list[RelatedName]
    callees: list[RelatedName]
    kernels: list[RelatedName]
    message_lines: tuple[str, ...] = ()


def build_row_detail(trace: Trace, calls: Calls, table: ProfilerTable, row: int) -> RowDetail:
    """Build the detail of one row, in a few passes over the calls. Raises IndexError for a row outside the table."""
    if not 0 <= row < len(table):
        raise IndexError(row)
    members = table.members_of(row)
    if not table.per_name and table.group_by is not GroupBy.CLASS:
        members = members[~calls.on_gpu[members]]  # its kernels are listed separately
    members = members[np.argsort(calls.start[members], kind="stable")]
    has_gpu_time = calls.on_gpu if calls.captured is None else calls.on_gpu | calls.captured.is_op
    duration = np.where(has_gpu_time[members], calls.gpu[members], calls.cpu[members])
    in_row = np.zeros(len(calls), np.bool_)
    in_row[members] = True
    callees = np.flatnonzero((calls.parent >= 0) & in_row[np.maximum(calls.parent, 0)] & ~calls.on_gpu)
    is_work = calls.on_gpu & ~calls.annotation
    if (in_row & calls.on_gpu).any():
        is_work &= in_row
    else:
        is_work &= find_nearest_ancestor_or_self(calls.parent, in_row) >= 0
    work = np.flatnonzero(is_work)
    # The caller of GPU work is the operator or annotation around its launch.
    caller = calls.parent[members].astype(np.int64)
    is_runtime = np.asarray(trace.kind[calls.event] == Kind.RUNTIME)
    if calls.captured is not None:
        is_runtime &= ~calls.captured.is_op
    launched_work = np.flatnonzero(calls.on_gpu[members] & (caller >= 0) & is_runtime[np.maximum(caller, 0)])
    caller[launched_work] = find_nearest_ancestor(calls.parent, caller[launched_work], ~is_runtime)
    at_top = calls.on_gpu[members] & (calls.parent[members] < 0)
    code = np.where(caller >= 0, calls.name[np.maximum(caller, 0)], np.where(at_top, -2, -1))
    return RowDetail(
        events=calls.event[members],
        start=calls.start[members],
        duration=duration,
        spread=compute_duration_statistics(duration) if len(members) else None,
        callers=_sum_by_name(calls, code, duration, int(duration.sum())),
        callees=_sum_by_name(calls, calls.name[callees], calls.cpu[callees], int(calls.cpu[members].sum())),
        kernels=_sum_by_name(calls, calls.name[work], calls.gpu[work], int(calls.gpu[work].sum())),
    )


def find_row_of_event(trace: Trace, calls: Calls, table: ProfilerTable, event: int) -> int:
    """Find the row of the table that counts an event (a row of the trace), -1 for none.

    A call that was folded into its parent belongs to the parent's row.
    """
    current = event
    while current >= 0 and trace.name[current] == trace.name[event]:
        call_index = np.flatnonzero(calls.event == current)
        member_index = np.flatnonzero(table.members == call_index[0]) if len(call_index) else call_index
        if len(member_index):
            return int(np.searchsorted(table.first, member_index[0], side="right")) - 1
        if len(call_index):
            return -1  # outside of the events that this table is restricted to
        current = int(trace.parent[current])
    return -1


def _sum_by_name(calls: Calls, code: I32 | I64, time: I64, total: int) -> list[RelatedName]:
    """Sum times by name, longest first; codes -1 and -2 stand for TOP_LEVEL and NO_LAUNCH."""
    used_codes, inverse = np.unique(code, return_inverse=True)
    count = np.bincount(inverse, minlength=len(used_codes))
    time_by_code = sum_by_index(inverse, time, len(used_codes))
    related = []
    for position in np.argsort(-time_by_code, kind="stable").tolist():
        name_code = int(used_codes[position])
        name = calls.names[name_code] if name_code >= 0 else TOP_LEVEL if name_code == -1 else NO_LAUNCH
        share = int(time_by_code[position]) / total if total else 0.0
        related.append(RelatedName(name, int(count[position]), int(time_by_code[position]), share))
    return related
