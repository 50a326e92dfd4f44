"""The pattern of keys and values that are copied for each query head before attention."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, Severity, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_EXPAND_REGEX = r"aten::expand$"
_COPYING_REGEX = r"aten::(reshape|contiguous|clone|flatten)$"
_SDPA_REGEX = r"aten::scaled_dot_product_attention$"
_NAMED_REGEX = r"aten::scaled_dot_product_attention$|\w+::\w*attention\w*$"
_SOFTMAX_REGEX = r"aten::softmax$"
_PRODUCT_REGEX = r"aten::(mm|addmm|bmm|baddbmm|_scaled_mm|_grouped_mm)$"
_BATCHED_REGEX = r"aten::(bmm|baddbmm)$"


def find_attentions(tables: TraceTables) -> EventTable:
    """Find the ops of attention, by row: named ones, and a softmax whose last product and next product are batched.

    The softmax of a router follows the product of a linear layer.
    """
    softmaxes = tables.match_names(_SOFTMAX_REGEX, Kind.OP).row
    products = tables.match_names(_PRODUCT_REGEX, Kind.OP).row
    after = products.searchsorted(softmaxes)
    is_between = (after > 0) & (after < len(products))
    softmaxes, after = softmaxes[is_between], after[is_between]
    is_batched, lane = tables.mark_ops(_BATCHED_REGEX), tables.trace.lane
    for product in (products[after - 1], products[after]) if len(after) else ():
        fits = is_batched[product] & (lane[product] == lane[softmaxes])
        softmaxes = np.where(fits, softmaxes, -1)
    named = tables.match_names(_NAMED_REGEX, Kind.OP).row
    return tables.event_table(np.sort(np.concatenate([named, softmaxes[softmaxes >= 0]])))


def find_expanded_copies(tables: TraceTables) -> I64:
    """Find ops that copy what `expand` repeated: the next op, outside of other ops, that is a clone or has one inside.

    Returns their rows, int64[k]. A product that expands its own inputs is left out: `hidden-copy` names those.
    """
    trace = tables.trace
    expands = tables.match_names(_EXPAND_REGEX, Kind.OP)
    copying = tables.match_names(_COPYING_REGEX, Kind.OP)
    ops = tables.ops
    if not len(expands) or not len(copying):
        return np.empty(0, dtype=np.int64)
    is_copy = np.zeros(len(trace), dtype=np.bool_)
    clones = tables.match_names(r"aten::clone$", Kind.OP).row
    above = np.asarray(trace.parent[clones])
    is_copy[clones] = True
    is_copy[above[above >= 0]] = True
    is_copying = np.zeros(len(trace), dtype=np.bool_)
    is_copying[copying.row] = True
    # The op that begins after the expand has ended: children of it come before.
    inside = np.asarray(trace.start[ops.row])
    after = np.searchsorted(ops.row, expands.row, side="right")
    candidates = np.full(len(expands), -1, dtype=np.int64)
    for _ in range(_MAX_CHILDREN):
        index = np.minimum(after, len(ops) - 1)
        behind = (candidates < 0) & (after < len(ops)) & (inside[index] >= expands.end)
        candidates[behind] = ops.row[index[behind]]
        after = after + 1
    found = candidates >= 0
    candidates, parents = candidates[found], np.asarray(trace.parent[expands.row[found]])
    lanes = np.asarray(trace.lane[expands.row[found]])
    fits = (
        is_copying[candidates]
        & is_copy[candidates]
        & (np.asarray(trace.parent[candidates]) == parents)
        & ~((parents >= 0) & (trace.kind[np.maximum(parents, 0)] == Kind.OP))
        & (np.asarray(trace.lane[candidates]) == lanes)
    )
    rows: I64 = candidates[fits]
    return rows


_MAX_CHILDREN = 4
"""Ops below an `expand` that are skipped on the way to the next op: it has one, `as_strided`."""


@register_pattern(
    "Keys and values are copied for each head",
    meaning="grouped-query attention has fewer heads of keys and values than of queries; here keys and values are "
    "first repeated in memory",
    action="let the attention op share the heads of keys and values",
    code="F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)",
    decided="An expand directly followed by an op that copies its result (reshape, contiguous, clone), at least as "
    "often as attention runs: a fused op, or a softmax between two batched products. Time at stake: the "
    "copies on the GPU.",
    thresholds=(thresholds.GQA_COPIES_PER_ATTENTION,),
    severity=Severity.PROBLEM,
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
)
def gqa_expand_copy(view: ScopeView) -> Answer:
    tables = view.tables
    work = view.work
    fused = view.match_names(_SDPA_REGEX, Kind.OP)
    attentions = fused if len(fused) else view.select_in_scope(tables.compute_once(find_attentions))
    if not len(attentions):
        return Answer.absent("no attention")
    copies = view.select_in_scope(tables.event_table(np.sort(tables.compute_once(find_expanded_copies))))
    if len(copies) < max(2, thresholds.GQA_COPIES_PER_ATTENTION.value * len(attentions)):
        return Answer.absent(f"{format_count(len(copies), 'expanded copy', 'expanded copies')}" if len(copies) else "")
    kernels = work.events.select(np.flatnonzero(np.isin(view.outer_op, copies.row)))
    time = view.covered_time(kernels)
    if not time:
        return Answer.absent("the copies launched nothing on the GPU")
    return Answer.fired(
        f"{format_count(len(copies), 'copy', 'copies')} of expanded keys and values for "
        f"{format_count(len(attentions), 'attention')}: {format_duration(time)} on the GPU",
        np.concatenate([copies.row, kernels.row]),
        time,
        None
        if len(fused)
        else Remedy("use scaled_dot_product_attention, and let it share the heads of keys and values", _CODE),
    )


_CODE = "F.scaled_dot_product_attention(q, k, v, enable_gqa=True)"
