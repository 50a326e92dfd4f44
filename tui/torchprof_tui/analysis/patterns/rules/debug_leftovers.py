"""Patterns of what was switched on to find a fault, and left on: checks, timers, deterministic algorithms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.kernel.names.copies import is_to_host
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.avoidable_work import (
    NODE_REGEX,
    answer_fault,
    count_launched_work,
    pair_neighbours,
)
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.op_text import number_parts
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_fault
from torchprof_tui.analysis.patterns.engine.practices import OPTIMIZER_STEP_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.backward_pass import LEAF_REGEX, find_backward_nodes
from torchprof_tui.analysis.patterns.rules.cpu_lane import find_trailing_sync
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64, Bool, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind

_TEST_REGEX = r"aten::(isnan|isinf|isfinite|_is_any_true|_is_all_true|any|all|ne|logical_not|item|is_nonzero)$"
_NAN_REGEX = r"aten::(isnan|isinf|isfinite)$"
_READ_REGEX = r"aten::(item|is_nonzero|_local_scalar_dense|equal|allclose|to|_to_copy|copy_|nonzero|masked_select)$"
_ITEM_REGEX = r"aten::(item|is_nonzero|equal)$"


@record
class OuterOps:
    """The operators of launching threads that lie in no other one, by lane, then start.

    `part` int64[k]: equal for ops of one lane, step and node of the backward pass. `reads` bool[k]: whether the CPU
    reads something from the GPU there.
    """

    table: EventTable
    part: I64
    reads: Bool


def find_outer_ops(tables: TraceTables) -> OuterOps:
    """Find the outermost operators of the whole trace; use `TraceTables.compute_once`."""
    trace, ops = tables.trace, tables.outermost_ops
    ops = ops.take(np.lexsort((ops.start, trace.lane[ops.row])))
    part, work = number_parts(tables, ops, tables.innermost_ancestor(ops.row, tables.mark_ops(NODE_REGEX))), tables.work
    chosen = (work.kind == Kind.COPY) & match_names(trace, is_to_host, work.events.name)
    outer = tables.launching_ops[1][chosen]
    outer = outer[outer >= 0]
    reading = sorted_unique(outer[tables.match_rows(outer, _READ_REGEX)]).astype(np.int64)
    return OuterOps(ops, part, is_in(ops.row, reading))


@register_fault(
    "Autograd's anomaly mode tests every gradient for NaN",
    meaning="this debug mode tests each node's gradients, has the CPU read the answer, and keeps the stack of each op",
    action="turn anomaly mode off: it is for finding a NaN, not for training",
    code="torch.autograd.set_detect_anomaly(False)",
    decided="Inside at least half of the nodes of the backward pass: a test for NaN, and an op that reads its result. "
    "At stake: these ops, and the own time of ops of the forward pass above the threshold, in which they keep stacks.",
    thresholds=(thresholds.OWN_TIME_OF_STACK,),
    needs=(ScopeView.missing_ops_reason,),
)
def anomaly_mode(view: ScopeView) -> Answer:
    tables = view.tables
    nodes = view.match_names(NODE_REGEX, Kind.OP)
    if not len(nodes) or not len(tables.match_names(_NAN_REGEX, Kind.OP)):
        return Answer.absent()
    outer = tables.compute_once(find_outer_ops)
    node = view.tables.innermost_ancestor(outer.table.row, tables.mark_rows(nodes.row))
    is_nan, is_item = (tables.match_rows(outer.table.row, regex) & (node >= 0) for regex in (_NAN_REGEX, _ITEM_REGEX))
    tested = sorted_unique(node[is_nan & is_in(node, node[is_item])])
    leaves = np.count_nonzero(tables.match_rows(nodes.row, LEAF_REGEX))
    if not len(tested) or 2 * len(tested) < len(nodes) - leaves:
        return Answer.absent()
    chosen = tables.match_rows(outer.table.row, _TEST_REGEX) & is_in(node, tested)
    rows = outer.table.row[chosen]
    number = int((is_nan & chosen).sum())
    seen = f"{view.format_count(number, 'test')} in {len(tested):,} nodes, read by the CPU"
    # Ops of the forward pass keep stacks where their own time is longer than any dispatch.
    keeping = tables.compute_once(find_backward_nodes).forward
    keeping = keeping[view.trace.self_duration[keeping] >= thresholds.OWN_TIME_OF_STACK.value]
    inside = tables.ops_and_calls.row
    inside = inside[tables.innermost_ancestor(inside, tables.mark_rows(keeping)) >= 0]
    children = inside[~is_in(inside, keeping)]
    stack_time = tables.event_table(keeping).intervals - tables.event_table(children).intervals
    # What the stacks of the nodes themselves cost cannot be told, so that no saving is claimed.
    return answer_fault(view, rows, seen, kept=rows, beside=stack_time)


MODEL_OP_REGEX = (
    r"aten::(linear|matmul|mm|addmm|bmm|baddbmm|einsum|_?conv\w*|\w*attention\w*|scaled_dot_product\w*"
    r"|(layer|batch|group|instance|rms)_norm|native_\w*norm|_?embedding\w*|(quantized_)?(lstm|gru|rnn\w*)(_cell)?)$"
)
_MAX_ROUND = 16  # ops between two reads up to which they belong together


@record
class ReadChains:
    """Stretches of ops in which one value after the other is read, without a layer or compiled code in between.

    `first`, `last` int64[k]: the first op of the first round and the last read: indexes into the outermost ops.
    `around`: of each, the rows between which the thread does nothing else before and after it, int64[0 to 2, 2], where
    whole tensors are read: code that makes something of them.
    """

    first: I64
    last: I64
    around: list[I64]


def find_read_chains(tables: TraceTables) -> ReadChains:
    """Find the chains of the whole trace; use `TraceTables.compute_once`."""
    outer = tables.compute_once(find_outer_ops)
    index = np.flatnonzero(outer.reads)
    if len(index) < 2:
        empty = np.empty(0, dtype=np.int64)
        return ReadChains(empty, empty, [])
    compiled = tables.select_on_launch_lanes(tables.match_names(r"Torch-Compiled Region", Kind.OP, Kind.ANNOTATION))
    regions = np.sort(compiled.start)
    between = np.diff(regions.searchsorted(outer.table.start[index]))
    # A backward pass runs on a thread of its own, between two ops of the one that called it.
    starts = np.sort(tables.match_names(NODE_REGEX, Kind.OP).start)
    nodes = starts.searchsorted(outer.table.start).astype(np.int64)
    models = np.append(0, np.cumsum(tables.match_rows(outer.table.row, MODEL_OP_REGEX)))
    distance = np.diff(index)
    joined = (outer.part[index[1:]] == outer.part[index[:-1]]) & (distance <= _MAX_ROUND) & (between == 0)
    joined &= (models[index[1:]] == models[index[:-1]]) & (nodes[index[1:]] == nodes[index[:-1]])
    edges = np.flatnonzero(~joined)
    begin, end = np.append(0, edges + 1), np.append(edges, len(index) - 1)
    first, last = index[begin], index[end]
    # The first round begins as long before its read as the others do.
    usual = np.where(end > begin, distance[np.minimum(begin, len(distance) - 1)], 1)
    first = np.maximum(first - usual + 1, 0)
    is_near = (outer.part[first] == outer.part[last]) & (nodes[first] == nodes[last])
    first = np.where(is_near, first, index[begin])
    is_long = end - begin + 1 >= thresholds.READS_IN_A_ROW.value
    first, last = first[is_long], last[is_long]
    is_item = np.append(0, np.cumsum(tables.match_rows(outer.table.row, _ITEM_REGEX)))
    around = [
        np.empty((0, 2), np.int64) if is_item[b + 1] > is_item[a] else _pair_ends(tables, outer.table.row, nodes, a, b)
        for a, b in zip(first.tolist(), last.tolist(), strict=True)
    ]
    return ReadChains(first, last, around)


def _pair_ends(tables: TraceTables, rows: I64, nodes: I64, first: int, last: int) -> I64:
    """Pair a stretch of ops with the op before and the one after it: rows, int64[k, 2].

    Where they are on its lane, and no backward pass is between. `nodes`: int64[n], how many nodes began before each op.
    """
    lane = tables.trace.lane
    pairs = [(a, b) for a, b in ((first - 1, first), (last, last + 1)) if a >= 0 and b < len(rows)]
    found = [(rows[a], rows[b]) for a, b in pairs if lane[rows[a]] == lane[rows[b]] and nodes[a] == nodes[b]]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def find_read_times(tables: TraceTables) -> Intervals:
    """Find when results are read one by one, with the code around that makes something of them."""
    ops, chains = tables.compute_once(find_outer_ops).table, tables.compute_once(find_read_chains)
    pairs = np.concatenate([np.empty((0, 2), np.int64), *chains.around])
    ends = tables.trace.start[pairs[:, 0]] + tables.trace.duration[pairs[:, 0]]
    return union(ops.start[chains.first], ops.end[chains.last]) | union(ends, tables.trace.start[pairs[:, 1]])


@register_fault(
    "Results are read from the GPU one by one (.item(), .cpu()), with a wait each",
    meaning="each read waits until the GPU has done everything before it, and the GPU waits for the next launch then",
    action="keep the results on the GPU, and read them together once; or compute them for all items in one op",
    code="values = torch.stack(results).tolist()  # once, after the loop",
    decided="Copies from the GPU to the host, each in an operator of its own, at least as many in a row as the "
    "threshold, with up to 16 operators between two and no layer or compiled code. Not counted: those of the anomaly "
    "mode. At stake: the whole loop.",
    thresholds=(thresholds.READS_IN_A_ROW,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
)
def reads_one_by_one(view: ScopeView) -> Answer:
    tables = view.tables
    outer, chains = tables.compute_once(find_outer_ops), tables.compute_once(find_read_chains)
    inside = view.overlap_mask(outer.table.start[chains.first], outer.table.end[chains.last])
    parts = [np.arange(chains.first[k], chains.last[k] + 1) for k in np.flatnonzero(inside).tolist()]
    if not parts:
        return Answer.absent()
    chosen = np.concatenate(parts)
    rows, reads = outer.table.row[chosen], int(outer.reads[chosen].sum())
    seen = f"{view.format_count(reads, 'read')} in {format_count(len(parts), 'loop')}"
    gaps = pair_neighbours(view.trace, rows, np.repeat(np.arange(len(parts)), [len(part) for part in parts]))
    around = np.concatenate([chains.around[k] for k in np.flatnonzero(inside).tolist()])
    remedy = _choose_read_remedy(view, rows)
    kept = rows if remedy is _SAVE_RARELY else None  # it is saved now and then, and Python beside it is not all known
    return answer_fault(view, rows, seen, remedy, kept=kept, gaps=np.concatenate([gaps, around]))


_SAVE_RARELY = Remedy(
    "after the optimizer that copies the weights to the host, a checkpoint: save less often, or in the background",
    "if step % 1000 == 0: torch.save(model.state_dict(), path)",
)


def _choose_read_remedy(view: ScopeView, rows: I64) -> Remedy | None:
    """Choose by what is read: tests for NaN, whole tensors, or single values; None: the pattern's own."""
    tables = view.tables
    if tables.match_rows(rows, _NAN_REGEX).any():
        return Remedy(
            "test all tensors for NaN at once and read one answer, or test only every hundredth step",
            "bad = ~torch.stack(torch._foreach_norm(gradients)).isfinite().all()  # read it once",
        )
    if not tables.match_rows(rows, _ITEM_REGEX).any():
        start = view.trace.start[rows].min()
        step = int(tables.steps.index_at(np.array([start]))[0])
        optimizer = tables.match_names(OPTIMIZER_STEP_REGEX)
        if (tables.steps.index_at(optimizer.start[optimizer.end <= start]) == step).any() and step >= 0:
            return _SAVE_RARELY
        return Remedy(
            "collect them on the GPU and copy them once; copy statistics only every hundredth step",
            "results = torch.cat(parts).cpu()  # once, after the loop",
        )
    return None


