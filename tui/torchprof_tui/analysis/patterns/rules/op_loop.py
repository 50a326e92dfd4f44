"""Patterns of Python loops: the same small ops for one item after the other, and experts one after the other.

find_tandem_repeats(np.array([7, 1, 2, 1, 2, 1, 2, 9]), min_rounds=3, max_period=16)
# start [1], period [2], rounds [3]
"""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import nearest_ancestor
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.avoidable_work import (
    add_backward_nodes,
    answer_fault,
    find_ops_around,
    pair_neighbours,
)
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.host_activity import DATA_LOADER_REGEX
from torchprof_tui.analysis.patterns.engine.op_text import number_parts
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_fault, register_pattern
from torchprof_tui.analysis.patterns.engine.practices import OPTIMIZER_STEP_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import F64, I64, Bool, find_median, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind


@record
class TandemRepeats:
    """k repeats that do not overlap, by start: int64[k] each.

    `start`: index of the first value of the first round. `period`: values of a round. `rounds`: whole rounds in a row.
    """

    start: I64
    period: I64
    rounds: I64

    def __len__(self) -> int:
        return len(self.start)

    @property
    def stop(self) -> I64:
        """The index after the last value of the last whole round."""
        return self.start + self.period * self.rounds


def find_tandem_repeats(values: I64, min_rounds: int, max_period: int) -> TandemRepeats:
    """Find the repeats of at least `min_rounds` rounds of 1 to `max_period` values each in `values` int64[n].

    Where two overlap, the one of more values keeps them, of equal ones that of the shorter period; the other keeps what
    is left of it. For a period p, a run of l indices i with values[i] = values[i + p] is a repeat of (l + p) // p
    rounds.
    """
    start, stop, period = find_repeats(values, min_rounds, max_period)
    is_free = np.ones(len(values), dtype=np.bool_)
    kept: list[tuple[int, int, int]] = []
    for index in np.lexsort((period, start - stop)).tolist():
        step = int(period[index])
        for first, last in find_stretches(is_free[start[index] : stop[index]]) + start[index]:
            rounds = int(last - first) // step
            if rounds >= min_rounds:
                is_free[first : first + rounds * step] = False
                kept.append((int(first), step, rounds))
    columns = np.array(sorted(kept), dtype=np.int64).reshape(-1, 3)
    return TandemRepeats(columns[:, 0], columns[:, 1], columns[:, 2])


def find_repeats(values: I64, min_rounds: int, max_period: int) -> tuple[I64, I64, I64]:
    """Find the repeats of each period: (start, stop, period), int64[k] each; they may overlap or end within a round."""
    found: list[tuple[I64, I64, I64]] = []
    for period in range(1, max_period + 1):
        start, last = find_stretches(values[:-period] == values[period:]).T
        is_long = last + period - start >= min_rounds * period
        found.append((start[is_long], last[is_long] + period, np.full(int(is_long.sum()), period)))
    starts, stops, periods = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return starts, stops, periods


def find_stretches(mask: Bool) -> I64:
    """Find where a mask is true: (start, stop) of each stretch, int64[k, 2]."""
    padded = np.concatenate([[False], mask, [False]])
    return np.flatnonzero(padded[1:] != padded[:-1]).reshape(-1, 2).astype(np.int64)


_OP_REGEX = r"(?!autograd::|torch::|c10d|_c10d|fsdp::|profiler::)\w+::\w"
"""Operators that are no collective. Names with a dot, as `torch.distributed.ddp.reducer::…`, are loops of a library."""

_SMALL_OP_REGEX = (
    r"(?!aten::(linear|matmul|mm|addmm|bmm|baddbmm|addmv|mv|einsum|_?conv\w*|\w*attention\w*|scaled_dot_product\w*"
    r"|(layer|batch|group|instance|rms)_norm|native_\w*norm|cudnn_\w+|miopen_\w+|mkldnn_\w+|_?embedding\w*"
    r"|(quantized_)?(lstm|gru|rnn\w*)(_cell)?)$)" + _OP_REGEX
)
"""Operators that make up no layer of a model: a loop over layers is the model itself."""

