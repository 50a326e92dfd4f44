"""What lies above events: their innermost or outermost ancestor of some kind. All events climb a level at a time."""

from __future__ import annotations

import numpy as np

from tui.trace.arrays import I32, I64, Bool
from tui.trace.kinds import Kind
from tui.trace.trace import Trace


def nearest(trace: Trace, rows: I64 | I32, kind: Kind = Kind.OP) -> I64:
    """int64[k]: the innermost ancestor of that kind, -1 for none."""
    found = np.full(len(rows), -1, dtype=np.int64)
    alive = np.arange(len(rows))
    at = np.asarray(rows, dtype=np.int64)
    while len(alive):
        at = trace.parent[at].astype(np.int64)
        alive, at = alive[at >= 0], at[at >= 0]
        hit = trace.kind[at] == kind
        found[alive[hit]] = at[hit]
        alive, at = alive[~hit], at[~hit]
    return found


def outermost(trace: Trace, rows: I64 | I32, counts: Bool) -> I64:
    """int64[k]: the outermost ancestor for which `counts` bool[n] holds, -1 for none."""
    found = np.full(len(rows), -1, dtype=np.int64)
    alive = np.arange(len(rows))
    at = np.asarray(rows, dtype=np.int64)
    while len(alive):
        at = trace.parent[at].astype(np.int64)
        alive, at = alive[at >= 0], at[at >= 0]
        hit = counts[at]
        found[alive[hit]] = at[hit]
    return found


def with_ancestors(trace: Trace, rows: I64 | I32) -> Bool:
    """bool[n]: these events and all that lie above any of them."""
    marked = np.zeros(len(trace), dtype=np.bool_)
    fresh = np.zeros(len(trace), dtype=np.bool_)
    at = np.asarray(rows, dtype=np.int64)
    while len(at):
        marked[at] = True
        above = trace.parent[at]
        above = above[above >= 0]
        above = above[~marked[above]]
        if not len(above):
            break
        # Each once, of those that share a parent: flagged, and read back over the part that they span.
        fresh[above] = True
        first = int(above.min())
        at = np.flatnonzero(fresh[first : int(above.max()) + 1]) + first
        fresh[at] = False
    return marked
