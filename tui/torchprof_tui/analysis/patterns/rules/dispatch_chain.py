"""Section "Dispatch chain": who calls whom, from a step down to a kernel."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.chain import list_ancestors
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Section,
    absent_answer,
    cannot_tell_answer,
    fired_answer,
)
from torchprof_tui.analysis.patterns.engine.registry import register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import NO_LINKS, ScopeView, format_count, us
from torchprof_tui.trace.core.arrays import I64, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind

_MAX_CHAINS = 200
"""The heaviest pieces of work whose chains are followed: one complete chain is enough to show."""


@register_pattern(
    "canonical-chain",
    Section.DISPATCH,
    "Step → range → op → launch → kernel",
    meaning="how every kernel comes about; a row's self time leaves its children out, its total includes them",
    action="select an event and press [ or ] to walk along its chain",
    decided="The chain of the heaviest piece of GPU work that has one: an operator, a launch joined by correlation, "
    "and the step and ranges around them where they were recorded.",
)
def canonical_chain(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason() or view.missing_ops_reason():
        return cannot_tell_answer(missing)
    work = view.work
    if not (work.launch >= 0).any():
        return cannot_tell_answer(NO_LINKS)
    facts, trace = view.tables, view.trace
    with_op = np.flatnonzero(view.outer_op >= 0)
    for place in with_op[np.argsort(-view.work_time[with_op], kind="stable")][:_MAX_CHAINS].tolist():
        row, launch = int(work.events.row[place]), int(work.launch[place])
        path = [hop for hop in reversed(list_ancestors(trace, launch)) if trace.kind[hop] != Kind.PYTHON]
        step = int(facts.steps.index_at(trace.start[launch : launch + 1])[0])
        if step >= 0 and int(facts.steps.row[step]) not in path:
            path.insert(0, int(facts.steps.row[step]))  # autograd's threads have no steps of their own
        inside = view.select_in_scope(facts.event_table(np.array([*path, launch, row]))).row
        words = " › ".join(facts.short_name(hop, 32) for hop in [*path, launch])
        return fired_answer(f"{words} ⇢ {facts.short_name(row, 32)} ({us(int(trace.duration[row]))})", inside)
    return absent_answer("nothing here was launched by an operator")


def _check_child_call(view: ScopeView, parent: str, child: str) -> Answer:
    """Fired where `child` is a child of `parent`."""
    if missing := view.missing_ops_reason():
        return cannot_tell_answer(missing)
    rows = view.match_names(rf"{child}$", Kind.OP)
    above = view.trace.parent[rows.row]
    called = [number for number, name in enumerate(view.trace.names) if name == parent]
    hit = (above >= 0) & np.isin(view.trace.name[np.maximum(above, 0)], called)
    if not len(rows) or not hit.any():
        return absent_answer()
    found = rows.select(hit)
    return fired_answer(f"{parent} became {child} {len(found):,}×{view.format_per_step(len(found))}", found.row)


@register_pattern(
    "matmul-to-mm",
    Section.DISPATCH,
    "matmul of two matrices",
    meaning="both arguments have two dimensions: one plain GEMM",
    action="nothing: this is the shortest way down",
    decided="aten::mm directly below aten::matmul.",
)
def matmul_to_mm(view: ScopeView) -> Answer:
    return _check_child_call(view, "aten::matmul", "aten::mm")


@register_pattern(
    "matmul-to-bmm",
    Section.DISPATCH,
    "matmul of batches",
    meaning="three dimensions or more: one batched GEMM, after some views",
    action="nothing; if one argument has no batch, fold the batch into the rows to get a larger plain GEMM",
    decided="aten::bmm directly below aten::matmul.",
)
def matmul_to_bmm(view: ScopeView) -> Answer:
    return _check_child_call(view, "aten::matmul", "aten::bmm")


@register_pattern(
    "addmm-fusion",
    Section.DISPATCH,
    "Bias and product in one op",
    meaning="addmm instead of mm and add: the GEMM's epilogue adds the bias, one launch and one pass less",
    action="nothing: nn.Linear does this by itself",
    decided="aten::addmm, with no aten::add among its siblings (the next sibling only, where an annotation or a step "
    "is the parent).",
    fires_on_absence=True,
)
def addmm_fusion(view: ScopeView) -> Answer:
    if missing := view.missing_ops_reason():
        return cannot_tell_answer(missing)
    rows = view.match_names(r"aten::addmm$", Kind.OP)
    if not len(rows):
        return absent_answer()
    trace, facts = view.trace, view.tables
    adds = facts.match_names(r"aten::add_?$", Kind.OP).row
    parent_of_adds = trace.parent[adds]
    parent = trace.parent[rows.row]
    under_op = (parent >= 0) & (trace.kind[np.maximum(parent, 0)] == Kind.OP)
    sibling = under_op & np.isin(parent, parent_of_adds)
    # Under a step or a range all of a model's ops are siblings: there only the very next one can be its own add.
    fused = rows.select(~sibling & (under_op | ~np.isin(_find_next_siblings(view, rows), adds)))
    if not len(fused):
        return absent_answer("every addmm has an add beside it")
    return fired_answer(
        f"{format_count(len(fused), 'addmm', 'addmm')}{view.format_per_step(len(fused))} without a separate add",
        fused.row,
    )


def _find_next_siblings(view: ScopeView, rows: EventTable) -> I64:
    """int64[k]: the op that begins next after each has ended, on its lane and under its parent; -1 for none."""
    trace, ops = view.trace, view.tables.ops
    found = np.full(len(rows), -1, dtype=np.int64)
    lanes = trace.lane[rows.row]
    for number in sorted_unique(lanes).tolist():
        lane, mine = trace.lanes[number], np.flatnonzero(lanes == number)
        first, last = ops.row.searchsorted([lane.first, lane.last]).tolist()
        place = first + ops.start[first:last].searchsorted(rows.end[mine])
        known = place < last
        found[mine[known]] = ops.row[place[known]]
    same = (found >= 0) & (trace.parent[np.maximum(found, 0)] == trace.parent[rows.row])
    return np.where(same, found, -1)
