"""Section "torch.compile": compiled regions, and what being compiled costs on the CPU."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.event_tables import Rows
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Section, Weight, absent, cannot_tell, fired
from torchprof_tui.analysis.patterns.engine.registry import pattern
from torchprof_tui.analysis.patterns.engine.scope_view import NO_STEPS, View, percent, several, us
from torchprof_tui.analysis.time.intervals import union

REGION = r"Torch-Compiled Region"
LOOKUP = r"TorchDynamo Cache Lookup"
PROLOGUE = r"AOTDispatcher Runtime Wrapper Prologue"
PREGRAPH = r"Pregraph bytecode"
GRAPH = r"## Call CompiledFxGraph "
COMPILING = r".*\(dynamo_timed\)|_compile\.compile_inner|entire_frame_compile|.*compile_id=\d+/\d+"
"""Compile work itself: dynamo's timed phases, and the annotations that it leaves in the profile since 2.8."""

_REGION_ID = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)")
_COMPILE_ID = re.compile(r"compile_id=(\d+)/(\d+)")
_HASH = re.compile(r"## Call CompiledFxGraph (\S+) ##")


@pattern(
    "compiled-region",
    Section.COMPILE,
    "Compiled code",
    meaning="inside, Dynamo's bytecode runs; K/M is the frame and how many times it was recompiled",
    action="nothing: look inside for what was not captured",
    decided="Events called Torch-Compiled Region, with K/M since torch 2.6.",
)
def compiled_region(view: View) -> Answer:
    if missing := view.missing_ops():
        return cannot_tell(missing)
    rows = view.named(REGION)
    if not len(rows):
        return absent()
    kinds = sorted({view.facts.name(int(row)).removeprefix("Torch-Compiled Region").lstrip(": ") for row in rows.row})
    listed = ", ".join(kind or "without a number" for kind in kinds[:6]) + (" …" if len(kinds) > 6 else "")
    return fired(f"{several(len(rows), 'call')}{view.per_step(len(rows))} of {listed}", rows.row)


def _cost(view: View, name: str, what: str) -> Answer:
    """Fired where events of that name are; their time summed."""
    if missing := view.missing_ops():
        return cannot_tell(missing)
    rows = view.named(name)
    if not len(rows):
        return absent()
    time = view.covered(rows)
    return fired(f"{several(len(rows), what)}{view.per_step(len(rows))}: {us(time)}", rows.row, time)


@pattern(
    "cache-lookup",
    Section.COMPILE,
    "Guards are checked on every call",
    meaning="Dynamo looks for compiled code whose guards hold: a price per call, small beside real work",
    action="fewer, larger compiled regions; then fewer graph breaks",
    decided="Events called TorchDynamo Cache Lookup; their time is summed.",
)
def cache_lookup(view: View) -> Answer:
    return _cost(view, LOOKUP, "lookup")


@pattern(
    "aot-prologue",
    Section.COMPILE,
    "AOTAutograd's wrapper",
    meaning="it prepares the arguments of every compiled call, in inference as well",
    action="nothing: it is always there",
    decided="Events called AOTDispatcher Runtime Wrapper Prologue; their time is summed.",
)
def aot_prologue(view: View) -> Answer:
    return _cost(view, PROLOGUE, "prologue")


@pattern(
    "fxgraph-hash",
    Section.COMPILE,
    "Which compiled graph ran",
    meaning="the same hash in each step: the compiled code is found and reused",
    action="the generated code lies in Inductor's cache folder, under this hash",
    code="TORCH_LOGS=output_code python train.py",
    decided="The hashes in ## Call CompiledFxGraph <hash> ##, by step.",
)
def fxgraph_hash(view: View) -> Answer:
    if missing := view.missing_ops():
        return cannot_tell(missing)
    rows = view.named(GRAPH)
    if not len(rows):
        return absent()
    found = [_HASH.match(view.facts.name(int(row))) for row in rows.row]
    hashes = np.array([match[1] if match else "" for match in found])
    steps = view.facts.steps.of(rows.start)
    sets = [frozenset(hashes[steps == step].tolist()) for step in np.unique(steps[steps >= 0]).tolist()]
    distinct = sorted(set(hashes.tolist()))
    if len(sets) < 2:
        how = "in one step" if sets else "no steps to compare"
    elif len(set(sets)) == 1:
        how = f"the same in each of {len(sets)} steps: cache hits"
    else:
        how = f"not the same in all {len(sets)} steps"
    listed = ", ".join(f"{one[:12]}…" for one in distinct[:4])
    return fired(f"{several(len(distinct), 'graph')} ({listed}), {how}", rows.row)


