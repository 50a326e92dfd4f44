"""Patterns of tensors that are copied or read without need: growing buffers, clones, offloading, statistics."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from torchprof_tui.analysis.kernel.names.copies import is_to_device, is_to_host
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.avoidable_work import NODE_REGEX, answer_fault, pair_neighbours
from torchprof_tui.analysis.patterns.engine.event_tables import transfer_sizes
from torchprof_tui.analysis.patterns.engine.launch_owners import CLONE_REGEX
from torchprof_tui.analysis.patterns.engine.pattern import Answer, register_fault
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.backward_pass import find_backward_nodes
from torchprof_tui.analysis.patterns.rules.debug_leftovers import MODEL_OP_REGEX, OuterOps, find_outer_ops
from torchprof_tui.analysis.patterns.rules.decode_tokens import read_tensor_shapes
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.trace.core.arrays import I64, Bool, is_in, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind


def find_runs(outer: OuterOps, chosen: I64, distance: int, shortest: int) -> list[I64]:
    """Find runs of ops of one part that follow each other within a distance: indexes, at least `shortest` in each."""
    if not len(chosen):
        return []
    is_new = (np.diff(chosen) > distance) | (np.diff(outer.part[chosen]) != 0)
    runs = np.split(chosen, np.flatnonzero(is_new) + 1)
    return [run for run in runs if len(run) >= shortest]


_MAX_CATS_READ = 256  # calls whose shapes are read from the file
_MAX_CATS_OF_LOOP = 64  # calls of one loop whose shapes are read: the others go on as these do
_MAX_ROUND = 16  # ops between two of a loop


def _find_growing_cats(tables: TraceTables) -> tuple[list[I64], bool]:
    """Find chains in which each concatenation extends the result of the one before: (their rows; whether it is known).

    Of many loops some are read; others count if they are as long as one that was.
    """
    outer = tables.compute_once(find_outer_ops)
    is_cat = tables.match_rows(outer.table.row, r"aten::(cat|concat|concatenate)$")
    models = np.cumsum(tables.match_rows(outer.table.row, MODEL_OP_REGEX))
    runs = [
        part
        for run in find_runs(outer, np.flatnonzero(is_cat), _MAX_ROUND, int(thresholds.READS_IN_A_ROW.value))
        for part in np.split(run, np.flatnonzero(np.diff(models[run])) + 1)
        if len(part) >= thresholds.READS_IN_A_ROW.value
    ]
    found: list[I64] = []
    lengths: set[int] = set()
    left, is_known = _MAX_CATS_READ, not runs
    for run in runs:
        rows = outer.table.row[run]
        read = rows[:_MAX_CATS_OF_LOOP]
        if left < len(read):
            found += [rows] if len(rows) in lengths else []
            continue
        left -= len(read)
        shapes = read_tensor_shapes(tables, read)
        is_known |= any(shapes)
        grows = [_is_result(old, new) for old, new in itertools.pairwise(shapes)]
        if sum(grows) >= thresholds.READS_IN_A_ROW.value - 1:
            found.append(rows)
            lengths.add(len(rows))
    return found, is_known


def _is_result(old: list[list[int]], new: list[list[int]]) -> bool:
    """Return whether the first tensor of a concatenation has the shape of the result of the one before."""
    old = [shape for shape in old if np.prod(shape)]
    if not old or len(new) < 2 or any(len(shape) != len(old[0]) for shape in (*old, new[0])):
        return False
    grown = [dim for dim, size in enumerate(new[0]) if size != old[-1][dim]]
    dims = grown or list(range(len(new[0])))
    return any(sum(shape[dim] for shape in old) == new[0][dim] for dim in dims) and len(grown) <= 1


@register_fault(
    "A buffer grows by one concatenation after the other (aten::cat)",
    meaning="each torch.cat copies all that was collected before: n blocks are copied n / 2 times each",
    action="collect the blocks in a list and call torch.cat once, or write them into a buffer of the full size",
    code="result = torch.cat(blocks)  # once, after the loop",
    decided="Concatenations in a row, with up to 16 operators and no layer between two, at least as many as the "
    "threshold, each with the result of the one before as its first tensor (from the recorded shapes). At stake: all "
    "but the last.",
    thresholds=(thresholds.READS_IN_A_ROW,),
    needs=(ScopeView.missing_ops_reason,),
)
def growing_cat(view: ScopeView) -> Answer:
    chains, is_known = view.tables.compute_once(_find_growing_cats)
    if not is_known:
        return Answer.cannot_tell("the shapes of the concatenated tensors were not recorded (record_shapes)")
    if not chains:
        return Answer.absent()
    rows, last = np.concatenate(chains), np.array([chain[-1] for chain in chains], dtype=np.int64)
    rows = view.select_in_scope(view.tables.event_table(sorted_unique(rows[~is_in(rows, last)]))).row
    if not len(rows):
        return Answer.absent()
    longest = max(len(chain) for chain in chains)
    seen = f"{format_count(len(chains), 'loop')} of up to {longest:,} concatenations"
    return answer_fault(view, rows, seen, kept=rows)  # new memory of every size costs more than is seen


@register_fault(
    "Tensors are cloned one after the other",
    meaning="each clone copies all of a tensor; one that nothing writes to has the same values",
    action="use the tensors as they are: a clone is needed only before one of both is written in place",
    code="y = x  # instead of x.clone()",
    decided="aten::clone, called by the program itself, at least as many times in a row as the threshold, with views "
    "alone between two. At stake: the clones, and their nodes in the backward pass.",
    thresholds=(thresholds.READS_IN_A_ROW,),
    needs=(ScopeView.missing_ops_reason,),
)
def repeated_clones(view: ScopeView) -> Answer:
    tables = view.tables
    runs = tables.compute_once(_find_runs_of_clones)
    if not runs:
        return Answer.absent()
    rows = np.concatenate(runs)
    clones = view.select_in_scope(tables.event_table(sorted_unique(rows))).row
    if not len(clones):
        return Answer.absent()
    seen = view.format_count(len(clones), "clone")
    group = np.repeat(np.arange(len(runs)), [len(run) for run in runs])[is_in(rows, clones)]
    gaps = pair_neighbours(view.trace, rows[is_in(rows, clones)], group)
    return answer_fault(view, np.concatenate([clones, _find_nodes_of(tables, clones)]), seen, gaps=gaps)


def _find_runs_of_clones(tables: TraceTables) -> list[I64]:
    """Find the runs of clones with views alone between them: the rows of each, int64[k]."""
    outer = tables.compute_once(find_outer_ops)
    is_view = tables.match_rows(outer.table.row, r"aten::(detach|view|reshape|alias|slice|select|t|transpose|permute)$")
    kept = np.flatnonzero(~is_view)
    places = np.flatnonzero(tables.match_rows(outer.table.row[kept], CLONE_REGEX))
    inner = OuterOps(outer.table.take(kept), outer.part[kept], outer.reads[kept])
    return [inner.table.row[run] for run in find_runs(inner, places, 1, int(thresholds.READS_IN_A_ROW.value))]


def _find_nodes_of(tables: TraceTables, ops: I64) -> I64:
    """Find the nodes of the backward pass that belong to ops of the forward pass: rows, int64[k]."""
    column = tables.trace.args.get("sequence")
    nodes = tables.compute_once(find_backward_nodes).table.row
    if column is None:
        return nodes[:0]
    wanted = column.values_at(ops).astype(np.int64)
    return nodes[is_in(column.values_at(nodes).astype(np.int64), wanted[wanted >= 0])]


_COPY_REGEX = r"aten::(to|_to_copy|copy_)$"


@register_fault(
    "Activations are moved to host memory and back (offload)",
    meaning="what the backward pass needs is copied to the CPU and back, over a link some fifty times slower"
    " than GPU memory",
    action="keep them on the GPU where memory allows, or use activation checkpointing; else pin the host memory",
    code="with torch.autograd.graph.save_on_cpu(pin_memory=True):  # only around layers that need it",
    decided="Copies to the GPU inside nodes of the backward pass, at least as many in a step as the threshold, and as "
    "many copies of the same sizes to the host outside of them.",
    thresholds=(thresholds.OFFLOADS_PER_STEP,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
)
def offloaded_activations(view: ScopeView) -> Answer:
    copies, seen = view.tables.compute_once(_find_offloads)
    rows = view.select_in_scope(view.tables.event_table(copies)).row
    return answer_fault(view, rows, seen, kept=rows) if len(rows) else Answer.absent()  # the hooks' cost is unknown


def _find_offloads(tables: TraceTables) -> tuple[I64, str]:
    """Find the ops that copy activations to the host and back: rows, int64[k], [] where they are few; what is seen."""
    trace, nothing = tables.trace, (np.zeros(0, np.int64), "")
    out, back = (_find_copies(tables, matches) for matches in (is_to_host, is_to_device))
    least = thresholds.OFFLOADS_PER_STEP.value * max(len(tables.steps), 1)
    if min(len(out[0]), len(back[0])) < least:
        return nothing
    nodes = tables.mark_ops(NODE_REGEX)
    is_out = tables.innermost_ancestor(out[1], nodes) < 0
    is_back = tables.innermost_ancestor(back[1], nodes) >= 0
    out_sizes, back_sizes = transfer_sizes(trace, out[0][is_out]), transfer_sizes(trace, back[0][is_back])
    known = out_sizes[is_in(out_sizes, back_sizes)]
    is_returned, is_known = is_in(out_sizes, known), is_in(back_sizes, known)
    out_calls, back_calls = out[1][is_out][is_returned], back[1][is_back][is_known]
    calls = np.concatenate([out_calls, back_calls])
    copies = tables.outermost_ancestor(calls, tables.mark_ops(_COPY_REGEX))
    if min(len(out_calls), len(back_calls)) < least:
        return nothing
    moved = int(out_sizes[is_returned].sum() + back_sizes[is_known].sum()) / 1e6
    each_way = f"{len(out_calls):,} copies to the host and {len(back_calls):,} back"
    seen = f"{each_way}, {moved:,.3g} MB in all" if known.min(initial=0) >= 0 else each_way
    return sorted_unique(copies[copies >= 0]).astype(np.int64), seen


def _find_copies(tables: TraceTables, matches: Callable[[str], bool]) -> tuple[I64, I64]:
    """Find the copies of one direction, by name: (rows of the work, of the calls), int64[k] each."""
    work = tables.work
    chosen = (work.kind == Kind.COPY) & (work.launch >= 0) & match_names(tables.trace, matches, work.events.name)
    return work.events.row[chosen].astype(np.int64), work.launch[chosen].astype(np.int64)


_REDUCTION_REGEX = (
    r"aten::(mean|std|var|std_mean|var_mean|norm|linalg_vector_norm|amax|amin|max|min|sum|aminmax|histc)$"
)
_AROUND_REGEX = (
    r"aten::(detach|to|_to_copy|float|abs|square|stack|cat|item|is_nonzero|isnan|isinf|isfinite|any|all|count_nonzero"
    r"|flatten|view|reshape|unsqueeze|squeeze|copy_|select|slice)$"
)


@register_fault(
    "Statistics of activations are computed again and again (hooks)",
    meaning="hooks reduce the output of each layer to a mean, a largest value and the like: each reads all of it again",
    action="remove the hooks, or let them work in every hundredth step only",
    code="handle.remove()  # or in the hook: if step % 100: return",
    decided="Operators in a row that only reduce (mean, std, norm, amax, …) and collect the results, at least as many "
    "such rows in a step as the threshold, each between layers. They begin with detach, or have three reductions or "
    "more of two kinds.",
    thresholds=(thresholds.READS_IN_A_ROW,),
    needs=(ScopeView.missing_ops_reason,),
)
def activation_statistics(view: ScopeView) -> Answer:
    tables = view.tables
    found = tables.compute_once(_find_statistics)
    if not found:
        return Answer.absent()
    chosen = tables.event_table(np.concatenate(found))
    group = np.repeat(np.arange(len(found)), [len(run) for run in found])
    inside = view.overlap_mask(chosen.start, chosen.end)
    if not inside.any():
        return Answer.absent()
    count = len(sorted_unique(group[inside]))
    seen = f"{view.format_count(count, 'tensor')} reduced to statistics"
    rows = chosen.row[inside]
    return answer_fault(view, rows, seen, gaps=pair_neighbours(view.trace, rows, group[inside]))


def _find_statistics(tables: TraceTables) -> list[I64]:
    """Find the runs of ops that make the statistics of a tensor: the rows of each, int64[k]; [] where they are few."""
    outer = tables.compute_once(find_outer_ops)
    rows, part = outer.table.row, outer.part
    is_reduction = tables.match_rows(rows, _REDUCTION_REGEX)
    is_inside = is_reduction | tables.match_rows(rows, _AROUND_REGEX)
    edges = np.flatnonzero((is_inside[1:] != is_inside[:-1]) | (part[1:] != part[:-1])) + 1
    names = outer.table.name.astype(np.int64)
    begins_detached = tables.match_rows(rows, r"aten::detach$")
    number = edges.searchsorted(np.arange(len(rows)), side="right")
    first, stop = np.concatenate([[0], edges]), np.append(edges, len(rows))
    size = len(edges) + 1
    reductions, detached = (np.bincount(number[mask], minlength=size) for mask in (is_reduction, begins_detached))
    reducing = np.flatnonzero((reductions > 2) | ((reductions > 0) & (detached > 0)))  # a few of many
    runs = [np.arange(first[run], stop[run]) for run in reducing.tolist()]
    found = [run for run in runs if _is_statistic(run, is_reduction, begins_detached, names)]
    of_step = np.bincount(part[[run[0] for run in found]], minlength=1) if found else np.zeros(1, np.int64)
    is_often = of_step.sum() >= thresholds.READS_IN_A_ROW.value * max(len(tables.steps), 1)
    return [rows[run] for run in found] if is_often else []


def _is_statistic(run: I64, is_reduction: Bool, is_detach: Bool, names: I64) -> bool:
    """Return whether the ops of a run are the statistics of a tensor, and no part of a layer."""
    reductions = run[is_reduction[run]]
    if not len(reductions):
        return False
    after_detach = bool(is_detach[run[run < reductions[0]]].any())
    return after_detach or (len(reductions) > 2 and len(sorted_unique(names[reductions])) > 1)
