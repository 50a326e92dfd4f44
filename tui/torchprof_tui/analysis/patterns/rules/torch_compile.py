"""Section "torch.compile": compiled regions and what they cost."""

from __future__ import annotations

import re
import shlex

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.avoidable_work import answer_fault, find_launched_work
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Remedy,
    register_fault,
    register_notice,
    register_pattern,
)
from torchprof_tui.analysis.patterns.engine.practices import COMPILE_WORK_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.warmup import describe_launches, format_per_step, measure_step_work
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.analysis.words.dictionary import explain
from torchprof_tui.trace.core.arrays import is_in, sorted_unique
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace

COMPILED_REGION_REGEX = r"Torch-Compiled Region"
CACHE_LOOKUP_REGEX = r"TorchDynamo Cache Lookup"
AOT_PROLOGUE_REGEX = r"AOTDispatcher Runtime Wrapper Prologue"
PREGRAPH_REGEX = r"Pregraph bytecode"
COMPILED_GRAPH_REGEX = r"## Call CompiledFxGraph "
_REGION_ID = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)")
_COMPILE_ID = re.compile(r"compile_id=(\d+)/(\d+)")
_GRAPH_HASH = re.compile(r"## Call CompiledFxGraph (\S+) ##")


@register_notice(
    "Compiled code",
    meaning=explain("Torch-Compiled Region", "is", "why"),
    action="nothing: ops inside show what was not captured",
    decided="Events called Torch-Compiled Region, with K/M since torch 2.6.",
    needs=(ScopeView.missing_ops_reason,),
)
def compiled_region(view: ScopeView) -> Answer:
    regions = view.match_names(COMPILED_REGION_REGEX)
    if not len(regions):
        return Answer.absent()
    names = {view.tables.name(int(row)) for row in regions.row}
    numbers = sorted({name.removeprefix("Torch-Compiled Region").lstrip(": ") for name in names})
    seen = f"{view.format_count(len(regions), 'call')} of "
    seen += ", ".join(number or "without a number" for number in numbers[:6]) + (" …" if len(numbers) > 6 else "")
    return Answer.fired(seen, regions.row)


def _check_total_time(view: ScopeView, name: str, noun: str) -> Answer:
    if missing_reason := view.missing_ops_reason():
        return Answer.cannot_tell(missing_reason)
    events = view.match_names(name)
    if not len(events):
        return Answer.absent()
    time = view.covered_time(events)
    seen = f"{format_count(len(events), noun)}{view.format_per_step(len(events))}: {format_duration(time)}"
    return Answer.fired(seen, events.row, time)


@register_notice(
    "Guards are checked on every call",
    meaning=explain("TorchDynamo Cache Lookup", "is", "costs"),
    action="compile fewer and larger regions, and avoid graph breaks",
    decided="Events called TorchDynamo Cache Lookup; their time is summed.",
)
def cache_lookup(view: ScopeView) -> Answer:
    return _check_total_time(view, CACHE_LOOKUP_REGEX, "lookup")


@register_notice(
    "AOTAutograd's wrapper",
    meaning=explain("AOT prologue", "is", "why"),
    action="nothing: every compiled call has it",
    decided="Events called AOTDispatcher Runtime Wrapper Prologue; their time is summed.",
)
def aot_prologue(view: ScopeView) -> Answer:
    return _check_total_time(view, AOT_PROLOGUE_REGEX, "prologue")


@register_notice(
    "The compiled graph that ran",
    meaning=explain("CompiledFxGraph", "why"),
    action="the generated code is in Inductor's cache folder, under this hash",
    code="TORCH_LOGS=output_code python train.py",
    decided="The hashes in ## Call CompiledFxGraph <hash> ##, by step.",
    needs=(ScopeView.missing_ops_reason,),
)
def fxgraph_hash(view: ScopeView) -> Answer:
    graph_calls = view.match_names(COMPILED_GRAPH_REGEX)
    if not len(graph_calls):
        return Answer.absent()
    matches = [_GRAPH_HASH.match(view.tables.name(int(row))) for row in graph_calls.row]
    hashes = np.array([match[1] if match else "" for match in matches])
    steps = view.tables.steps.index_at(graph_calls.start)
    hashes_by_step = [frozenset(hashes[steps == step].tolist()) for step in sorted_unique(steps[steps >= 0]).tolist()]
    distinct = sorted(set(hashes.tolist()))
    if len(hashes_by_step) < 2:
        comparison = "in one step" if hashes_by_step else "no steps to compare"
    elif len(set(hashes_by_step)) == 1:
        comparison = f"the same in each of {len(hashes_by_step)} steps: cache hits"
    else:
        comparison = f"not the same in all of {len(hashes_by_step)} steps"
    hash_text = ", ".join(f"{graph_hash[:12]}…" for graph_hash in distinct[:4])
    return Answer.fired(f"{format_count(len(distinct), 'graph')} ({hash_text}), {comparison}", graph_calls.row)