@register_fault(
    "The program synchronises with the GPU again and again",
    meaning="each torch.cuda.synchronize() waits until the GPU has nothing to do, so that nothing is launched ahead",
    action="remove these calls; to time parts of a step, use events or the profiler",
    code="start.record(); …; end.record()  # torch.Event(enable_timing=True), read once after the step",
    decided="Calls outside any operator that wait for a device, stream or event, at least as many in a step as the "
    "threshold.",
    thresholds=(thresholds.SYNCS_PER_STEP,),
    needs=(ScopeView.missing_calls_reason, ScopeView.missing_work_reason, ScopeView.missing_steps_reason),
)
def repeated_synchronize(view: ScopeView) -> Answer:
    tables, trace = view.tables, view.trace
    calls = view.select_in_scope(tables.select_on_launch_lanes(view.gap_finder.sync_calls))
    parent = trace.parent[calls.row]
    in_op = (parent >= 0) & (trace.kind[np.maximum(parent, 0)] == Kind.OP)
    calls = calls.select(~in_op & (calls.row != find_trailing_sync(view)) & (tables.steps.index_at(calls.start) >= 0))
    seen = f"{view.format_count(len(calls), 'call')}" if len(calls) else ""
    if len(calls) < thresholds.SYNCS_PER_STEP.value * max(len(view.steps), 1):
        return Answer.absent(seen)
    before, after = _find_neighbours(tables, calls)
    known = np.flatnonzero((before >= 0) & (after >= 0))
    gaps = np.concatenate([np.stack([before, calls.row], 1)[known], np.stack([calls.row, after], 1)[known]])
    # The GPU has nothing left from each call to the start of the work launched next.
    work = view.work.select(view.work.launch >= 0)
    launch = view.trace.start[work.launch]
    order = np.argsort(launch, kind="stable")
    index = launch[order].searchsorted(calls.end)
    has_next = index < len(order)
    next_start = np.maximum(work.events.start[order[index[has_next]]], calls.end[has_next])
    return answer_fault(view, calls.row, seen, gaps=gaps, beside=union(calls.start[has_next], next_start))


