"""Describe where in the program a launch happened: between which ops of its thread."""

from __future__ import annotations

from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_NAME_CELLS = 40
_OP_KINDS = (int(Kind.OP), int(Kind.RUNTIME))


def describe_launch_place(tables: TraceTables, next_event: int) -> str:
    """Describe between which ops the thread was before it launched `next_event`: the outermost before and after.

    Such as "between aten::to and aten::linear". As recorded: `clean` it. `next_event`: a row, -1 for none.
    """
    trace = tables.trace
    launch = int(trace.links.launch_of[next_event]) if next_event >= 0 else -1
    if launch < 0:
        return "after the last launch"
    after = _find_outermost(trace, launch)
    after_name = tables.short_name(after, _NAME_CELLS)
    activity, lane = tables.ops_and_calls, trace.lanes[int(trace.lane[launch])]
    first, last = activity.row.searchsorted([lane.first, lane.last]).tolist()
    before = first + int(activity.start[first:last].searchsorted(int(trace.start[after]))) - 1
    if before < first:
        return f"before {after_name}"
    before_name = tables.short_name(_find_outermost(trace, int(activity.row[before])), _NAME_CELLS)
    return f"between {before_name} and {after_name}"


def _find_outermost(trace: Trace, row: int) -> int:
    """Return the outermost op or call that contains an op or call."""
    outermost = ancestor = row
    while ancestor >= 0:
        if int(trace.kind[ancestor]) in _OP_KINDS:
            outermost = ancestor
        ancestor = int(trace.parent[ancestor])
    return outermost