_NO_EAGER = (
    "no eager recording of this program lies beside this one: record the same command without torch.compile, in the "
    "same folder"
)
_COMPARE = "compare the two recordings: diff shows each op, each part of a step, and what may be chance"
_NUMBER = re.compile(r"\d+")


@register_notice(
    "Compiled beside eager",
    meaning="torch.compile joins ops, but a launch goes only with the kernel, copy or fill that it launched: both "
    "recordings say what became of a step",
    action=_COMPARE,
    decided="Another recording of the same program lies beside this one and is eager: recorded by run with the same "
    "command but for words about compilation, else a file of the folder whose name differs in such words alone; with "
    "the same GPU and annotations, no compiled code and no graph replays. Both are measured over their steady steps, "
    "as in diff.",
)
def beside_eager(view: ScopeView) -> Answer:
    tables = view.tables
    evidence = view.match_names(COMPILED_REGION_REGEX).row
    if not len(evidence):
        return Answer.absent("nothing was compiled")
    here, eager = tables.compute_once(measure_step_work), tables.compute_once(find_eager_tables)
    if here is None:
        return Answer.cannot_tell(view.missing_steps_reason())
    there = None if eager is None else measure_step_work(eager)
    if eager is None or there is None or tables.trace.same_program is None:
        return Answer.cannot_tell(_NO_EAGER)
    compared = ("kernels", there.kernels, here.kernels), ("copies and fills", there.moves, here.moves)
    counts = [f"{what} {format_per_step(a)} → {format_per_step(b)}" for what, a, b in compared if a or b]
    if there.launches or here.launches:
        unchanged = " (not down by half)" if there.launches == here.launches else ""
        counts.insert(0, describe_launches(there.launches, here.launches) + unchanged)
    times = f"{format_duration(there.time)} → {format_duration(here.time)}"
    names = eager.trace.label, tables.trace.same_program.spec
    diff = f"diff {' '.join(shlex.quote(clean(name)) for name in names)}"
    seen = f"{'; '.join([*counts, f'a step {times}'])} ({diff})"
    return Answer.fired(seen, evidence, 0, Remedy(_COMPARE, f"torchprof-tui {diff}"))


def find_eager_tables(tables: TraceTables) -> TraceTables | None:
    """Find the eager recording of the same program beside a trace, and build its tables; None without one."""
    same_program = tables.trace.same_program
    for other in () if same_program is None else same_program.open_traces():
        found = TraceTables(other)
        is_eager = not found.practices.uses_compile and not found.practices.uses_cuda_graphs
        if is_eager and _list_gpus(other) == _list_gpus(tables.trace) and _list_ranges(found) <= _list_ranges(tables):
            return found
    return None


def _list_gpus(trace: Trace) -> set[str]:
    return {device.name for device in trace.metadata.devices}


def _list_ranges(tables: TraceTables) -> set[str]:
    """List the names of the annotations of the main program; numbers in them change from run to run."""
    names = {tables.trace.names[number] for number in sorted_unique(tables.annotations.name).tolist()}
    return {_NUMBER.sub("0", name) for name in names}


