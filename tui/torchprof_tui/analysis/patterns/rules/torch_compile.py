"""Section "torch.compile": compiled regions, and what being compiled costs on the CPU."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Section,
    Severity,
    absent_answer,
    cannot_tell_answer,
    fired_answer,
)
from torchprof_tui.analysis.patterns.engine.registry import register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import NO_STEPS, ScopeView, format_count, format_percent, us
from torchprof_tui.analysis.time.intervals import union

COMPILED_REGION_REGEX = r"Torch-Compiled Region"
CACHE_LOOKUP_REGEX = r"TorchDynamo Cache Lookup"
AOT_PROLOGUE_REGEX = r"AOTDispatcher Runtime Wrapper Prologue"
PREGRAPH_REGEX = r"Pregraph bytecode"
COMPILED_GRAPH_REGEX = r"## Call CompiledFxGraph "
COMPILE_WORK_REGEX = r".*\(dynamo_timed\)|_compile\.compile_inner|entire_frame_compile|.*compile_id=\d+/\d+"
"""Compile work itself: dynamo's timed phases, and the annotations that it leaves in the profile since 2.8."""

_REGION_ID = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)")
_COMPILE_ID = re.compile(r"compile_id=(\d+)/(\d+)")
_GRAPH_HASH = re.compile(r"## Call CompiledFxGraph (\S+) ##")


@register_pattern(
    "compiled-region",
    Section.COMPILE,
    "Compiled code",
    meaning="inside, Dynamo's bytecode runs; K/M is the frame and how many times it was recompiled",
    action="nothing: look inside for what was not captured",
    decided="Events called Torch-Compiled Region, with K/M since torch 2.6.",
)
def compiled_region(view: ScopeView) -> Answer:
    if missing := view.missing_ops_reason():
        return cannot_tell_answer(missing)
    rows = view.match_names(COMPILED_REGION_REGEX)
    if not len(rows):
        return absent_answer()
    kinds = sorted({view.tables.name(int(row)).removeprefix("Torch-Compiled Region").lstrip(": ") for row in rows.row})
    listed = ", ".join(kind or "without a number" for kind in kinds[:6]) + (" …" if len(kinds) > 6 else "")
    return fired_answer(f"{format_count(len(rows), 'call')}{view.format_per_step(len(rows))} of {listed}", rows.row)


def _check_total_time(view: ScopeView, name: str, what: str) -> Answer:
    """Fired where events of that name are; their time summed."""
    if missing := view.missing_ops_reason():
        return cannot_tell_answer(missing)
    rows = view.match_names(name)
    if not len(rows):
        return absent_answer()
    time = view.covered_time(rows)
    return fired_answer(f"{format_count(len(rows), what)}{view.format_per_step(len(rows))}: {us(time)}", rows.row, time)


@register_pattern(
    "cache-lookup",
    Section.COMPILE,
    "Guards are checked on every call",
    meaning="Dynamo looks for compiled code whose guards hold: a price per call, small beside real work",
    action="fewer, larger compiled regions; then fewer graph breaks",
    decided="Events called TorchDynamo Cache Lookup; their time is summed.",
)
def cache_lookup(view: ScopeView) -> Answer:
    return _check_total_time(view, CACHE_LOOKUP_REGEX, "lookup")


@register_pattern(
    "aot-prologue",
    Section.COMPILE,
    "AOTAutograd's wrapper",
    meaning="it prepares the arguments of every compiled call, in inference as well",
    action="nothing: it is always there",
    decided="Events called AOTDispatcher Runtime Wrapper Prologue; their time is summed.",
)
def aot_prologue(view: ScopeView) -> Answer:
    return _check_total_time(view, AOT_PROLOGUE_REGEX, "prologue")


@register_pattern(
    "fxgraph-hash",
    Section.COMPILE,
    "Which compiled graph ran",
    meaning="the same hash in each step: the compiled code is found and reused",
    action="the generated code lies in Inductor's cache folder, under this hash",
    code="TORCH_LOGS=output_code python train.py",
    decided="The hashes in ## Call CompiledFxGraph <hash> ##, by step.",
)
def fxgraph_hash(view: ScopeView) -> Answer:
    if missing := view.missing_ops_reason():
        return cannot_tell_answer(missing)
    rows = view.match_names(COMPILED_GRAPH_REGEX)
    if not len(rows):
        return absent_answer()
    found = [_GRAPH_HASH.match(view.tables.name(int(row))) for row in rows.row]
    hashes = np.array([match[1] if match else "" for match in found])
    steps = view.tables.steps.index_at(rows.start)
    sets = [frozenset(hashes[steps == step].tolist()) for step in np.unique(steps[steps >= 0]).tolist()]
    distinct = sorted(set(hashes.tolist()))
    if len(sets) < 2:
        how = "in one step" if sets else "no steps to compare"
    elif len(set(sets)) == 1:
        how = f"the same in each of {len(sets)} steps: cache hits"
    else:
        how = f"not the same in all {len(sets)} steps"
    listed = ", ".join(f"{one[:12]}…" for one in distinct[:4])
    return fired_answer(f"{format_count(len(distinct), 'graph')} ({listed}), {how}", rows.row)


