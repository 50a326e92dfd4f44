"""Follow the links of a trace: from a launch to its GPU work, from forward to backward, and back. -1: no link."""

from __future__ import annotations

from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.navigation import extent


def follow_link(trace: Trace, event: int) -> int:
    """Find the event that is next along the links.

    The first GPU work of a call; for GPU work the next of the same launch; the backward of a forward op; else the first
    GPU work that was launched below the event.
    """
    links = trace.links
    work = links.work_of(event)
    if len(work):
        return int(work[0])
    launch = int(links.launch_of[event])
    if launch >= 0:
        work = links.work_of(launch)
        index = int((work == event).argmax()) + 1
        return int(work[index]) if index < len(work) else -1
    backward = links.backward[links.forward == event]
    return int(backward[0]) if len(backward) else find_first_work_below(trace, event)


def follow_link_back(trace: Trace, event: int) -> int:
    """Find the call that launched GPU work, or the forward of a backward op."""
    links = trace.links
    launch = int(links.launch_of[event])
    if launch >= 0:
        return launch
    forward = links.forward[links.backward == event]
    return int(forward[0]) if len(forward) else -1


def find_first_work_below(trace: Trace, event: int) -> int:
    """Find the first GPU work that was launched by a descendant of an event."""
    links = trace.links
    # Descendants follow their ancestor in the columns, so the first launch below is one binary search.
    last = trace.lanes[int(trace.lane[event])].last
    beyond = event + 1 + int(trace.start[event + 1 : last].searchsorted(extent(trace, event)[1]))
    launch = _find_next_launch(trace, event + 1)
    while event < launch < beyond:
        if _is_descendant(trace, launch, event):
            return int(links.work_of(launch)[0])
        launch = _find_next_launch(trace, launch + 1)
    return -1


def _find_next_launch(trace: Trace, event: int) -> int:
    """Find the first event, from this one on, that launched GPU work; the number of events where none did."""
    first = trace.links.work_first
    return int(first.searchsorted(first[event], side="right")) - 1


def _is_descendant(trace: Trace, event: int, ancestor: int) -> bool:
    while event > ancestor:
        event = int(trace.parent[event])
    return event == ancestor