_BATCHED_LAYER_REGEX = r"aten::(embedding|matmul|mm|mv|bmm|scaled_dot_product_attention)$"
"""Layers of which nothing but one after the other runs in no model: there is one call for all of them."""

_SCALAR_OPS = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"})
_COPY_OPS = frozenset({"aten::to", "aten::copy_", "aten::pin_memory", "aten::detach", "aten::detach_"})
_CLIPPING_OPS = frozenset({"aten::linalg_vector_norm", "aten::norm", "aten::clamp"})
_BACKWARD_REGEX = r"autograd::engine::evaluate_function"


@record
class OpLoops:
    """k runs of the same ops in a row on launching threads, by lane, then time; columns int64[k].

    `ops`: the outermost ops of these threads; a run is `ops[first:stop]`, `rounds` times `period` of them. `start` and
    `end`: ns. `group`: index into `group_names`, the op names of one round.
    """

    ops: EventTable
    first: I64
    stop: I64
    period: I64
    rounds: I64
    group: I64
    group_names: tuple[tuple[str, ...], ...]

    @property
    def start(self) -> I64:
        return self.ops.start[self.first]

    @property
    def end(self) -> I64:
        return self.ops.end[self.stop - 1]

    def rows_of(self, chosen: I64) -> I64:
        """Return the rows of the ops in these runs: int64[m]."""
        parts = [self.ops.row[self.first[run] : self.stop[run]] for run in chosen.tolist()]
        return np.concatenate(parts) if parts else self.ops.row[:0]


def find_op_loops(tables: TraceTables) -> OpLoops:
    """Find the runs of a whole trace; use `TraceTables.compute_once`.

    A run lies in one step, and outside optimizer steps (`optimizer-loop`) and calls of the data loader
    (`input-starved`). Collectives belong to none, ops of layers only to runs of many rounds.
    """
    trace, is_operator = tables.trace, np.asarray(tables.trace.kind) == Kind.OP
    is_operator &= match_names(trace, lambda name: "::" in name)
    ops = tables.launching_thread_ops
    ops = ops.select(is_operator[ops.row] & (tables.innermost_ancestor(ops.row, is_operator) < 0))
    owners = np.concatenate([tables.match_names(regex).row for regex in (OPTIMIZER_STEP_REGEX, DATA_LOADER_REGEX)])
    is_candidate = tables.match_rows(ops.row, _OP_REGEX)
    candidates = np.flatnonzero(is_candidate)
    is_candidate[candidates] = tables.innermost_ancestor(ops.row[candidates], tables.mark_rows(owners)) < 0
    repeats = _find_repeats(tables, ops, is_candidate)
    names = [
        tuple(trace.names[name] for name in ops.name[first : first + period].tolist())
        for first, period in zip(repeats.start.tolist(), repeats.period.tolist(), strict=True)
    ]
    groups = {group: number for number, group in enumerate(dict.fromkeys(names))}
    group = np.array([groups[group] for group in names], dtype=np.int64)
    return OpLoops(ops, repeats.start, repeats.stop, repeats.period, repeats.rounds, group, tuple(groups))


