"""Build the call tree of a trace with the calls of captures below the launches of graphs."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.call_tree import DispatchTree, InsertedCalls, build_dispatch_tree
from torchprof_tui.analysis.graphs.captured_nodes import (
    list_captured_nodes,
    number_marked_names,
    select_modules_and_ops,
)
from torchprof_tui.analysis.graphs.captured_ops import CapturedOps, get_captured_ops
from torchprof_tui.trace.model.trace import Trace


def build_call_tree(trace: Trace) -> DispatchTree:
    """Build the call tree; modules and ops that were captured are between a launch and its kernels, names marked.

    Opens the captures of the trace on the first call, which blocks.
    """
    ops = get_captured_ops(trace)
    return build_dispatch_tree(trace, None if ops is None else _insert_captured_calls(trace, ops))


def _insert_captured_calls(trace: Trace, ops: CapturedOps) -> InsertedCalls | None:
    """List the captured modules and ops of all replays as calls below their launches; None where there are none."""
    nodes = list_captured_nodes(trace, ops, select_modules_and_ops)
    if not len(nodes):
        return None
    kind = np.zeros(len(nodes), np.uint8)
    for source in np.unique(nodes.source).tolist():
        chosen = nodes.source == source
        kind[chosen] = ops.source_trace(trace, source).kind[nodes.event[chosen]]
    names = [*trace.names]
    return InsertedCalls(
        names=names,
        name=number_marked_names(trace, ops, nodes, names),
        kind=kind,
        parent=nodes.parent,
        launch=ops.replays.launch[nodes.replay],
        work=ops.replays.work[nodes.work],
        call_of_work=nodes.node_of_work,
    )
