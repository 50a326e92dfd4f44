"""The pattern of experts that are computed one after the other."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, Severity, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_ROUTE_REGEX = r"aten::nonzero$"
_GATHER_REGEX = r"aten::(index|index_select|gather)$"
_GEMM_REGEX = r"aten::(mm|addmm|bmm|baddbmm)$"
_SCATTER_REGEX = r"aten::(index_add_?|index_put_?|scatter_add_?)$"


def find_experts(tables: TraceTables) -> EventTable:
    """Find the experts of a loop: from a `nonzero` to the op that adds the result back.

    Between them, on one thread and before the next `nonzero`: a gather (or the `nonzero` is part of one, as with a
    boolean mask), then a matrix product. Returns the `nonzero` ops, each ending where its scatter does.
    """
    route = tables.match_names(_ROUTE_REGEX, Kind.OP)
    if not len(route):
        return route
    trace = tables.trace
    lane, end_of_trace = trace.lane, len(trace)
    next_route = np.append(route.row[1:], end_of_trace)

    def find_next(pattern: str, after: I64) -> I64:
        """Find the first op of the pattern behind each row, `end_of_trace` for none before the next route."""
        rows = np.append(tables.match_names(pattern, Kind.OP).row, end_of_trace)
        found = rows[np.minimum(rows.searchsorted(after, side="right"), len(rows) - 1)]
        same_lane = lane[np.minimum(found, end_of_trace - 1)] == lane[route.row]
        return np.where((found < next_route) & same_lane, found, end_of_trace)

    parent = np.asarray(trace.parent[route.row])
    gathers = tables.match_names(_GATHER_REGEX, Kind.OP).row
    gather = np.where(np.isin(parent, gathers), route.row, find_next(_GATHER_REGEX, route.row))
    product = find_next(_GEMM_REGEX, gather)
    # A masked scatter has a nonzero of its own inside, which is the next route: the scatter begins before it.
    scatter = find_next(_SCATTER_REGEX, product)
    complete = scatter < end_of_trace
    scatter = np.minimum(scatter, end_of_trace - 1)
    end = np.asarray(trace.start[scatter] + trace.duration[scatter])
    experts = EventTable(route.row, route.start, end, route.name)
    return experts.select(complete)


@register_pattern(
    "Experts run one after the other",
    meaning="for each expert the code finds its tokens (nonzero waits for the GPU), gathers, multiplies and adds "
    "them back: many small kernels, and one wait per expert",
    action="sort the tokens by expert once, and multiply all of them in a grouped GEMM",
    code="y[order] = torch._grouped_mm(x[order], weights, offs=offsets)  # order = expert.argsort()",
    decided="On one thread, as often as the limit: nonzero, then a gather, a matrix product and a scatter or "
    "index_add before the next nonzero. Time at stake: the GPU's idle time in them.",
    thresholds=(thresholds.EXPERT_LOOP_MIN,),
    severity=Severity.PROBLEM,
    needs=(ScopeView.missing_ops_reason,),
)
def moe_expert_loop(view: ScopeView) -> Answer:
    experts = view.select_in_scope(view.tables.compute_once(find_experts))
    if len(experts) < thresholds.EXPERT_LOOP_MIN.value:
        return Answer.absent(f"{format_count(len(experts), 'gathered product')}" if len(experts) else "")
    work = view.work.events
    idle = view.clip(union(experts.start, experts.end) - union(work.start, work.end)).total
    waits = f", the GPU idle {format_duration(idle)} in them" if len(view.tables.work) else ""
    start_in_scope = view.select_in_scope(view.tables.event_table(experts.row)).row
    if not len(start_in_scope):
        return Answer.absent("one expert only")
    return Answer.fired(
        f"{format_count(len(experts), 'expert')}{view.format_per_step(len(experts))} one after the other, "
        f"{format_duration(float(np.median(experts.duration)))} each{waits}",
        start_in_scope,
        idle if len(view.tables.work) else 0,
        _choose_expert_remedy(view),
        spans=union(experts.start, experts.end),
    )


def _choose_expert_remedy(view: ScopeView) -> Remedy | None:
    """Choose the remedy by the GPU: grouped products in bf16 need sm_80."""
    capability = view.tables.practices.capability
    if capability is not None and capability < (8, 0):
        return Remedy(
            "sort the tokens by expert once, pad each expert to the same length, and multiply them as one batch",
            "torch.bmm(padded_tokens, weights)",
        )
    return None