def _find_repeats(tables: TraceTables, ops: EventTable, is_candidate: Bool) -> TandemRepeats:
    """Find the repeats with ops of layers, which are long, then those without in what is left."""
    # Equal where name, thread and step are; those of ops that are no candidates are equal to none.
    name_count = len(tables.trace.names)
    equal, alone = number_parts(tables, ops) * name_count + ops.name, (len(ops) + 1) * name_count + np.arange(len(ops))
    few, many = int(thresholds.OP_LOOP_MIN_ROUNDS.value), int(thresholds.OP_LOOP_LAYER_MIN_ROUNDS.value)
    with_layers = find_tandem_repeats(np.where(is_candidate, equal, alone), many, _MAX_PERIOD)
    parts = [with_layers]
    for regex, max_period in ((_SMALL_OP_REGEX, _MAX_PERIOD), (_BATCHED_LAYER_REGEX, 1)):
        numbers = np.where(is_candidate & tables.match_rows(ops.row, regex), equal, alone)
        for start, stop in zip(with_layers.start.tolist(), with_layers.stop.tolist(), strict=True):
            numbers[start:stop] = -1 - np.arange(start, stop)
        parts.append(find_tandem_repeats(numbers, few, max_period))
    order = np.argsort(np.concatenate([part.start for part in parts]), kind="stable")
    columns = (
        np.concatenate(column)[order]
        for column in zip(*((part.start, part.period, part.rounds) for part in parts), strict=True)
    )
    return TandemRepeats(*columns)


def _count_calls(tables: TraceTables) -> I64:
    """Count the dispatcher's operators of each run, those inside others included: each costs a call."""
    loops, every = tables.compute_once(find_op_loops), tables.launching_thread_ops.row
    every = every[tables.is_dispatcher_op[every]]
    rows = np.append(loops.ops.row, len(tables.trace))
    counts: I64 = every.searchsorted(rows[loops.stop]) - every.searchsorted(rows[loops.first])
    return counts


def _measure_loops(view: ScopeView, loops: OpLoops) -> tuple[I64, F64, I64]:
    """Measure the runs inside the window, and choose those of groups that cost enough while the GPU is mostly idle.

    (int64[k] ns of each; float64[k]: of that, the mean time in which the GPUs were idle, all of it without a GPU; the
    chosen runs, int64[m].)
    """
    tables, (t0, t1) = view.tables, view.window
    start, end = np.clip(loops.start, t0, t1), np.clip(loops.end, t0, t1)
    time = end - start
    idle = time.astype(np.float64)
    for device in tables.devices:
        busy = tables.busy_intervals[device]
        idle -= busy.measure_within(start, end) / len(tables.devices)
    count = len(loops.group_names)
    time_of_group = np.bincount(loops.group, weights=time, minlength=count)
    idle_of_group = np.bincount(loops.group, weights=idle, minlength=count)
    calls = tables.compute_once(_count_calls) if len(tables.work) else loops.stop - loops.first
    ops_of_group = np.bincount(loops.group, weights=calls * (time > 0), minlength=count)
    is_copying = np.array([_COPY_OPS.issuperset(names) for names in loops.group_names], dtype=np.bool_)
    is_costly = ~is_copying & (
        (idle_of_group >= thresholds.SIGNIFICANT_SHARE.value * max(t1 - t0, 1))
        & (idle_of_group > (1 - thresholds.OP_LOOP_BUSY_MAX.value) * time_of_group)
        & (time_of_group <= thresholds.OP_LOOP_MEAN_MAX.value * ops_of_group)
    )
    return time, idle, np.flatnonzero(is_costly[loops.group] & (time > 0))


