"""Forward op ⇢ backward node and back: by `fwdbwd` flows, and where a trace has none, by sequence numbers."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.model.trace import SparseColumn, Trace


def find_autograd_partners(trace: Trace, path: list[int]) -> tuple[int, int]:
    """(the forward op whose backward this path runs in or -1, the backward node of an op of the path or -1).

    `path` are rows, outermost first. The innermost op that has a partner decides; flows are believed first. Costs a
    look at each flow and, for each op, at each sequence number: a few ms on a million events, and no memory.
    """
    links = trace.links
    rows = np.array(path, dtype=np.int32)
    forward = _find_partner_by_flow(links.backward, links.forward, rows)
    if forward < 0:
        forward = _find_partner_by_sequence(trace, path, backward=True)
    if forward >= 0:
        return forward, -1
    backward = _find_partner_by_flow(links.forward, links.backward, rows)
    return -1, backward if backward >= 0 else _find_partner_by_sequence(trace, path, backward=False)


def _find_partner_by_flow(ours: I32, theirs: I32, rows: I32) -> int:
    """The other end of a pair of the innermost row that has one: the first where it has several; else -1."""
    found = np.flatnonzero(np.isin(ours, rows))
    if not len(found):
        return -1
    depth = {int(row): k for k, row in enumerate(rows)}
    return int(theirs[max(found.tolist(), key=lambda k: (depth[int(ours[k])], -k))])


def _find_partner_by_sequence(trace: Trace, path: list[int], backward: bool) -> int:
    """The partner by sequence number of the innermost op that has one; of backward nodes where `backward`.

    An op notes the number that the next node of the graph will get, so the ops around it note the same: the one that
    made the node is the last to begin. Around a backward node stands the engine's own call, which has its number too:
    the node is the last to begin there as well. What runs backward knows the thread of its forward op (> 0).
    """
    numbers, threads = trace.args.get("sequence"), trace.args.get("forward_thread")
    if numbers is None or threads is None:
        return -1
    for row in reversed(path):
        number = numbers.get(row)
        if number is None or number < 0 or _runs_backward(threads, row) != backward:
            continue
        same = numbers.events[numbers.values == number].tolist()
        forwards = [event for event in same if not _runs_backward(threads, event)]
        backwards = [event for event in same if _runs_backward(threads, event)]
        # Numbers are a thread's own: where several threads used one, nobody can tell whose it is.
        if not backwards or len({int(trace.lane[event]) for event in forwards}) != 1:
            continue
        forward, node = _find_last_started(trace, forwards), _find_last_started(trace, backwards)
        if backward or forward == row:
            return forward if backward else node
    return -1


def _runs_backward(threads: SparseColumn, event: int) -> bool:
    return (threads.get(event) or 0) > 0


def _find_last_started(trace: Trace, events: list[int]) -> int:
    return max(events, key=lambda event: (int(trace.start[event]), event))
