"""Select the events of a slice: those that overlap a time range, and the events linked to them.

The steps, in order:
1. Every event that overlaps the range, uncut.
2. The other ends of its links, at any time: a kernel's launch and all work of that launch, the backward node of a
   forward op and the reverse (by flow, or by sequence number), the events at the other ends of its flow arrows.
3. All ancestors of those, so that a kernel's chain leads to the same step.
4. The forward op or backward node of events added in step 3, and its ancestors.

Events in the range therefore keep their chain. Events that extend beyond the range are complete, but lose descendants
outside of it.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import include_ancestors
from torchprof_tui.analysis.slicing.flow_entries import FlowEntries
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


def find_overlapping(trace: Trace, t0: int, t1: int) -> Bool:
    """Find the events that overlap [t0, t1): bool[n]. An event without a duration counts as 1 ns."""
    overlapping: Bool = (trace.start < t1) & (trace.start + np.maximum(trace.duration, 1) > t0)
    return overlapping


def select_events(trace: Trace, t0: int, t1: int, flows: FlowEntries) -> Bool:
    """Select the events of a slice from t0 to t1: bool[n]."""
    overlapping = find_overlapping(trace, t0, t1)
    linked: Bool = overlapping.copy()
    _add_linked_work(trace, linked)
    _add_autograd_partners(trace, overlapping, linked)
    flows.add_other_ends(overlapping, linked)
    add_ancestors(trace, linked)
    both_passes: Bool = linked.copy()
    _add_autograd_partners(trace, linked, both_passes)
    add_ancestors(trace, both_passes)
    return both_passes


def _add_linked_work(trace: Trace, kept: Bool) -> None:
    """Keep the launches of kept GPU work, then all work of kept launches."""
    launch_of = trace.links.launch_of
    launches = launch_of[np.flatnonzero(kept & (launch_of >= 0))]
    kept[launches] = True
    work = np.flatnonzero(launch_of >= 0)
    kept[work[kept[launch_of[work]]]] = True


def _add_autograd_partners(trace: Trace, selected: Bool, kept: Bool) -> None:
    """Keep the forward ops and backward nodes of `selected` events: by flow, and by sequence number."""
    links = trace.links
    kept[links.backward[selected[links.forward]]] = True
    kept[links.forward[selected[links.backward]]] = True
    numbers = trace.args.get("sequence")
    if numbers is not None and "forward_thread" in trace.args:
        values = cast("I64", numbers.values)
        has_number = selected[numbers.events] & (values >= 0) & (trace.kind[numbers.events] == Kind.OP)
        kept[numbers.events[np.isin(values, values[has_number])]] = True


def add_ancestors(trace: Trace, kept: Bool) -> None:
    """Keep all ancestors of kept events."""
    kept |= include_ancestors(trace.parent, kept)
