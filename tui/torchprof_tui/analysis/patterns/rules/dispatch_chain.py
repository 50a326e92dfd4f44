"""Section "Dispatch chain": which event calls which, from Python down to the kernel."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.chain import list_ancestors
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import Answer, register_notice
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.rules.cpu_lane import device_copy_mask
from torchprof_tui.analysis.words.dictionary import explain
from torchprof_tui.trace.core.arrays import I64, find_largest, is_in, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_MAX_CHAINS = 200  # the heaviest pieces of work whose chains are followed: one complete chain is shown


@register_notice(
    "Step → range → op → launch → kernel",
    meaning="the path from the step to a kernel; a row's total time includes its children, its self time does not",
    action="select an event; [ and ] go along its chain",
    decided="The chain of the longest GPU work that has one: an operator, a launch matched by correlation, and the "
    "step and ranges around them if they were recorded.",
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
)
def canonical_chain(view: ScopeView) -> Answer:
    work = view.work
    tables, trace = view.tables, view.trace
    with_op = np.flatnonzero(view.outer_op >= 0)
    for index in with_op[find_largest(view.work_time[with_op], _MAX_CHAINS)].tolist():
        row, launch = int(work.events.row[index]), int(work.launch[index])
        chain = [event for event in reversed(list_ancestors(trace, launch)) if trace.kind[event] != Kind.PYTHON]
        step_index = int(tables.steps.index_at(trace.start[launch : launch + 1])[0])
        if step_index >= 0 and int(tables.steps.row[step_index]) not in chain:
            chain.insert(0, int(tables.steps.row[step_index]))  # autograd's threads have no step events
        evidence = view.select_in_scope(tables.event_table(np.array([*chain, launch, row]))).row
        chain_text = " › ".join(tables.short_name(event, 32) for event in [*chain, launch])
        return Answer.fired(
            f"{chain_text} ⇢ {tables.short_name(row, 32)} ({format_duration(int(trace.duration[row]))})", evidence
        )
    return Answer.absent("no operator launched GPU work here")


def _check_child_call(view: ScopeView, parent: str, child: str) -> Answer:
    """Fire where an op named `child` is a direct child of one named `parent`."""
    if missing_reason := view.missing_ops_reason():
        return Answer.cannot_tell(missing_reason)
    children = view.match_names(rf"{child}$", Kind.OP)
    parents = view.trace.parent[children.row]
    parent_names = [name_id for name_id, name in enumerate(view.trace.names) if name == parent]
    is_match = (parents >= 0) & is_in(view.trace.name[np.maximum(parents, 0)], parent_names)
    if not len(children) or not is_match.any():
        return Answer.absent()
    matches = children.select(is_match)
    return Answer.fired(f"{parent} became {child} {len(matches):,}×{view.format_per_step(len(matches))}", matches.row)


@register_notice(
    "matmul of two matrices",
    meaning=explain("mm", "why"),
    action="nothing: this is the shortest path to a kernel",
    decided="aten::mm directly below aten::matmul.",
)
def matmul_to_mm(view: ScopeView) -> Answer:
    return _check_child_call(view, "aten::matmul", "aten::mm")


@register_notice(
    "matmul of batches",
    meaning=explain("bmm", "why"),
    action="nothing; if one argument has no batch, fold the batch into the rows to get a larger plain GEMM",
    decided="aten::bmm directly below aten::matmul.",
)
def matmul_to_bmm(view: ScopeView) -> Answer:
    return _check_child_call(view, "aten::matmul", "aten::bmm")


@register_notice(
    "Bias and product in one op",
    meaning=explain("addmm", "is", "why"),
    action="look at what it launches: one GEMM, as for nn.Linear, or a copy and a GEMM",
    decided="aten::addmm without an aten::add among its siblings (if the parent is an annotation or a step: as its "
    "next sibling).",
    fires_on_absence=True,
    needs=(ScopeView.missing_ops_reason,),
)
def addmm_fusion(view: ScopeView) -> Answer:
    addmms = view.match_names(r"aten::addmm$", Kind.OP)
    if not len(addmms):
        return Answer.absent()
    trace, tables = view.trace, view.tables
    adds = tables.match_names(r"aten::add_?$", Kind.OP).row
    add_parents = trace.parent[adds]
    parent = trace.parent[addmms.row]
    under_op = (parent >= 0) & (trace.kind[np.maximum(parent, 0)] == Kind.OP)
    has_sibling_add = under_op & is_in(parent, add_parents)
    # Under a step or a range all ops of a model are siblings: there only the next sibling can be its separate add.
    fused = addmms.select(~has_sibling_add & (under_op | ~is_in(_find_next_siblings(view, addmms), adds)))
    if not len(fused):
        return Answer.absent("every addmm has an add next to it")
    seen = f"{view.format_count(len(fused), 'addmm', 'addmm')} without a separate add"
    if count := int(is_in(fused.row, view.inner_op[device_copy_mask(view)]).sum()):
        seen += f"; {count} of them copy the bias first: no launch less than mm and add"
        gemms = tables.filter_by_name(view.work.events, lambda name: name.startswith("nvjet") and "_badd_" in name)
        if is_in(fused.row, view.inner_op[is_in(view.work.events.row, gemms.row)]).any():
            seen += "; the GEMM adds it by a kernel of its own on Hopper, by that of mm on older GPUs"
    return Answer.fired(seen, fused.row)


def _find_next_siblings(view: ScopeView, events: EventTable) -> I64:
    """Find the next op that begins after each event ended, on its lane and with its parent: int64[k]; -1 for none."""
    trace, ops = view.trace, view.tables.ops
    next_op = np.full(len(events), -1, dtype=np.int64)
    lane_of_row = trace.lane[events.row]
    for lane_number in sorted_unique(lane_of_row).tolist():
        lane, on_lane = trace.lanes[lane_number], np.flatnonzero(lane_of_row == lane_number)
        first, last = ops.row.searchsorted([lane.first, lane.last]).tolist()
        op_index = first + ops.start[first:last].searchsorted(events.end[on_lane])
        has_next = op_index < last
        next_op[on_lane[has_next]] = ops.row[op_index[has_next]]
    same_parent = (next_op >= 0) & (trace.parent[np.maximum(next_op, 0)] == trace.parent[events.row])
    return np.where(same_parent, next_op, -1)
