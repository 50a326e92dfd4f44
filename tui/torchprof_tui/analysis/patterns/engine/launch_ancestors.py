"""Find ancestors of the calls that launched a trace's GPU work, once for the whole trace."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from torchprof_tui.analysis.patterns.engine.nearest_ancestors import outermost_ancestor
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.arrays import I32, Bool, number_distinct
from torchprof_tui.trace.model.event_kind import Kind


def find_launch_ancestors(tables: TraceTables, mark: Callable[..., Bool], *more: Hashable) -> I32:
    """Find the outermost marked ancestor of the launch of each piece of work, -1 for none: int32[all work].

    `mark(tables, *more)` returns bool[n]. Kept with the tables.
    """
    return tables.compute_once(_find_launch_ancestors, mark, *more)


def _find_launch_ancestors(tables: TraceTables, mark: Callable[..., Bool], *more: Hashable) -> I32:
    launch = tables.work.launch
    linked = launch >= 0
    found = np.full(len(launch), -1, np.int32)
    calls, back = number_distinct(launch[linked], len(tables.trace))
    found[linked] = outermost_ancestor(tables.trace, calls, mark(tables, *more))[back]
    return found


def mark_matches(tables: TraceTables, pattern: str, *kinds: Kind) -> Bool:
    """Mark the events of these kinds whose name matches the pattern at its start: bool[n]."""
    marked = np.zeros(len(tables.trace), np.bool_)
    marked[tables.match_names(pattern, *kinds).row] = True
    return marked


def mark_clones(tables: TraceTables) -> Bool:
    """Return `TraceTables.is_clone`, for `find_launch_ancestors`."""
    return tables.is_clone


def mark_operator_like(tables: TraceTables) -> Bool:
    """Return `TraceTables.is_operator_like`, for `find_launch_ancestors`."""
    return tables.is_operator_like