@register_pattern(
    "compile-tax",
    Section.COMPILE,
    "Compiled code costs CPU time of its own",
    meaning="guards and wrappers run on every call: expected for tiny work, it pays off over many ops",
    action="compile larger regions, or replay them as CUDA graphs; for tiny work stay eager",
    code='model = torch.compile(model, mode="reduce-overhead")',
    decided="Cache lookups, prologues, pregraph bytecode and the regions' own self time, over the steps' CPU time in "
    "the scope. (Against eager it can only be compared with a second trace.)",
    thresholds=(limits.WRAPPER_SHARE,),
    severity=Severity.PROBLEM,
    fires_on_absence=True,
)
def compile_tax(view: ScopeView) -> Answer:
    if missing := view.missing_ops_reason():
        return cannot_tell_answer(missing)
    facts = view.tables
    regions = view.match_names(COMPILED_REGION_REGEX)
    if not len(regions):
        return absent_answer("nothing was compiled")
    if not len(facts.steps):
        return cannot_tell_answer(NO_STEPS)
    if not len(facts.match_names(COMPILED_GRAPH_REGEX)):
        return cannot_tell_answer("this torch does not mark compiled graphs: wrappers and graph cannot be told apart")
    wrappers = view.match_names(rf"{CACHE_LOOKUP_REGEX}|{AOT_PROLOGUE_REGEX}|{PREGRAPH_REGEX}")
    graphs, whole = view.match_names(COMPILED_GRAPH_REGEX), union(regions.start, regions.end)
    # Ops between the graphs of a region (graph breaks are not in it) are work, not wrapping.
    inner = view.match_names(r"aten::")
    own = (whole - union(graphs.start, graphs.end)) - union(inner.start, inner.end)
    spent = own | union(wrappers.start, wrappers.end)
    compiling = view.match_names(COMPILE_WORK_REGEX)
    spent = view.clip((spent - union(compiling.start, compiling.end)) & union(facts.steps.start, facts.steps.end))
    steps = view.clip(union(facts.steps.start, facts.steps.end)).total
    share = spent.total / steps if steps else 0.0
    words = f"guards and wrappers take {us(spent.total)}, {format_percent(share)} of the steps"
    if share < limits.WRAPPER_SHARE.value:
        return absent_answer(words)
    return fired_answer(words, np.sort(np.concatenate([regions.row, wrappers.row])), spent.total)


@register_pattern(
    "recompiles",
    Section.BEYOND,
    "The same code is compiled again",
    meaning="shapes or other guarded values changed: each new one costs a compilation",
    action="mark what changes as dynamic, or keep it from changing (pad, bucket)",
    code="torch.compile(model, dynamic=True)  # or torch._dynamo.mark_dynamic(x, 0)",
    decided="One frame's region with several M in the scope; or compile work of a recompilation (M > 0), or any "
    "compile work after the first step. Time at stake: the compile work in the scope.",
    severity=Severity.PROBLEM,
)
def recompiles(view: ScopeView) -> Answer:
    if missing := view.missing_ops_reason():
        return cannot_tell_answer(missing)
    facts = view.tables
    regions, work = view.match_names(COMPILED_REGION_REGEX), view.match_names(COMPILE_WORK_REGEX)
    if not len(regions) and not len(work):
        return absent_answer("nothing was compiled")
    variants: dict[str, set[int]] = {}
    for row in regions.row.tolist():
        if match := _REGION_ID.match(facts.name(row)):
            variants.setdefault(match[1], set()).add(int(match[2]))
    again = {frame: ids for frame, ids in variants.items() if len(ids) > 1}
    steps = facts.steps
    late = np.zeros(len(work), dtype=np.bool_)
    if len(steps) > 1:
        late = (work.start >= steps.start[1]) & (steps.index_at(work.start) >= 0)
    recompiled = np.array([_is_recompilation(facts.name(int(row))) for row in work.row], dtype=np.bool_)
    chosen = work.select(late | recompiled)
    if not again and not len(chosen):
        if not variants and len(regions) and not len(work):
            return cannot_tell_answer("regions carry no numbers before torch 2.6, and no compile work was recorded")
        return absent_answer("each region kept its number")
    evidence = _select_variants(view, regions, again)
    time = view.covered_time(chosen)
    parts = [
        f"frame {frame} ran as {len(ids)} variants (M = {_format_numbers(ids)})" for frame, ids in sorted(again.items())
    ]
    if len(chosen):
        parts.append(f"compile work took {us(time)}")
    return fired_answer(
        "; ".join(parts), np.sort(np.concatenate([evidence.row, chosen.row[:1] if again else chosen.row])), time
    )


def _is_recompilation(name: str) -> bool:
    match = _COMPILE_ID.search(name)
    return match is not None and int(match[2]) > 0


def _select_variants(view: ScopeView, regions: EventTable, again: dict[str, set[int]]) -> EventTable:
    """The first region of each variant of the frames that have several."""
    seen: set[str] = set()
    keep = []
    for row in regions.row.tolist():
        name = view.tables.name(row)
        match = _REGION_ID.match(name)
        fresh = match is not None and match[1] in again and match[0] not in seen
        if match is not None and fresh:
            seen.add(match[0])
        keep.append(fresh)
    return regions.select(np.array(keep, dtype=np.bool_))


def _format_numbers(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)[:8])) + (" …" if len(numbers) > 8 else "")