def _find_neighbours(tables: TraceTables, calls: EventTable) -> tuple[I64, I64]:
    """Find the outermost operators before and after each call on its thread: rows, int64[k] each, -1 for none."""
    ops, trace = tables.compute_once(find_outer_ops).table, tables.trace
    before, after = (np.full(len(calls), -1, dtype=np.int64) for _ in range(2))
    lane_of_op, lane_of_call = trace.lane[ops.row], trace.lane[calls.row]
    for lane in sorted_unique(lane_of_call).tolist():
        own, chosen = np.flatnonzero(lane_of_op == lane), np.flatnonzero(lane_of_call == lane)
        index = ops.start[own].searchsorted(calls.start[chosen])
        has_before, has_after = index > 0, index < len(own)
        before[chosen[has_before]] = ops.row[own[index[has_before] - 1]]
        after[chosen[has_after]] = ops.row[own[index[has_after]]]
    return before, after


@register_fault(
    "Each op is called through Python: a dispatch mode or a tensor subclass",
    meaning="torch calls Python code around each op (a counter of FLOPs, a tracer, a subclass), tens of µs each time",
    action="count or trace one step and leave the mode; compile code that uses tensor subclasses",
    code="with FlopCounterMode() as counter: train_step()  # once, not around the loop",
    decided="Calls into Python that torch records inside ops (PythonDispatchMode, PythonSubclass) and that "
    "launch GPU work, at least one for every twenty ops: compilation, which traces shapes alone, launches hardly any. "
    "Time at stake: the GPU's idle time in them, without the ops that they call in turn.",
    needs=(ScopeView.missing_ops_reason,),
)
def python_dispatch(view: ScopeView) -> Answer:
    tables = view.tables
    calls = view.match_names(r"Python(DispatchMode|Subclass)$", Kind.OP)
    launching = int(np.count_nonzero(count_launched_work(view, calls.row)))
    called = tables.launching_thread_ops.row
    if launching < 0.05 * len(view.select_in_scope(tables.launching_thread_ops)) or not launching:
        return Answer.absent(f"{launching:,} of {len(calls):,} calls launch GPU work" if len(calls) else "")
    called = called[is_in(view.trace.parent[called], calls.row)]
    own = calls.intervals - tables.event_table(called).intervals
    answer = answer_fault(view, calls.row[:0], f"{view.format_count(len(calls), 'call')}", beside=own)
    headline = "each op is called through Python: a dispatch mode (such as FlopCounterMode) is left on"
    if not tables.match_rows(calls.row, "PythonDispatchMode").any():
        headline = "each op on a tensor subclass is called through Python"
    return replace(answer, events=calls.row, removed=calls.row[:0], headline=headline)


