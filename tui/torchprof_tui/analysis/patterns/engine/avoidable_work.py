"""Measure work that a program can be without: ops, the GPU work that they launched, and the time that both take."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine.event_tables import GpuWorkTable
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union
from torchprof_tui.trace.core.arrays import I64, Bool, is_in, sorted_unique
from torchprof_tui.trace.model.trace import Trace

NODE_REGEX = r"autograd::engine::evaluate_function: "  # nodes that a backward pass evaluates


def find_launched_work(tables: TraceTables, work: GpuWorkTable, rows: I64) -> I64:
    """Find the GPU work that was launched inside these events, or by them: indexes into `work`, int64[k]."""
    linked = np.flatnonzero(work.launch >= 0)
    calls, mask = work.launch[linked].astype(np.int64), tables.mark_rows(rows)
    return linked[mask[calls] | (tables.outermost_ancestor(calls, mask) >= 0)]


def count_launched_work(view: ScopeView, rows: I64) -> I64:
    """Count the GPU work in a scope that was launched inside each of these events, which hold no other: int64[k]."""
    order = np.argsort(rows)
    calls = view.work.launch[find_launched_work(view.tables, view.work, rows)]
    counts = np.zeros(len(rows), dtype=np.int64)
    counts[order] = np.bincount(rows[order].searchsorted(calls, side="right") - 1, minlength=len(rows))
    return counts


def answer_fault(
    view: ScopeView,
    rows: I64,
    seen: str,
    remedy: Remedy | None = None,
    *,
    kept: I64 | None = None,
    gaps: I64 | None = None,
    beside: Intervals = NO_INTERVALS,
    headline: str = "",
) -> Answer:
    """Answer that ops are without need: `rows` int64[k] of CPU events, at any depth.

    The time at stake is that of the GPU work launched inside them, and of the events themselves where the GPU is idle:
    the mean of the devices. `kept`: those of `rows` that are left once the fault is mended (one op in place of many):
    where any are gone, the time is theirs alone. `gaps`: rows, int64[m, 2]: the time of the thread between each two is
    without need as well. `beside`: further time that the CPU could do without. `headline`: see `Answer`.
    """
    tables, work, (t0, t1) = view.tables, view.work, view.window
    events = view.select_in_scope(tables.event_table(sorted_unique(rows)))
    launched = find_launched_work(tables, work, events.row)
    evidence = np.concatenate([events.row, work.events.row[launched]]).astype(np.int64)
    removed = None
    if kept is not None:
        gone = events.select(~is_in(events.row, kept))
        gone_work = find_launched_work(tables, work, gone.row)
        removed = np.concatenate([gone.row, work.events.row[gone_work]]).astype(np.int64)
        if len(removed):
            events, launched = gone, gone_work
        else:  # nothing is known to be gone
            gaps = None
    host = (events.intervals | beside).clip(t0, t1)
    if gaps is not None:
        first, last = gaps.T
        ends = view.trace.start[first] + view.trace.duration[first]
        host = host | union(ends, np.maximum(view.trace.start[last], ends)).clip(t0, t1)
    lost = 0
    for device in tables.devices:
        own = work.events.select(launched[work.device[launched] == device])
        idle: Intervals = view.gap_finder.known_idle_intervals[device] & host
        lost += own.intervals.clip(t0, t1).total + idle.total
    at_stake = lost // max(len(tables.devices), 1)
    return Answer.fired(seen, evidence, at_stake, remedy, host, None, removed, gaps, headline)


_TAKES_APART = r"aten::(unbind|unsafe_split|split|split_with_sizes|chunk|tensor_split)$"
_PUTS_TOGETHER = r"aten::(stack|cat|concat)$"
_MAX_SOURCES = 3


def find_ops_around(tables: TraceTables, first: I64, last: I64) -> I64:
    """Find the ops that take tensors apart just before loops, and put results together just after: rows, int64[k].

    `first`, `last` int64[n]: the first and last op of each loop, at no depth. Without the loop they have no use.
    """
    every = tables.outermost_ops.row
    lane, found = tables.trace.lane, [np.zeros(0, np.int64)]
    apart, together = tables.match_rows(every, _TAKES_APART), tables.match_rows(every, _PUTS_TOGETHER)
    index = every.searchsorted(first)
    near: Bool = np.ones(len(first), np.bool_)
    for back in range(1, _MAX_SOURCES + 1):
        before = np.maximum(index - back, 0)
        near = near & (index >= back) & apart[before] & (lane[every[before]] == lane[first])
        found.append(every[before[near]].astype(np.int64))
    after = np.minimum(every.searchsorted(last, side="right"), max(len(every) - 1, 0))
    follows = together[after] & (lane[every[after]] == lane[last]) & (every[after] > last)
    return sorted_unique(np.concatenate([*found, every[after[follows]]])).astype(np.int64)


def pair_neighbours(trace: Trace, rows: I64, group: I64) -> I64:
    """Pair each event with the next one of its group and lane, by start: rows, int64[k, 2]. `group`: int64[n]."""
    order = np.lexsort((trace.start[rows], group))
    rows, group = rows[order], group[order]
    together = (group[1:] == group[:-1]) & (trace.lane[rows[1:]] == trace.lane[rows[:-1]])
    pairs: I64 = np.stack([rows[:-1][together], rows[1:][together]], axis=1)
    return pairs


def add_backward_nodes(tables: TraceTables, rows: I64) -> I64:
    """Add to ops the nodes of the backward pass that belong to them, by sequence number: rows, int64[k]."""
    column = tables.trace.args.get("sequence")
    nodes = tables.match_names(NODE_REGEX).row
    if column is None or not len(nodes) or not len(rows):
        return rows
    recorded = column.events.astype(np.int64)
    inside = tables.innermost_ancestor(recorded, tables.mark_rows(rows)) >= 0
    inside |= is_in(recorded, sorted_unique(rows))
    numbers = np.asarray(column.values, dtype=np.int64)[inside & ~is_in(recorded, nodes)]
    own = column.values_at(nodes).astype(np.int64)
    return np.concatenate([rows, nodes[is_in(own, sorted_unique(numbers[numbers >= 0]))]])
