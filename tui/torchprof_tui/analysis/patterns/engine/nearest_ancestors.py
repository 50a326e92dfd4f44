"""Find the innermost or outermost ancestor of events by kind or mask."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor, find_outermost_ancestor, include_ancestors
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


def nearest_ancestor(trace: Trace, rows: I64 | I32, kind: Kind = Kind.OP) -> I64:
    """Return the innermost ancestor of this kind, -1 for none: int64[k]."""
    return find_nearest_ancestor(trace.parent, rows, np.asarray(trace.kind) == kind)


def outermost_ancestor(trace: Trace, rows: I64 | I32, mask: Bool) -> I64:
    """Return the outermost ancestor for which `mask` bool[n] holds, -1 for none: int64[k]."""
    return find_outermost_ancestor(trace.parent, rows, mask)


def mark_with_ancestors(trace: Trace, rows: I64 | I32) -> Bool:
    """Mark these events and all their ancestors: bool[n]."""
    chosen = np.zeros(len(trace), dtype=np.bool_)
    chosen[rows] = True
    return include_ancestors(trace.parent, chosen)
