"""Find the owner of GPU work: an operator or annotation above its launch."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine.nearest_ancestors import outermost_ancestor
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.model.event_kind import Kind

MATH_ATTENTION_REGEX = r"aten::_scaled_dot_product_attention_math$"
"""Attention by the slow reference, which is a pattern of its own: its kernels are counted there."""


def is_launched_beneath(
    view: ScopeView, chosen: Bool, pattern: str, kind: Kind = Kind.OP, *, calling: str = ""
) -> Bool:
    """Return whether an event of this name and kind launched each chosen piece of the scope's work: bool[work].

    `calling`: it must have called an operator of that name directly, which launched the piece.
    """
    beneath = np.zeros(len(chosen), np.bool_)
    launch = view.work.launch
    pieces = np.flatnonzero(chosen & (launch >= 0))
    owners = view.tables.match_names(pattern, kind).row
    if not len(pieces) or not len(owners):
        return beneath
    is_owner = np.zeros(len(view.trace), np.bool_)
    is_owner[owners] = True
    calls, index = np.unique(launch[pieces], return_inverse=True)
    if calling:
        is_callee = np.zeros(len(view.trace), np.bool_)
        is_callee[view.tables.match_names(calling, Kind.OP).row] = True
        callee = outermost_ancestor(view.trace, calls, is_callee)
        caller = np.where(callee >= 0, view.trace.parent[np.maximum(callee, 0)], -1)
        found = (caller >= 0) & is_owner[np.maximum(caller, 0)]
    else:
        found = outermost_ancestor(view.trace, calls, is_owner) >= 0
    beneath[pieces] = found[index.reshape(-1)]
    return beneath
