"""Describe the edges of a replayed graph at one kernel: what it waits for, and what waits for it."""

from __future__ import annotations

from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.graph_neighbours import GraphNeighbours
from torchprof_tui.ui.explorer.panels.event_title import shorten_event_name

MAX_LISTED = 3
"""Kernels of either side whose names are listed; the others are counted."""


def describe_graph_edges(trace: Trace, neighbours: GraphNeighbours) -> str:
    """Describe the recorded edges, "" for none."""
    parts = []
    if len(neighbours.waits_for):
        parts.append(f"waits for {_list_names(trace, neighbours.waits_for)}")
    if len(neighbours.waited_for_by):
        verb = "waits" if len(neighbours.waited_for_by) == 1 else "wait"
        parts.append(f"{_list_names(trace, neighbours.waited_for_by)} {verb} for it")
    return " · ".join(parts)


def _list_names(trace: Trace, events: I32) -> str:
    names = [shorten_event_name(trace.event(event)) for event in events[:MAX_LISTED].tolist()]
    more = f" and {len(events) - MAX_LISTED} more" if len(events) > MAX_LISTED else ""
    return ", ".join(names) + more
