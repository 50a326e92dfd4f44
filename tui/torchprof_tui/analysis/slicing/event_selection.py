"""Which events a slice of a trace keeps: what overlaps a range of time, and whatever that is linked to.

The rule, in order:
1. Every event with a part in the range, whole.
2. The other ends of its links, wherever they lie: a kernel's launch and all that this launch started, a forward op's
   backward node and back (by flow, or by sequence number), the events at the other ends of its flow arrows.
3. All that encloses those, up to the outermost, so that a kernel's chain leads to the same step.
4. The forward op or backward node of what came in by 3, and what encloses that.

So what lies in the range has the chain that it had; what sticks out of it is whole, but has lost some of what it held
outside.
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
    """bool[n]: the events with a part in t0 up to, not with, t1; one without a duration lies where it starts."""
    found: Bool = (trace.start < t1) & (trace.start + np.maximum(trace.duration, 1) > t0)
    return found


def select_events(trace: Trace, t0: int, t1: int, flows: FlowEntries) -> Bool:
    """bool[n]: the events that a slice from t0 to t1 keeps."""
    kept = find_overlapping(trace, t0, t1)
    linked: Bool = kept.copy()
    _add_linked_work(trace, linked)
    _add_autograd_partners(trace, kept, linked)
    flows.add_other_ends(kept, linked)
    add_ancestors(trace, linked)
    both_passes: Bool = linked.copy()
    _add_autograd_partners(trace, linked, both_passes)
    add_ancestors(trace, both_passes)
    return both_passes


def _add_linked_work(trace: Trace, kept: Bool) -> None:
    """The launches of kept GPU work, then all work of kept launches."""
    launch_of = trace.links.launch_of
    launches = launch_of[np.flatnonzero(kept & (launch_of >= 0))]
    kept[launches] = True
    work = np.flatnonzero(launch_of >= 0)
    kept[work[kept[launch_of[work]]]] = True


def _add_autograd_partners(trace: Trace, of: Bool, kept: Bool) -> None:
    """Forward ops of backward nodes and back: by flows, and by what shares a sequence number."""
    links = trace.links
    kept[links.backward[of[links.forward]]] = True
    kept[links.forward[of[links.backward]]] = True
    numbers = trace.args.get("sequence")
    if numbers is not None and "forward_thread" in trace.args:
        values = cast("I64", numbers.values)
        mine = of[numbers.events] & (values >= 0) & (trace.kind[numbers.events] == Kind.OP)
        kept[numbers.events[np.isin(values, values[mine])]] = True


def add_ancestors(trace: Trace, kept: Bool) -> None:
    """All ancestors of what is kept."""
    kept |= include_ancestors(trace.parent, kept)
