"""Sections "torch.compile" and "Dispatch chain": compiled regions with their cost, and which event calls which."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.dispatch.chain import list_ancestors
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, Section, Severity, register_pattern
from torchprof_tui.analysis.patterns.engine.practices import COMPILE_WORK_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I64, find_largest, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

COMPILED_REGION_REGEX = r"Torch-Compiled Region"
CACHE_LOOKUP_REGEX = r"TorchDynamo Cache Lookup"
AOT_PROLOGUE_REGEX = r"AOTDispatcher Runtime Wrapper Prologue"
PREGRAPH_REGEX = r"Pregraph bytecode"
COMPILED_GRAPH_REGEX = r"## Call CompiledFxGraph "
_REGION_ID = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)")
_COMPILE_ID = re.compile(r"compile_id=(\d+)/(\d+)")
_GRAPH_HASH = re.compile(r"## Call CompiledFxGraph (\S+) ##")


@register_pattern(
    "Compiled code",
    section=Section.COMPILE,
    meaning="code that torch.compile compiled; of K/M, K is the number of the function and M how often it was "
    "recompiled",
    action="nothing: ops inside show what was not captured",
    decided="Events called Torch-Compiled Region, with K/M since torch 2.6.",
    needs=(ScopeView.missing_ops_reason,),
    severity=Severity.NOTICE,
)
def compiled_region(view: ScopeView) -> Answer:
    regions = view.match_names(COMPILED_REGION_REGEX)
    if not len(regions):
        return Answer.absent()
    region_numbers = sorted(
        {view.tables.name(int(row)).removeprefix("Torch-Compiled Region").lstrip(": ") for row in regions.row}
    )
    number_text = ", ".join(number or "without a number" for number in region_numbers[:6]) + (
        " …" if len(region_numbers) > 6 else ""
    )
    return Answer.fired(
        f"{format_count(len(regions), 'call')}{view.format_per_step(len(regions))} of {number_text}", regions.row
    )


def _check_total_time(view: ScopeView, name: str, noun: str) -> Answer:
    """Fire where events of this name exist, with their total time."""
    if missing_reason := view.missing_ops_reason():
        return Answer.cannot_tell(missing_reason)
    events = view.match_names(name)
    if not len(events):
        return Answer.absent()
    time = view.covered_time(events)
    return Answer.fired(
        f"{format_count(len(events), noun)}{view.format_per_step(len(events))}: {format_duration(time)}",
        events.row,
        time,
    )


@register_pattern(
    "Guards are checked on every call",
    section=Section.COMPILE,
    meaning="in each call Dynamo searches for compiled code whose guards are true: a small cost unless there is "
    "little work",
    action="compile fewer and larger regions, and avoid graph breaks",
    decided="Events called TorchDynamo Cache Lookup; their time is summed.",
    severity=Severity.NOTICE,
)
def cache_lookup(view: ScopeView) -> Answer:
    return _check_total_time(view, CACHE_LOOKUP_REGEX, "lookup")


@register_pattern(
    "AOTAutograd's wrapper",
    section=Section.COMPILE,
    meaning="it prepares the arguments of every compiled call, also in inference",
    action="nothing: every compiled call has it",
    decided="Events called AOTDispatcher Runtime Wrapper Prologue; their time is summed.",
    severity=Severity.NOTICE,
)
def aot_prologue(view: ScopeView) -> Answer:
    return _check_total_time(view, AOT_PROLOGUE_REGEX, "prologue")


@register_pattern(
    "The compiled graph that ran",
    section=Section.COMPILE,
    meaning="the same hash in each step means that the compiled code is reused",
    action="the generated code is in Inductor's cache folder, under this hash",
    code="TORCH_LOGS=output_code python train.py",
    decided="The hashes in ## Call CompiledFxGraph <hash> ##, by step.",
    needs=(ScopeView.missing_ops_reason,),
    severity=Severity.NOTICE,
)
def fxgraph_hash(view: ScopeView) -> Answer:
    graph_calls = view.match_names(COMPILED_GRAPH_REGEX)
    if not len(graph_calls):
        return Answer.absent()
    matches = [_GRAPH_HASH.match(view.tables.name(int(row))) for row in graph_calls.row]
    hashes = np.array([match[1] if match else "" for match in matches])
    steps = view.tables.steps.index_at(graph_calls.start)
    hashes_by_step = [frozenset(hashes[steps == step].tolist()) for step in np.unique(steps[steps >= 0]).tolist()]
    distinct = sorted(set(hashes.tolist()))
    if len(hashes_by_step) < 2:
        comparison = "in one step" if hashes_by_step else "no steps to compare"
    elif len(set(hashes_by_step)) == 1:
        comparison = f"the same in each of {len(hashes_by_step)} steps: cache hits"
    else:
        comparison = f"not the same in all of {len(hashes_by_step)} steps"
    hash_text = ", ".join(f"{graph_hash[:12]}…" for graph_hash in distinct[:4])
    return Answer.fired(f"{format_count(len(distinct), 'graph')} ({hash_text}), {comparison}", graph_calls.row)


@register_pattern(
    "Compiled code costs CPU time of its own",
    section=Section.COMPILE,
    meaning="guards and wrappers run in every call: a large share is normal for tiny work, and becomes small with "
    "many ops",
    action="compile larger regions, and leave tiny work eager; measure CUDA graphs before you use them: the copies of "
    "their inputs may cost more than they save",
    code="model = torch.compile(model)  # once, around the whole model",
    decided="Cache lookups, prologues, pregraph bytecode and the regions' self time, over the steps' CPU time in the "
    "scope. (A comparison with eager needs a second trace.)",
    thresholds=(thresholds.WRAPPER_SHARE,),
    fires_on_absence=True,
    needs=(ScopeView.missing_ops_reason,),
)
def compile_tax(view: ScopeView) -> Answer:
    tables = view.tables
    regions = view.match_names(COMPILED_REGION_REGEX)
    if not len(regions):
        return Answer.absent("nothing was compiled")
    if not len(tables.steps):
        return Answer.cannot_tell(view.missing_steps_reason())
    if not len(tables.match_names(COMPILED_GRAPH_REGEX)):
        return Answer.cannot_tell(
            "this version of torch does not mark compiled graphs, so wrappers and graph cannot be separated"
        )
    wrappers = view.match_names(rf"{CACHE_LOOKUP_REGEX}|{AOT_PROLOGUE_REGEX}|{PREGRAPH_REGEX}")
    graphs, region_intervals = view.match_names(COMPILED_GRAPH_REGEX), regions.intervals
    # Ops between the graphs of a region are work, not overhead (graph breaks are outside the region).
    ops = view.match_names(r"aten::")
    region_overhead = (region_intervals - graphs.intervals) - ops.intervals
    overhead = region_overhead | wrappers.intervals
    compiling = view.match_names(COMPILE_WORK_REGEX)
    overhead = view.clip((overhead - compiling.intervals) & union(tables.steps.start, tables.steps.end))
    step_time = view.clip(union(tables.steps.start, tables.steps.end)).total
    share = overhead.total / step_time if step_time else 0.0
    summary = f"guards and wrappers take {format_duration(overhead.total)}, {format_percent(share)} of the steps"
    if share < thresholds.WRAPPER_SHARE.value:
        return Answer.absent(summary)
    remedy = None
    if tables.practices.uses_cuda_graphs:
        remedy = Remedy(
            "graphs are replayed already; guards and wrappers remain: compile fewer and larger regions",
            "step = torch.compile(step, mode=..., fullgraph=True)  # keep the mode; no graph breaks",
        )
    return Answer.fired(summary, np.sort(np.concatenate([regions.row, wrappers.row])), overhead.total, remedy)


@register_pattern(
    "The same code is compiled again",
    meaning="shapes or other guarded values changed, and each new value needs a compilation",
    action="mark changing sizes as dynamic, or keep them fixed (pad, bucket)",
    code="torch.compile(model, dynamic=True)  # or torch._dynamo.mark_dynamic(x, 0)",
    decided="Regions of one function (K) with several M in the scope; or compile work of a recompilation (M > 0); or "
    "any compile work after the first step. Time at stake: the compile work in the scope.",
    needs=(ScopeView.missing_ops_reason,),
)
def recompiles(view: ScopeView) -> Answer:
    tables = view.tables
    regions, compile_work = view.match_names(COMPILED_REGION_REGEX), view.match_names(COMPILE_WORK_REGEX)
    if not len(regions) and not len(compile_work):
        return Answer.absent("nothing was compiled")
    variants: dict[str, set[int]] = {}
    for row in regions.row.tolist():
        if match := _REGION_ID.match(tables.name(row)):
            variants.setdefault(match[1], set()).add(int(match[2]))
    recompiled_frames = {frame: ids for frame, ids in variants.items() if len(ids) > 1}
    steps = tables.steps
    after_first_step = np.zeros(len(compile_work), dtype=np.bool_)
    if len(steps) > 1:
        after_first_step = (compile_work.start >= steps.start[1]) & (steps.index_at(compile_work.start) >= 0)
    is_recompilation = np.array([_is_recompilation(tables.name(int(row))) for row in compile_work.row], dtype=np.bool_)
    compile_events = compile_work.select(after_first_step | is_recompilation)
    if not recompiled_frames and not len(compile_events):
        if not variants and len(regions) and not len(compile_work):
            return Answer.cannot_tell("regions carry no numbers before torch 2.6, and no compile work was recorded")
        return Answer.absent("each region kept its number")
    evidence = _select_variants(view, regions, recompiled_frames)
    compile_time = view.covered_time(compile_events)
    parts = [
        f"function {frame} ran in {len(ids)} compiled versions (M = {_format_numbers(ids)})"
        for frame, ids in sorted(recompiled_frames.items())
    ]
    if len(compile_events):
        parts.append(f"compile work took {format_duration(compile_time)}")
    return Answer.fired(
        "; ".join(parts),
        np.sort(np.concatenate([evidence.row, compile_events.row[:1] if recompiled_frames else compile_events.row])),
        compile_time,
        spans=compile_events.intervals,
    )


def _is_recompilation(name: str) -> bool:
    match = _COMPILE_ID.search(name)
    return match is not None and int(match[2]) > 0


def _select_variants(view: ScopeView, regions: EventTable, recompiled_frames: dict[str, set[int]]) -> EventTable:
    """Select the first region of each variant of the frames that have several."""
    known_variants: set[str] = set()
    keep = []
    for row in regions.row.tolist():
        name = view.tables.name(row)
        match = _REGION_ID.match(name)
        is_first = match is not None and match[1] in recompiled_frames and match[0] not in known_variants
        if match is not None and is_first:
            known_variants.add(match[0])
        keep.append(is_first)
    return regions.select(np.array(keep, dtype=np.bool_))


def _format_numbers(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)[:8])) + (" …" if len(numbers) > 8 else "")


_MAX_CHAINS = 200
"""The heaviest pieces of work whose chains are followed: one complete chain is shown."""


@register_pattern(
    "Step → range → op → launch → kernel",
    section=Section.DISPATCH,
    meaning="the path from the step to a kernel; a row's total time includes its children, its self time does not",
    action="select an event; [ and ] go along its chain",
    decided="The chain of the longest GPU work that has one: an operator, a launch matched by correlation, and the "
    "step and ranges around them if they were recorded.",
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
    severity=Severity.NOTICE,
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
    is_match = (parents >= 0) & np.isin(view.trace.name[np.maximum(parents, 0)], parent_names)
    if not len(children) or not is_match.any():
        return Answer.absent()
    matches = children.select(is_match)
    return Answer.fired(f"{parent} became {child} {len(matches):,}×{view.format_per_step(len(matches))}", matches.row)


@register_pattern(
    "matmul of two matrices",
    section=Section.DISPATCH,
    meaning="both arguments have two dimensions: one plain GEMM",
    action="nothing: this is the shortest path to a kernel",
    decided="aten::mm directly below aten::matmul.",
    severity=Severity.NOTICE,
)
def matmul_to_mm(view: ScopeView) -> Answer:
    return _check_child_call(view, "aten::matmul", "aten::mm")


@register_pattern(
    "matmul of batches",
    section=Section.DISPATCH,
    meaning="three dimensions or more: one batched GEMM, after some views",
    action="nothing; if one argument has no batch, fold the batch into the rows to get a larger plain GEMM",
    decided="aten::bmm directly below aten::matmul.",
    severity=Severity.NOTICE,
)
def matmul_to_bmm(view: ScopeView) -> Answer:
    return _check_child_call(view, "aten::matmul", "aten::bmm")


@register_pattern(
    "Bias and product in one op",
    section=Section.DISPATCH,
    meaning="addmm instead of mm and add: the GEMM adds the bias at its end, which saves one launch and one pass "
    "over the data",
    action="nothing: nn.Linear does this already",
    decided="aten::addmm without an aten::add among its siblings (if the parent is an annotation or a step: as its "
    "next sibling).",
    fires_on_absence=True,
    needs=(ScopeView.missing_ops_reason,),
    severity=Severity.NOTICE,
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
    has_sibling_add = under_op & np.isin(parent, add_parents)
    # Under a step or a range all ops of a model are siblings: there only the next sibling can be its separate add.
    fused = addmms.select(~has_sibling_add & (under_op | ~np.isin(_find_next_siblings(view, addmms), adds)))
    if not len(fused):
        return Answer.absent("every addmm has an add next to it")
    return Answer.fired(
        f"{format_count(len(fused), 'addmm', 'addmm')}{view.format_per_step(len(fused))} without a separate add",
        fused.row,
    )


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