@pattern(
    "compile-tax",
    Section.COMPILE,
    "Compiled code costs CPU time of its own",
    meaning="guards and wrappers run on every call: expected for tiny work, it pays off over many ops",
    action="compile larger regions, or replay them as CUDA graphs; for tiny work stay eager",
    code='model = torch.compile(model, mode="reduce-overhead")',
    decided="Cache lookups, prologues, pregraph bytecode and the regions' own self time, over the steps' CPU time in "
    "the scope. (Against eager it can only be compared with a second trace.)",
    thresholds=(limits.WRAPPER_SHARE,),
    weight=Weight.PROBLEM,
    by_absence=True,
)
def compile_tax(view: View) -> Answer:
    if missing := view.missing_ops():
        return cannot_tell(missing)
    facts = view.facts
    regions = view.named(REGION)
    if not len(regions):
        return absent("nothing was compiled")
    if not len(facts.steps):
        return cannot_tell(NO_STEPS)
    if not len(facts.named(GRAPH)):
        return cannot_tell("this torch does not mark compiled graphs: wrappers and graph cannot be told apart")
    wrappers = view.named(rf"{LOOKUP}|{PROLOGUE}|{PREGRAPH}")
    graphs, whole = view.named(GRAPH), union(regions.start, regions.end)
    # Ops between the graphs of a region (graph breaks are not in it) are work, not wrapping.
    inner = view.named(r"aten::")
    own = (whole - union(graphs.start, graphs.end)) - union(inner.start, inner.end)
    spent = own | union(wrappers.start, wrappers.end)
    compiling = view.named(COMPILING)
    spent = view.clip((spent - union(compiling.start, compiling.end)) & union(facts.steps.start, facts.steps.end))
    steps = view.clip(union(facts.steps.start, facts.steps.end)).total
    share = spent.total / steps if steps else 0.0
    words = f"guards and wrappers take {us(spent.total)}, {percent(share)} of the steps"
    if share < limits.WRAPPER_SHARE.value:
        return absent(words)
    return fired(words, np.sort(np.concatenate([regions.row, wrappers.row])), spent.total)


@pattern(
    "recompiles",
    Section.BEYOND,
    "The same code is compiled again",
    meaning="shapes or other guarded values changed: each new one costs a compilation",
    action="mark what changes as dynamic, or keep it from changing (pad, bucket)",
    code="torch.compile(model, dynamic=True)  # or torch._dynamo.mark_dynamic(x, 0)",
    decided="One frame's region with several M in the scope; or compile work of a recompilation (M > 0), or any "
    "compile work after the first step. Time at stake: the compile work in the scope.",
    weight=Weight.PROBLEM,
)
def recompiles(view: View) -> Answer:
    if missing := view.missing_ops():
        return cannot_tell(missing)
    facts = view.facts
    regions, work = view.named(REGION), view.named(COMPILING)
    if not len(regions) and not len(work):
        return absent("nothing was compiled")
    variants: dict[str, set[int]] = {}
    for row in regions.row.tolist():
        if match := _REGION_ID.match(facts.name(row)):
            variants.setdefault(match[1], set()).add(int(match[2]))
    again = {frame: ids for frame, ids in variants.items() if len(ids) > 1}
    steps = facts.steps
    late = np.zeros(len(work), dtype=np.bool_)
    if len(steps) > 1:
        late = (work.start >= steps.start[1]) & (steps.of(work.start) >= 0)
    recompiled = np.array([_is_recompilation(facts.name(int(row))) for row in work.row], dtype=np.bool_)
    chosen = work.where(late | recompiled)
    if not again and not len(chosen):
        if not variants and len(regions) and not len(work):
            return cannot_tell("regions carry no numbers before torch 2.6, and no compile work was recorded")
        return absent("each region kept its number")
    evidence = _variants_of(view, regions, again)
    time = view.covered(chosen)
    parts = [f"frame {frame} ran as {len(ids)} variants (M = {_listed(ids)})" for frame, ids in sorted(again.items())]
    if len(chosen):
        parts.append(f"compile work took {us(time)}")
    return fired(
        "; ".join(parts), np.sort(np.concatenate([evidence.row, chosen.row[:1] if again else chosen.row])), time
    )


def _is_recompilation(name: str) -> bool:
    match = _COMPILE_ID.search(name)
    return match is not None and int(match[2]) > 0


def _variants_of(view: View, regions: Rows, again: dict[str, set[int]]) -> Rows:
    """The first region of each variant of the frames that have several."""
    seen: set[str] = set()
    keep = []
    for row in regions.row.tolist():
        name = view.facts.name(row)
        match = _REGION_ID.match(name)
        fresh = match is not None and match[1] in again and match[0] not in seen
        if match is not None and fresh:
            seen.add(match[0])
        keep.append(fresh)
    return regions.where(np.array(keep, dtype=np.bool_))


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)[:8])) + (" …" if len(numbers) > 8 else "")