@register_fault(
    "The same small ops run in a long loop",
    meaning="Python calls a few ops for one item after another; each call has a fixed cost on the CPU",
    action="do it for all items at once: one batched op, a torch._foreach_ op, or compile the loop",
    decided="The outermost ops of one step on a thread that launches: a sequence of up to 16 ops (a round) repeats "
    "at least as often as the first threshold; with ops of layers (products, convolutions, norms, attention, "
    "embeddings) as the second. Not counted: collectives, ops inside optimizer steps and data loaders, and rounds that "
    "only copy. The ops are short, the GPU is busy for less than its threshold during the loops, and its idle time in "
    "them reaches the last threshold, a share of the time looked at. Time at stake: this idle time; without a GPU, the "
    "time of the loops.",
    thresholds=(
        thresholds.OP_LOOP_MIN_ROUNDS,
        thresholds.OP_LOOP_LAYER_MIN_ROUNDS,
        thresholds.OP_LOOP_MEAN_MAX,
        thresholds.OP_LOOP_BUSY_MAX,
        thresholds.SIGNIFICANT_SHARE,
    ),
    needs=(ScopeView.missing_ops_reason,),
)
def op_loop(view: ScopeView) -> Answer:
    loops = view.tables.compute_once(find_op_loops)
    time, idle, chosen = _measure_loops(view, loops)
    if not len(chosen):
        return Answer.absent(_describe_longest(loops, time))
    main = int(np.bincount(loops.group[chosen], weights=idle[chosen]).argmax())
    runs = chosen[loops.group[chosen] == main]
    events = view.select_in_scope(view.tables.event_table(np.sort(loops.rows_of(chosen))))
    if not len(events):
        return Answer.absent("the scope lies between two ops of a loop")
    spans = union(loops.start[chosen], loops.end[chosen]).clip(*view.window)
    others = len(sorted_unique(loops.group[chosen])) - 1
    more = f"; with {format_count(others, 'other such loop')}: {format_duration(spans.total)}" if others else ""
    casts = _find_casts(view, loops, chosen)
    headline, remedy = "", _choose_remedy(view, loops, runs)
    if described := _describe_repeated_layer(loops, runs):
        headline, remedy = described
    elif len(casts):
        headline, remedy = "weights are cast to another type at each use, in a loop", _CAST_ONCE
    if remedy is not None and "clip_grad_norm_" in remedy.code:
        headline = "gradients are clipped in a loop over the parameters"
    seen = _describe_loop(view, loops, runs, float(time[runs].sum())) + more
    if not len(view.tables.work):
        return Answer.fired(seen, events.row, spans.total, remedy, spans, headline=headline)
    first, last = loops.ops.row[loops.first[chosen]], loops.ops.row[loops.stop[chosen] - 1]
    around = find_ops_around(view.tables, first, last)
    rows = add_backward_nodes(view.tables, sorted_unique(np.concatenate([events.row, around])).astype(np.int64))
    if remedy is _CAST_ONCE:
        kept = rows[~is_in(rows, np.sort(casts))]
        return answer_fault(view, rows, seen, remedy, kept=kept, headline=headline)
    run = np.repeat(np.arange(len(chosen)), loops.stop[chosen] - loops.first[chosen])
    gaps = pair_neighbours(view.trace, loops.rows_of(chosen), run)
    return answer_fault(view, rows, seen, remedy, gaps=gaps, headline=headline)


def _describe_repeated_layer(loops: OpLoops, runs: I64) -> tuple[str, Remedy] | None:
    """Describe a loop of one layer, for which there is a batched call: (what the verdict says, remedy)."""
    names = set(loops.group_names[int(loops.group[runs[0]])])
    if names == {"aten::embedding"}:
        remedy = Remedy(
            "put the tables into one, and add an offset to the numbers: a single lookup",
            "y = F.embedding(numbers + offsets, torch.cat(tables))",
        )
        return "small embedding tables are read one after the other", remedy
    if names <= {"aten::matmul", "aten::mm", "aten::mv", "aten::bmm"}:
        remedy = Remedy("stack the matrices and call bmm once: a batch of products", "y = torch.bmm(stack_a, stack_b)")
        return "small matmuls run one after the other", remedy
    if names == {"aten::scaled_dot_product_attention"}:
        remedy = Remedy(
            "call it once for all heads, or for sequences padded to one length",
            "y = F.scaled_dot_product_attention(q, k, v)  # batch, heads, length, width",
        )
        return "attention is called once per head or sequence", remedy
    return None


_CAST_ONCE = Remedy("cast the weights once, before the loop, and keep them in that type", "weight = weight.bfloat16()")


