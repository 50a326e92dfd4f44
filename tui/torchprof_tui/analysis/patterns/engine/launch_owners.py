"""Find the operators and ranges that launched GPU work, or made a runtime call."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.intervals import find_range_at
from torchprof_tui.trace.core.arrays import I32, I64, Bool, is_in, number_distinct, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind


def find_launch_ancestors(tables: TraceTables, pattern: str, *kinds: Kind) -> I32:
    """Find the outermost event of these kinds and this name above each launch, -1 for none: int32[all work].

    See `TraceTables.match_names` for the default kinds. Use `TraceTables.compute_once`.
    """
    return find_outermost_above(tables, tables.work.launch, tables.mark_rows(tables.match_names(pattern, *kinds).row))


def find_outermost_above(tables: TraceTables, launch: I32, mask: Bool) -> I32:
    """Find the outermost event with `mask` bool[n] above launches, int32[k], of which -1 is none: int32[k]."""
    linked = launch >= 0
    found = np.full(len(launch), -1, np.int32)
    calls, back = number_distinct(launch[linked], len(tables.trace))
    found[linked] = tables.outermost_ancestor(calls, mask)[back]
    return found


OPERATOR_LIKE_REGEX = r"(?!autograd::|torch::autograd)[\w.]+::\w"
"""`aten` ops, and library events named like operators (`torch.distributed.ddp.reducer::…`)."""

CLONE_REGEX = r"aten::clone$"  # copies a tensor, possibly into another layout

MATH_ATTENTION_REGEX = r"aten::_scaled_dot_product_attention_math$"
"""Attention by the slow reference, which is a pattern of its own: its kernels are counted there."""


def is_launched_beneath(
    view: ScopeView, chosen: Bool, pattern: str, kind: Kind = Kind.OP, *, calling: str = ""
) -> Bool:
    """Return whether an event of this name and kind launched each chosen piece of the scope's work: bool[work].

    `calling`: it must have called an operator of that name directly, which launched the piece.
    """
    owner, owner_kind = (calling, Kind.OP) if calling else (pattern, kind)
    above = view.tables.compute_once(find_launch_ancestors, owner, owner_kind)[view.work_in_scope]
    beneath: Bool = chosen & (above >= 0)
    if calling:
        beneath &= is_in(view.trace.parent[np.maximum(above, 0)], view.tables.match_names(pattern, kind).row)
    return beneath


def find_owner_ops(tables: TraceTables, calls: I64) -> I64:
    """Find the outermost operator that made each runtime call, -1 for none: int64[k].

    Ascend draws the runtime calls of a thread on a lane of their own, where no operator encloses them: there it is the
    operator that runs on the same thread when the call begins.
    """
    trace, is_op = tables.trace, tables.is_dispatcher_op
    owner = tables.outermost_ancestor(calls, is_op)
    if not len(trace.links.called_work):
        return owner
    ops = np.flatnonzero(is_op)
    outermost = tables.event_table(ops[tables.outermost_ancestor(ops, is_op) < 0])
    thread_of_lane = np.unique([lane.tid for lane in trace.lanes], return_inverse=True)[1]
    thread_of_op, thread_of_call = thread_of_lane[trace.lane[outermost.row]], thread_of_lane[trace.lane[calls]]
    for thread in sorted_unique(thread_of_call[owner < 0]).tolist():
        of_thread = outermost.select(thread_of_op == thread)
        waiting = np.flatnonzero((owner < 0) & (thread_of_call == thread))
        start = np.asarray(trace.start[calls[waiting]])
        index = find_range_at(of_thread.start, of_thread.end, start)
        owner[waiting[index >= 0]] = of_thread.row[index[index >= 0]]
    return owner
