"""Match forward ops and backward nodes by `fwdbwd` flows, or by sequence numbers in traces without such flows."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.model.trace import SparseColumn, Trace


def find_autograd_partners(trace: Trace, path: list[int]) -> tuple[int, int]:
    """Find (the forward op whose backward pass contains this path or -1, the backward node of an op of the path or -1).

    `path`: events, outermost first. The innermost op with a partner decides; flows take precedence over sequence
    numbers. Scans each flow once and, for each op, all sequence numbers: a few ms for a million events.
    """
    links = trace.links
    rows = np.array(path, dtype=np.int32)
    forward = _find_partner_by_flow(links.backward, links.forward, rows)
    if forward < 0:
        forward = find_partner_by_sequence(trace, path, backward=True)
    if forward >= 0:
        return forward, -1
    backward = _find_partner_by_flow(links.forward, links.backward, rows)
    return -1, backward if backward >= 0 else find_partner_by_sequence(trace, path, backward=False)


def _find_partner_by_flow(near_ends: I32, far_ends: I32, rows: I32) -> int:
    """Find the far end of the innermost row's flow; the first if it has several, -1 if no row has one."""
    flows = np.flatnonzero(np.isin(near_ends, rows))
    if not len(flows):
        return -1
    depth = {int(row): k for k, row in enumerate(rows)}
    return int(far_ends[max(flows.tolist(), key=lambda k: (depth[int(near_ends[k])], -k))])


def find_partner_by_sequence(trace: Trace, path: list[int], backward: bool) -> int:
    """Find the partner by sequence number of the innermost op that has one; of backward nodes if `backward`.

    An op records the number of the next node in the graph, so its enclosing ops record the same number: the op that
    created the node is the last to start. A backward node is enclosed by the engine's own call with the same number:
    the node is again the last to start. Backward events record the thread of their forward op (> 0).
    """
    numbers, threads = trace.args.get("sequence"), trace.args.get("forward_thread")
    if numbers is None or threads is None:
        return -1
    for row in reversed(path):
        number = numbers.get(row)
        if number is None or number < 0 or _runs_backward(threads, row) != backward:
            continue
        candidates = numbers.events[numbers.values == number].tolist()
        forwards = [event for event in candidates if not _runs_backward(threads, event)]
        backwards = [event for event in candidates if _runs_backward(threads, event)]
        # Sequence numbers are per thread: if forward ops of several threads share one, the partner is undecidable.
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
