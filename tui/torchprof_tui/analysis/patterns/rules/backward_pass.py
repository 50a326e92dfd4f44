"""Patterns of backward passes: the graph walked twice, the forward pass run again, gradients that nothing uses."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine.avoidable_work import (
    NODE_REGEX,
    answer_fault,
    find_launched_work,
    pair_neighbours,
)
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable, launch_shapes
from torchprof_tui.analysis.patterns.engine.op_text import read_inputs
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_fault
from torchprof_tui.analysis.patterns.engine.practices import OPTIMIZER_STEP_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.throughput.op_inputs import OpInputs
from torchprof_tui.trace.core.arrays import I64, Bool, find_median, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind

LEAF_REGEX = NODE_REGEX + r"torch::autograd::AccumulateGrad$"


@record
class BackwardNodes:
    """The nodes that backward passes evaluated, by start.

    `is_leaf` bool[k]: whether a node adds to the gradient of a parameter. `is_repeated` bool[k]: whether the same node
    was evaluated before, of a leaf: whether it belongs to such a pass. `recorded` int64[m]: operators inside nodes that
    ran with gradients enabled, by row; `recorded_node` int64[m]: the node of each. `forward` int64[f]: the operators
    outside of nodes that made a node, the innermost of each.
    """

    table: EventTable
    is_leaf: Bool
    is_repeated: Bool
    recorded: I64
    recorded_node: I64
    forward: I64


def find_backward_nodes(tables: TraceTables) -> BackwardNodes:
    """Find the nodes of the whole trace; use `TraceTables.compute_once`."""
    trace = tables.trace
    table = tables.match_names(NODE_REGEX, Kind.OP)
    table = table.select(np.argsort(table.start, kind="stable"))
    is_leaf = tables.mark_rows(tables.match_names(LEAF_REGEX, Kind.OP).row)[table.row]
    sequence = _read_numbers(tables, "sequence", table.row)
    thread = _read_numbers(tables, "forward_thread", table.row)
    is_leaf |= sequence < 0  # without a number there is no node to compare with
    # The second and later evaluations of one node, in order of their starts.
    is_repeated = np.zeros(len(sequence), dtype=np.bool_)
    wanted = np.flatnonzero(~is_leaf)
    by_node = wanted[np.lexsort((wanted, sequence[wanted], thread[wanted]))]
    same = (sequence[by_node][1:] == sequence[by_node][:-1]) & (thread[by_node][1:] == thread[by_node][:-1])
    is_repeated[by_node[1:][same]] = True
    # Each leaf has the mark of the last other node before it on its lane.
    order = np.lexsort((table.start, trace.lane[table.row]))
    last = np.maximum.accumulate(np.where(is_leaf[order], 0, np.arange(len(order))))
    is_repeated[order] = is_repeated[order][last]
    return BackwardNodes(table, is_leaf, is_repeated, *_find_recorded_ops(tables, table))


def _read_numbers(tables: TraceTables, name: str, rows: I64) -> I64:
    column = tables.trace.args.get(name)
    if column is None:
        return np.full(len(rows), -1, dtype=np.int64)
    return column.values_at(rows).astype(np.int64)


def _find_recorded_ops(tables: TraceTables, nodes: EventTable) -> tuple[I64, I64, I64]:
    """Find the operators that record a graph: (rows inside nodes, their nodes, int64[m] each; those that made nodes).

    An operator has the number that the next node will get: of those with the same number, the last one made it.
    """
    column = tables.trace.args.get("sequence")
    if column is None or not len(nodes):
        return nodes.row[:0], nodes.row[:0], nodes.row[:0]
    rows = column.events[np.asarray(column.values, dtype=np.int64) >= 0].astype(np.int64)
    rows = rows[tables.is_dispatcher_op[rows]]
    node = tables.innermost_ancestor(rows, tables.mark_rows(nodes.row))
    others = rows[node < 0]
    number = column.values_at(others).astype(np.int64)
    order = np.lexsort((tables.trace.start[others], number, tables.trace.lane[others]))
    is_last = np.append(np.diff(number[order]) != 0, True)[: len(order)]
    return rows[node >= 0], node[node >= 0], others[order[is_last]]


@register_fault(
    "One forward pass is sent backward more than once",
    meaning="two losses of one forward pass have a backward() each, the first with retain_graph=True: all gradients "
    "below them are computed twice",
    action="add the losses and call backward() once on their sum, which gives the same gradients",
    code="(loss_a + loss_b).backward()  # instead of one backward(retain_graph=True) for each",
    decided="Nodes of the autograd graph (by forward thread and sequence number) that are evaluated again, with the "
    "gradients of parameters that follow them. Not counted: nodes whose first evaluation recorded a graph itself "
    "(create_graph=True).",
    needs=(ScopeView.missing_ops_reason,),
)
def second_backward(view: ScopeView) -> Answer:
    nodes = view.tables.compute_once(find_backward_nodes)
    repeated = view.select_in_scope(nodes.table.select(nodes.is_repeated))
    if not len(repeated) or len(nodes.recorded):
        return Answer.absent()
    number = int((nodes.is_repeated & ~nodes.is_leaf).sum())
    seen = f"{format_count(number, 'node')} of the graph evaluated again{view.format_per_step(number)}"
    return answer_fault(view, repeated.row, seen)


_FORWARD_OP_REGEX = (
    r"aten::(linear|conv[123]d|conv_transpose[123]d|matmul|(layer|batch|group|instance|rms)_norm|embedding|dropout"
    r"|gelu|silu|softmax|scaled_dot_product_attention)$"
)
"""Ops that programs call in a forward pass, and whose gradients are computed by other ones."""


@register_fault(
    "The forward pass is computed a second time in the backward pass",
    meaning="activation checkpointing saves memory, and takes about a third more time",
    action="turn activation checkpointing off where memory allows, or checkpoint fewer layers",
    code="model.gradient_checkpointing_disable()  # transformers; else call the layer without checkpoint()",
    decided="Ops that only a forward pass calls (layers, attention, activation functions) run inside a node of the "
    "backward pass and record a graph: all ops of that node from the first to the last of those that record one.",
    needs=(ScopeView.missing_ops_reason,),
)
def recomputed_forward(view: ScopeView) -> Answer:
    tables = view.tables
    nodes = tables.compute_once(find_backward_nodes)
    is_forward = tables.match_rows(nodes.recorded, _FORWARD_OP_REGEX)
    if not is_forward.any():
        return Answer.absent()
    owners = sorted_unique(nodes.recorded_node[is_forward])
    ops = nodes.recorded[is_in(nodes.recorded_node, owners)]
    outermost = tables.outermost_ancestor(ops, tables.is_dispatcher_op)
    rows = view.select_in_scope(tables.event_table(sorted_unique(np.where(outermost >= 0, outermost, ops)))).row
    if not len(rows):
        return Answer.absent()
    seen = f"{view.format_count(len(rows), 'op')} of the forward pass run again"
    gaps = pair_neighbours(view.trace, rows, view.tables.innermost_ancestor(rows, tables.mark_rows(owners)))
    # Hooks (use_reentrant=False) also slow down every node that asks for what it saved: what they cost is not known.
    is_hook = ~tables.match_rows(owners, NODE_REGEX + r".*Checkpoint\w*Backward").any()
    return answer_fault(view, rows, seen, kept=rows if is_hook else None, gaps=gaps)


_KEPT_INSIDE_LEAF = (
    r"aten::(detach|clone|copy_|empty|empty_like|empty_strided|new_empty_strided|as_strided|view|contiguous)_?$"
)
"""Ops of a node that takes a gradient as it is, where the parameter has none yet."""

_UPDATE_REGEX = r"aten::_?(foreach|fused)_\w+$|aten::\w+_$"
_LIST_REGEX = r"aten::_?(foreach|fused)_"
_NO_UPDATE_REGEX = r"aten::(zero_|fill_|copy_|detach_|requires_grad_|resize_|set_|squeeze_|unsqueeze_|t_)$"

_MAX_LIST_LENGTH = 110  # tensors that one kernel of a list updates at most: as many as fit into its arguments
_MAX_STEPS_READ = 3  # steps whose updates are read from the file


def find_fresh_leaves(tables: TraceTables) -> EventTable:
    """Find the nodes that give a gradient to a parameter that has none: the one of the step before was dropped."""
    leaves = tables.match_names(LEAF_REGEX, Kind.OP)
    if not len(leaves):
        return leaves
    ops = tables.ops.row
    others = ops[tables.is_dispatcher_op[ops] & ~tables.match_rows(ops, _KEPT_INSIDE_LEAF)]
    following = others.searchsorted(leaves.row)  # the first one inside, where there is any: rows are in order
    known = np.flatnonzero(following < len(others))
    owner = tables.innermost_ancestor(others[following[known]], tables.mark_rows(leaves.row))
    is_adding = np.zeros(len(leaves), dtype=np.bool_)
    is_adding[known] = owner == leaves.row[known]
    return leaves.select(~is_adding)


def _find_update_ops(tables: TraceTables) -> EventTable:
    ops = tables.launching_thread_ops
    is_update = tables.match_rows(ops.row, _UPDATE_REGEX)
    return ops.select(is_update & ~tables.match_rows(ops.row, _NO_UPDATE_REGEX))


def _count_updated(tables: TraceTables, t0: int, t1: int) -> int | None:
    """Count the tensors that the optimizer steps between two times update at most; None where it is not known."""
    steps = tables.match_names(OPTIMIZER_STEP_REGEX)
    steps = steps.select((steps.start >= t0) & (steps.start < t1))
    ops = tables.compute_once(_find_update_ops)
    ops = ops.select((ops.start >= t0) & (ops.start < t1))
    ops = ops.select(tables.innermost_ancestor(ops.row, tables.mark_rows(steps.row)) >= 0)
    is_list = tables.match_rows(ops.row, _LIST_REGEX)
    rows = ops.row[is_list]
    most = dict(zip(rows.tolist(), _bound_lengths(tables, rows).tolist(), strict=True))
    inputs = dict(zip(most, read_inputs(tables.trace, rows), strict=True))
    calls: dict[str, dict[int, int]] = {}  # tensors of each op, by what is known of its list
    for row, name in zip(ops.row.tolist(), ops.name.tolist(), strict=True):
        key, length = _describe_list(inputs[row], most[row]) if row in inputs else ("one by one", 1)
        by_name = calls.setdefault(key, {})
        by_name[name] = by_name.get(name, 0) + length
    if len(steps) and not calls:
        return None
    # An op may be called twice for a tensor, but not every op is. Where no shapes tell which lists are the same, only
    # what stands beside a fused op is known to take all of them: it counts steps.
    is_fused = tables.match_rows(rows, r"aten::_fused_").any()
    tell = {"one by one": max, "": min if is_fused else max}
    return sum(tell.get(key, min)(by_name.values()) for key, by_name in calls.items())


def _bound_lengths(tables: TraceTables, rows: I64) -> I64:
    """Bound the tensors that ops on lists update: a kernel holds some, and gives each a block of its own: int64[k]."""
    work = tables.work
    launched = find_launched_work(tables, work, rows)
    owner = rows.searchsorted(work.launch[launched], side="right") - 1
    kernels = np.bincount(owner, minlength=len(rows))
    grid = launch_shapes(tables.trace, work.events.row[launched])[:, :3].prod(axis=1)
    blocks = np.bincount(owner, np.where(grid > 0, grid, _MAX_LIST_LENGTH), len(rows)).astype(np.int64)
    return np.minimum(_MAX_LIST_LENGTH * kernels, blocks)


def _describe_list(inputs: OpInputs | None, most: int) -> tuple[str, int]:
    """Describe an op's first list: its shapes, "" where they are unknown or too many to be recorded; and its length.

    Numbers, such as counters of steps, are none.
    """
    first = inputs.dims[0] if inputs is not None and inputs.dims else None
    if isinstance(first, list) and first and isinstance(first[0], list):
        return str(first), len(first) if any(first) else 0
    return "", most


def _is_idle_after_backward(view: ScopeView, nodes: BackwardNodes) -> bool:
    """Return whether no kernel is launched from the end of a pass to the next forward op, but at the start of a step.

    There it may prepare inputs: only ops that update tensors in place count, and launches outside of any op. Where no
    optimizer step was recorded, that shows that nothing uses the gradients.
    """
    trace = view.trace
    is_kernel = (view.work.kind == Kind.KERNEL) & (view.work.launch >= 0)
    launches, op = trace.start[view.work.launch[is_kernel]], view.outer_op[is_kernel]
    is_update = (op < 0) | view.tables.match_rows(np.maximum(op, 0), _UPDATE_REGEX)
    launch, update = np.sort(launches), np.sort(launches[is_update])
    forward = np.sort(trace.start[nodes.forward])
    begin = np.sort(trace.start[nodes.table.row])
    if not len(forward) or not len(begin):
        return False
    # The first forward op after each node; nodes with the same one belong to one pass.
    following = forward.searchsorted(begin)
    last = np.append(following[1:] != following[:-1], True) & (following < len(forward))
    ends = np.sort(nodes.table.end)[last.nonzero()[0]]
    nexts = forward[following[last]]
    begins = view.steps.start
    step = np.minimum(begins.searchsorted(ends), len(begins) - 1)
    border = np.where((begins[step] >= ends) & (begins[step] < nexts), begins[step], nexts)
    unused = launch.searchsorted(ends) == launch.searchsorted(border)
    unused &= update.searchsorted(border) == update.searchsorted(nexts)
    return bool(len(ends)) and bool(unused.all())


def _find_needless(view: ScopeView, nodes: BackwardNodes, leaves: EventTable, updated: int) -> I64:
    """Find the nodes of a step that follow the last gradient that may be used: indexes into the nodes, int64[k]."""
    if updated:
        begin = int(np.sort(leaves.end)[updated - 1])
    else:
        begin = int(view.steps.start[int(view.steps.index_at(leaves.start[:1])[0])])
    return np.flatnonzero((nodes.table.start >= begin) & (nodes.table.end <= int(leaves.end.max()))).astype(np.int64)


@register_fault(
    "Gradients are computed that nothing uses",
    meaning="the backward pass gives gradients to parameters that no optimizer step updates, and they are dropped",
    action="freeze what the optimizer does not update, before the forward pass: no gradients are computed for it then",
    code="backbone.requires_grad_(False)  # and run it under torch.no_grad() if nothing below it is trained",
    decided="Parameters that get a gradient in a step, and have none from the step before (AccumulateGrad adds "
    "nothing), are more than the tensors that the optimizer steps update (from the lengths of their lists; without "
    "recorded shapes as many as their kernels can hold). Without an optimizer step: no kernel runs between the "
    "backward pass and the next forward op.",
    needs=(ScopeView.missing_ops_reason, ScopeView.missing_steps_reason),
)
def unused_gradients(view: ScopeView) -> Answer:
    tables, steps = view.tables, view.steps
    nodes, leaves = tables.compute_once(find_backward_nodes), tables.compute_once(find_fresh_leaves)
    step_of_leaf = steps.index_at(leaves.start)
    counts = np.bincount(step_of_leaf[step_of_leaf >= 0], minlength=len(steps))
    busiest = np.flatnonzero(counts)[:_MAX_STEPS_READ]
    if len(busiest) < 2:  # a gradient is dropped unless the next step adds to it: both must be in the view
        return Answer.absent()
    bounds = np.append(steps.start, steps.end[-1:])
    updated = [
        tables.compute_once(_count_updated, int(bounds[step]), int(bounds[step + 1])) for step in busiest.tolist()
    ]
    known = [count for count in updated if count is not None]
    if len(known) < len(updated):
        return Answer.cannot_tell("what the optimizer updates was not recorded")
    most, fresh = max(known), int(find_median(counts[busiest]))
    if most >= fresh or (not most and not _is_idle_after_backward(view, nodes)):
        return Answer.absent()
    parts = [
        nodes.table.row[_find_needless(view, nodes, leaves.select(step_of_leaf == step), most)]
        for step in np.flatnonzero(counts > most).tolist()
    ]
    rows = np.concatenate(parts)
    if not len(rows):
        return Answer.absent()
    used = f"the optimizer updates {most:,}" if most else "no optimizer step follows"
    seen = f"{format_count(fresh, 'parameter')} get a gradient in a step, {used}"
    remedy = None
    if not most:
        remedy = Remedy(
            "evaluate under torch.inference_mode(), without backward(); where it is training, the optimizer step is "
            "missing",
            "with torch.inference_mode(): loss = model(x)",
        )
    gaps = pair_neighbours(view.trace, rows, steps.index_at(view.trace.start[rows]))
    # Without gradients the forward pass is faster, too: how much is not known.
    return answer_fault(view, rows, seen, remedy, kept=None if most else rows, gaps=gaps)
