"""Find loops by what they run: the same outermost ops, in the same order, many times in a row."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.nearest_ancestors import outermost_ancestor
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.event_kind import Kind

_MAX_PERIOD = 32
"""Outermost ops of one round: longer groups are layers or whole models."""

_MIN_ROUNDS = 16
"""Rounds in a row: a dozen equal layers are a model's own."""


def find_loops_around(view: ScopeView, calls: EventTable, min_calls: int) -> Intervals:
    """Find when loops ran that contain at least `min_calls` of these calls each, within the scope.

    A loop is a run of outermost ops of one thread whose names repeat with a period of 1 to 32, for 16 rounds or more:
    from the start of its first op to the end of its last, with the Python between them.
    """
    trace, ops = view.trace, view.tables.ops
    if not len(calls) or not len(ops):
        return NO_INTERVALS
    is_op = np.asarray(trace.kind) == Kind.OP
    ops = ops.select(outermost_ancestor(trace, ops.row, is_op) < 0)
    values = ops.name.astype(np.int64) + np.asarray(trace.lane[ops.row]).astype(np.int64) * len(trace.names)
    is_looping = _mark_repeats(values)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_looping, [False]]).astype(np.int8)))
    first, last = edges[::2], edges[1::2] - 1
    index = np.sort(ops.row.searchsorted(calls.row, side="right") - 1)
    count = index.searchsorted(last, side="right") - index.searchsorted(first)
    first, last = first[count >= min_calls], last[count >= min_calls]
    return view.clip(union(ops.start[first], ops.end[last])) if len(first) else NO_INTERVALS


def _mark_repeats(values: I64) -> Bool:
    """Mark the values that belong to a group that follows itself often enough: bool[n].

    For a period p, l values in a row that equal the one p later make (l + p) / p rounds.
    """
    change = np.zeros(len(values) + 1, dtype=np.int64)
    for period in range(1, _MAX_PERIOD + 1):
        is_same = np.concatenate([[False], values[:-period] == values[period:], [False]])
        edges = np.flatnonzero(is_same[1:] != is_same[:-1])
        start, length = edges[::2], edges[1::2] - edges[::2]
        is_long = length >= (_MIN_ROUNDS - 1) * period
        np.add.at(change, start[is_long], 1)
        np.add.at(change, (start + length)[is_long] + period, -1)
    marked: Bool = np.cumsum(change[:-1]) > 0
    return marked