def _find_casts(view: ScopeView, loops: OpLoops, runs: I64) -> I64:
    """Find the casts in loops of layers, where one of four ops is one: rows, int64[k].

    A cast is an op of the program (autocast casts inside the op that needs it), and launches what it copies.
    """
    rows, tables = loops.rows_of(runs), view.tables
    casts = rows[tables.match_rows(rows, r"aten::(to|_to_copy)$") & tables.has_work[rows]]
    is_of_layers = tables.match_rows(rows, r"aten::(linear|addmm|matmul|mm|bmm)$").any()
    return casts if is_of_layers and 4 * len(casts) >= len(rows) else casts[:0]


def _describe_longest(loops: OpLoops, time: I64) -> str:
    """Describe the run with most rounds of those that take any `time` int64[k] ns in the window, "" for none."""
    inside = np.flatnonzero(time > 0)
    if not len(inside):
        return ""
    longest = int(inside[loops.rounds[inside].argmax()])
    names, count = loops.group_names[int(loops.group[longest])], int(loops.rounds[longest])
    return f"{_format_group(names)} {count:,} times in a row at most, {format_duration(float(time[longest]))}"


def _describe_loop(view: ScopeView, loops: OpLoops, runs: I64, time: float) -> str:
    """Describe the runs of one group: "34.3 ms a step, 33 % of the steps: the same 6 ops (…) run 240 times"."""
    steps, names = len(view.steps), loops.group_names[int(loops.group[runs[0]])]
    what = f"{_format_group(names)} {'runs' if len(names) == 1 else 'run'}"
    rounds, share = int(find_median(loops.rounds[runs])), time / max(view.window_length, 1)
    per_step = f"{format_duration(time / steps)} a step" if steps > 1 else format_duration(time)
    place = _describe_place(view, loops, int(runs[0]))
    often = view.format_per_step(len(runs)) if len(runs) > 1 else ""
    return (
        f"{per_step}, {format_percent(share)} of {view.window_label}: {what} {rounds:,} times in a row{place}; "
        f"{format_count(len(runs), 'such loop')}{often}"
    )