@register_pattern(
    "Guards and wrappers of compiled code take CPU time",
    meaning="guards and wrappers run in every call, and this call has too little work to outweigh them",
    action="compile larger regions, leave tiny work eager, and measure CUDA graphs before you use them",
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
    summary = (
        f"guards and wrappers take {format_duration(overhead.total)}, {format_percent(share)} of the steps' CPU time"
    )
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
    variants = _find_variants(tables, regions)
    recompiled_frames = {frame: rows for frame, rows in variants.items() if len(rows) > 1}
    steps = tables.steps
    after_first_step = np.zeros(len(compile_work), dtype=np.bool_)
    if len(steps) > 1:
        after_first_step = (compile_work.start >= steps.start[1]) & (steps.index_at(compile_work.start) >= 0)
    numbers = [_COMPILE_ID.search(tables.name(int(row))) for row in compile_work.row]
    is_recompilation = np.array([match is not None and int(match[2]) > 0 for match in numbers], dtype=np.bool_)
    compile_events = compile_work.select(after_first_step | is_recompilation)
    if not recompiled_frames and not len(compile_events):
        if not variants and len(regions) and not len(compile_work):
            return Answer.cannot_tell("regions carry no numbers before torch 2.6, and no compile work was recorded")
        return Answer.absent("each region kept its number")
    compile_time, parts = view.covered_time(compile_events), []
    for frame, first_rows in sorted(recompiled_frames.items()):
        numbers_text = ", ".join(map(str, sorted(first_rows)[:8])) + (" …" if len(first_rows) > 8 else "")
        parts.append(f"function {frame} ran in {len(first_rows)} compiled versions (M = {numbers_text})")
    if len(compile_events):
        parts.append(f"compile work took {format_duration(compile_time)}")
    first_regions = [row for first_rows in recompiled_frames.values() for row in first_rows.values()]
    compiling = compile_events.row[:1] if recompiled_frames else compile_events.row
    evidence = np.sort(np.concatenate([np.array(first_regions, dtype=np.int64), compiling]))
    return Answer.fired("; ".join(parts), evidence, compile_time, spans=compile_events.intervals)


def _find_variants(tables: TraceTables, regions: EventTable) -> dict[str, dict[int, int]]:
    """Find the compiled versions of each function: K -> M -> the row of its first region."""
    variants: dict[str, dict[int, int]] = {}
    for row in regions.row.tolist():
        if match := _REGION_ID.match(tables.name(row)):
            variants.setdefault(match[1], {}).setdefault(int(match[2]), row)
    return variants


_READ_REGEX = r"aten::(item|is_nonzero)$"


@register_fault(
    "Compiled code runs in pieces: graph breaks",
    meaning="Python runs between the pieces that the compiler could not join, and nothing is fused across",
    action="find the breaks with TORCH_LOGS=graph_breaks, and compile the function whole (fullgraph=True names them)",
    code="model = torch.compile(model, fullgraph=True)",
    decided="Compiled regions inside other ones: what is left of a function after a break is called from its first "
    "piece. At stake: the time of the outermost of them outside compiled graphs, where the GPU is idle; of pieces that "
    "launch at most as many kernels as the threshold, all but the last.",
    thresholds=(thresholds.SMALL_PIECE,),
    needs=(ScopeView.missing_ops_reason,),
)
def graph_breaks(view: ScopeView) -> Answer:
    tables = view.tables
    regions = tables.match_names(COMPILED_REGION_REGEX)
    owners = tables.outermost_ancestor(regions.row, tables.mark_rows(regions.row))
    whole = view.select_in_scope(tables.event_table(sorted_unique(owners[owners >= 0])))
    is_whole = tables.mark_rows(whole.row)
    graphs, reads, lookups = (
        table.select(tables.outermost_ancestor(table.row, is_whole) >= 0)
        for table in map(tables.match_names, (COMPILED_GRAPH_REGEX, _READ_REGEX, CACHE_LOOKUP_REGEX))
    )
    if not len(whole) or len(graphs) < 2:
        return Answer.absent()
    kernels = len(find_launched_work(tables, view.work, graphs.row))
    is_small = kernels <= thresholds.SMALL_PIECE.value * len(graphs)
    pieces = graphs.row if is_small else graphs.row[:0]
    last = graphs.row[np.append(np.diff(tables.outermost_ancestor(graphs.row, is_whole)) != 0, True)]
    rows = np.sort(np.concatenate([pieces[~is_in(pieces, last)], reads.row, lookups.row]))
    rows = view.select_in_scope(tables.event_table(rows)).row
    if not len(rows):
        return Answer.absent()
    seen = f"{format_count(len(graphs), 'piece')} of {format_count(len(whole), 'call')}"
    seen += f", {format_count(kernels, 'kernel')}, {format_count(len(reads), 'value')} read between them"
    remedy = _SELECT if 2 * len(reads) > len(whole) else None
    # What one graph takes in place of the pieces is not known, so that no saving is claimed.
    return answer_fault(view, rows, seen, remedy, kept=rows, beside=whole.intervals - graphs.intervals)


_SELECT = Remedy(
    "the graph breaks where Python branches on a value of the GPU: select with torch.where or torch.cond instead",
    "x = torch.where(x.sum() > 0, a(x), b(x))  # instead of if x.sum() > 0",
)
