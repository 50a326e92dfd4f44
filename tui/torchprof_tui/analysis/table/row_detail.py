"""One row of the table, opened: its instances, who called it, what it called, its kernels. All times ns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor, find_nearest_ancestor_or_self
from torchprof_tui.analysis.kernel.duration_distribution import DurationStatistics, compute_duration_statistics
from torchprof_tui.analysis.table.calls import Calls
from torchprof_tui.analysis.table.table_rows import GroupBy, ProfilerTable
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

TOP_LEVEL = "(top level)"
NO_LAUNCH = "(no launch recorded)"


@dataclass(frozen=True, slots=True)
class RelatedName:
    """A name next to the row: `calls` of it, their `time`, and the `share` 0..1 of what they are compared with."""

    name: str
    calls: int
    time: int
    share: float


@dataclass(frozen=True, slots=True)
class RowDetail:
    """`events` int32[c]: rows of the trace by start; `start`, `duration` int64[c] theirs, as the table counts them.

    `spread` is None for a row without calls in the trace (`[memory]`). `callers` share the row's time among those that
    called it, `callees` have their share of the row's CPU time (what is left is its own), `kernels` theirs of the GPU
    time beneath it. All longest first. `told`: lines in place of these.
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
    """The detail of one row. A few passes over the calls. Raises IndexError outside of the table."""
    if not 0 <= row < len(table):
        raise IndexError(row)
    members = table.members_of(row)
    if not table.per_name and table.group_by is not GroupBy.CLASS:
        members = members[~calls.on_gpu[members]]  # its kernels are told apart below
    members = members[np.argsort(calls.start[members], kind="stable")]
    duration = _call_durations(calls, members)
    mine = np.zeros(len(calls), np.bool_)
    mine[members] = True
    return RowDetail(
        events=calls.event[members],
        start=calls.start[members],
        duration=duration,
        spread=compute_duration_statistics(duration) if len(members) else None,
        callers=_sum_callers(trace, calls, members, duration),
        callees=_sum_callees(calls, mine),
        kernels=_sum_kernels(calls, mine),
    )


def find_row_of_event(trace: Trace, calls: Calls, table: ProfilerTable, event: int) -> int:
    """The row of the table that counts an event (a row of the trace), -1 for none.

    A call that is folded into the one around it belongs to that one's row.
    """
    at = event
    while at >= 0 and trace.name[at] == trace.name[event]:
        place = np.flatnonzero(calls.event == at)
        found = np.flatnonzero(table.members == place[0]) if len(place) else place
        if len(found):
            return int(np.searchsorted(table.first, found[0], side="right")) - 1
        if len(place):
            return -1  # counted elsewhere: outside of what this table is restricted to
        at = int(trace.parent[at])
    return -1


def _call_durations(calls: Calls, places: I32 | I64) -> I64:
    return np.where(calls.on_gpu[places], calls.gpu[places], calls.cpu[places])


def _sum_callers(trace: Trace, calls: Calls, members: I32, duration: I64) -> list[RelatedName]:
    """For GPU work the operator or annotation around its launch, not the runtime call itself."""
    above = calls.parent[members].astype(np.int64)
    runtime = trace.kind[calls.event] == Kind.RUNTIME
    inside = np.flatnonzero(calls.on_gpu[members] & (above >= 0) & runtime[np.maximum(above, 0)])
    above[inside] = find_nearest_ancestor(calls.parent, above[inside], ~runtime)
    at_top = calls.on_gpu[members] & (calls.parent[members] < 0)
    code = np.where(above >= 0, calls.name[np.maximum(above, 0)], np.where(at_top, -2, -1))
    return _sum_by_name(calls, code, duration, int(duration.sum()))


def _sum_callees(calls: Calls, mine: Bool) -> list[RelatedName]:
    below = np.flatnonzero((calls.parent >= 0) & mine[np.maximum(calls.parent, 0)] & ~calls.on_gpu)
    whole = np.flatnonzero(mine)
    return _sum_by_name(calls, calls.name[below], calls.cpu[below], int(calls.cpu[whole].sum()))


def _sum_kernels(calls: Calls, mine: Bool) -> list[RelatedName]:
    work = calls.on_gpu & ~calls.annotation
    if (mine & calls.on_gpu).any():
        work &= mine
    else:
        work &= find_nearest_ancestor_or_self(calls.parent, mine) >= 0
    places = np.flatnonzero(work)
    return _sum_by_name(calls, calls.name[places], calls.gpu[places], int(calls.gpu[places].sum()))


def _sum_by_name(calls: Calls, code: I32 | I64, time: I64, total: int) -> list[RelatedName]:
    """Sums by name, longest first; -1 and -2 stand for no name."""
    used, inverse = np.unique(code, return_inverse=True)
    count = np.bincount(inverse, minlength=len(used))
    # float64 sums are exact up to 2**53 ns: a hundred days.
    spent = np.bincount(inverse, weights=time, minlength=len(used)).astype(np.int64)
    found = []
    for place in np.argsort(-spent, kind="stable").tolist():
        number = int(used[place])
        name = calls.names[number] if number >= 0 else TOP_LEVEL if number == -1 else NO_LAUNCH
        share = int(spent[place]) / total if total else 0.0
        found.append(RelatedName(name, int(count[place]), int(spent[place]), share))
    return found