def _format_group(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return names[0]
    listed = names if len(names) <= _MAX_LISTED else (*names[: _MAX_LISTED - 1], "…", names[-1])
    return f"the same {len(names)} ops ({' → '.join(listed)})"


def _describe_place(view: ScopeView, loops: OpLoops, run: int) -> str:
    """Describe where in a step a run lies, "" where that is not known: in an annotation, or around backward."""
    trace, tables, first = view.trace, view.tables, loops.ops.row[loops.first[run] : loops.first[run] + 1]
    annotation = int(nearest_ancestor(trace, first, Kind.ANNOTATION)[0])
    if annotation >= 0:
        return f" in {tables.short_name(annotation)}"
    start, end = int(loops.start[run]), int(loops.end[run])
    t0, t1 = view.trace.span
    step = int(tables.steps.index_at(np.array([start]))[0])
    if step >= 0:
        t0, t1 = int(tables.steps.start[step]), int(tables.steps.end[step])
    backward, optimizer = (
        table.select((table.start < t1) & (table.end > t0))
        for table in map(tables.match_names, (_BACKWARD_REGEX, OPTIMIZER_STEP_REGEX))
    )
    has_backward_before, has_optimizer_before = (bool((each.end <= start).any()) for each in (backward, optimizer))
    if has_backward_before and not has_optimizer_before and (optimizer.start >= end).any():
        return _BEFORE_OPTIMIZER
    if has_optimizer_before and not (backward.start >= end).any():
        return " after Optimizer.step"
    return " before backward" if not has_backward_before and (backward.start >= end).any() else ""


def _choose_remedy(view: ScopeView, loops: OpLoops, runs: I64) -> Remedy | None:
    """Choose by the ops of one round: it reads a value back, takes a norm, or neither; None: the pattern's own."""
    run = int(runs[0])
    names = set(loops.group_names[int(loops.group[run])])
    if not all(map(re.compile(_SMALL_OP_REGEX).match, names)):
        return Remedy(
            "call layers once for all rounds where a round does not need the one before (an output layer), use a fused "
            "one (nn.GRU, nn.LSTM), or compile the loop",
            "y = head(torch.stack(states, dim=1))  # once, after the loop",
        )
    if not len(view.tables.work):
        return Remedy("call these ops once on whole tensors, not once for each item, or compile the loop")
    if names == {"aten::zero_"}:
        return Remedy(
            "drop the gradients instead of writing zeros into each",
            "optimizer.zero_grad(set_to_none=True)  # the default",
        )
    if names & _CLIPPING_OPS and _describe_place(view, loops, run) == _BEFORE_OPTIMIZER:
        return Remedy(
            "compute the norm of all gradients at once: clip_grad_norm_ uses torch._foreach_ ops, and returns it",
            "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, foreach=True)",
        )
    first, last = np.sort(view.gap_finder.sync_calls.start).searchsorted([loops.start[run], loops.end[run]]).tolist()
    if names & _SCALAR_OPS or last - first >= _SYNCS_PER_ROUND * int(loops.rounds[run]):
        return Remedy(
            "keep the results on the GPU and fetch them once, or compute them for all items in one batched op",
            "values = torch.stack(results).tolist()  # once, after the loop; no .item() in it",
        )
    return None


_BEFORE_OPTIMIZER = " between backward and Optimizer.step"

_MAX_PERIOD = 16  # ops of one round: longer groups are layers or whole models, whose ops are not small together
_MAX_LISTED = 5  # op names that are listed of a group; the rest is left out before the last
_SYNCS_PER_ROUND = 0.9  # waits per round from which each round waits: the first may be missing
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
    gather = np.where(is_in(parent, gathers), route.row, find_next(_GATHER_REGEX, route.row))
    product = find_next(_GEMM_REGEX, gather)
    # A masked scatter has a nonzero of its own inside, which is the next route: the scatter begins before it.
    scatter = find_next(_SCATTER_REGEX, product)
    complete = scatter < end_of_trace
    scatter = np.minimum(scatter, end_of_trace - 1)
    end = np.asarray(trace.start[scatter] + trace.duration[scatter])
    return EventTable(route.row, route.start, end, route.name).select(complete)


@register_pattern(
    "Experts run one after the other",
    meaning="each expert has a wait for the GPU (nonzero finds its tokens) and many small kernels of its own",
    action="sort the tokens by expert once, and multiply all of them in a grouped GEMM",
    code="y[order] = torch._grouped_mm(x[order], weights, offs=offsets)  # order = expert.argsort()",
    decided="On one thread, as often as the limit: nonzero, then a gather, a matrix product and a scatter or "
    "index_add before the next nonzero. Time at stake: the GPU's idle time in them.",
    thresholds=(thresholds.EXPERT_LOOP_MIN,),
    needs=(ScopeView.missing_ops_reason,),
)
def moe_expert_loop(view: ScopeView) -> Answer:
    experts = view.select_in_scope(view.tables.compute_once(find_experts))
    if len(experts) < thresholds.EXPERT_LOOP_MIN.value:
        return Answer.absent(f"{format_count(len(experts), 'gathered product')}" if len(experts) else "")
    work = view.work.events
    idle = view.clip(experts.intervals - work.intervals).total
    waits = f", the GPU idle {format_duration(idle)} in them" if len(view.tables.work) else ""
    start_in_scope = view.select_in_scope(view.tables.event_table(experts.row)).row
    if not len(start_in_scope):
        return Answer.absent("one expert only")
    capability, remedy = view.tables.practices.capability, None
    if capability is not None and capability < (8, 0):
        remedy = Remedy(
            "sort the tokens by expert once, pad each expert to the same length, and multiply them as one batch",
            "torch.bmm(padded_tokens, weights)",
        )
    seen = (
        f"{view.format_count(len(experts), 'expert')} one after the other, "
        f"{format_duration(find_median(experts.duration))} each{waits}"
    )
    return Answer.fired(seen, start_in_scope, idle if len(view.tables.work) else 0, remedy, experts.intervals)