_EMPTY_REGEX = r"aten::(empty\w*|new_empty\w*|resize_?|set_)$"
_ADDING_REGEX = r"aten::(index_add_?|index_copy_?|scatter_?|scatter_add_?|scatter_reduce_?|index_reduce_?|put_)$"


@register_fault(
    "Deterministic algorithms are used",
    meaning="with torch.use_deterministic_algorithms, ops that add by index sort their indexes first, and new memory "
    "is filled before it is used",
    action="turn deterministic algorithms off where runs need not agree bit by bit",
    code="torch.use_deterministic_algorithms(False)  # or deterministic.fill_uninitialized_memory = False",
    decided="Memory that is filled inside the op that allocates it, and ops that add by index through index_put_, "
    "which sorts. Time at stake: the fills, and the sorting without its last kernel.",
    needs=(ScopeView.missing_ops_reason,),
)
def deterministic_algorithms(view: ScopeView) -> Answer:
    tables = view.tables
    fills = tables.match_names(r"aten::fill_$", Kind.OP).row
    fills = fills[_has_parent(tables, fills, _EMPTY_REGEX)]
    puts = tables.match_names(r"aten::index_put_?$", Kind.OP).row
    puts = puts[_has_parent(tables, puts, _ADDING_REGEX)]
    if not len(fills) and not len(puts):
        return Answer.absent()
    calls = tables.ops_and_calls.row
    inner = tables.innermost_ancestor(calls, tables.mark_rows(puts))
    is_below = (inner >= 0) & ~tables.match_rows(calls, r"aten::_?index_put\w*$")
    below, inner = calls[is_below], inner[is_below]
    kept = below[np.append(inner[1:] != inner[:-1], True)[: len(below)]]
    rows = np.concatenate([fills, below[~is_in(below, kept)]]).astype(np.int64)
    rows = view.select_in_scope(tables.event_table(sorted_unique(rows))).row
    if not len(rows):
        return Answer.absent()
    seen = f"{format_count(len(fills), 'fill')} of new memory, {format_count(len(puts), 'op')} that sort to add"
    # Which algorithms the same ops choose otherwise is not known, so that no saving is claimed.
    return answer_fault(view, rows, seen, kept=rows, beside=tables.event_table(puts).intervals)


def _has_parent(tables: TraceTables, rows: I64, regex: str) -> Bool:
    parent = tables.trace.parent[rows]
    above = np.maximum(parent, 0)
    found: Bool = (parent >= 0) & (tables.trace.kind[above] == Kind.OP) & tables.match_rows(above, regex)
    return found
