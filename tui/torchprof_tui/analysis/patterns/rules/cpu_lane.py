"""Section "CPU lane": cold starts, how kernels are launched, waits and copies that nobody asked for."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.nearest_ancestors import nearest_ancestor, outermost_ancestor
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Section,
    Severity,
    absent_answer,
    cannot_tell_answer,
    fired_answer,
)
from torchprof_tui.analysis.patterns.engine.registry import register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import (
    NO_CALLS,
    NO_CPU,
    NO_GPU,
    NO_LINKS,
    NO_STEPS,
    ScopeView,
    format_count,
    format_percent,
    us,
)
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.event_kind import Kind

OCCUPANCY_QUERY_REGEX = r"(cuda|cu|hip)(Module)?Occupancy"
DEVICE_COPY_REGEX = r"Memcpy (DtoD|D2D)|CopyDeviceToDevice|.*Device ?-> ?Device"
EXPLICIT_COPY_OPS = ("aten::copy_", "aten::clone", "aten::to", "aten::_foreach_copy_")
"""Ops by which a program asks for a copy."""


@register_pattern(
    "first-step-wide",
    Section.CPU_LANE,
    "The first step is much wider",
    meaning="a cold start: workspaces, library heuristics and lazy loading happen once",
    action="warm up before you measure, and let the profiler skip the first steps",
    code="schedule=torch.profiler.schedule(wait=1, warmup=2, active=3)",
    decided="The first recorded step against the median of all the others; the profiler's own work inside is left out.",
    thresholds=(limits.FIRST_STEP_RATIO, limits.MIN_OTHERS),
    severity=Severity.PROBLEM,
)
def first_step_wide(view: ScopeView) -> Answer:
    steps = view.tables.steps
    if not len(steps):
        return cannot_tell_answer(NO_STEPS)
    if len(steps) < 1 + limits.MIN_OTHERS.value:
        return cannot_tell_answer(
            f"{format_count(len(steps), 'step')} recorded: three are needed to know what is usual"
        )
    first = EventTable(steps.row[:1], steps.start[:1], steps.end[:1], np.zeros(1, np.int32))
    if not view.overlap_mask(first.start, first.end)[0]:
        return absent_answer("the first step is not in this range")
    taken = steps.end - steps.start
    mine = int(taken[0]) - view.tables.overhead_intervals.measure_between(int(steps.start[0]), int(steps.end[0]))
    usual = float(np.median(taken[1:]))
    if mine < limits.FIRST_STEP_RATIO.value * usual:
        return absent_answer(f"step #{steps.number[0]} took {us(mine)}, the others {us(usual)} (median)")
    if len(steps) <= 4:
        others = " and ".join(us(time) for time in taken[1:].tolist())
        words = f"the other {len(steps) - 1}: {others}"
    else:
        words = f"the other {len(steps) - 1}: {us(usual)} in the median"
    lost = min(int(mine - usual), view.covered_time(first))
    return fired_answer(
        f"step #{steps.number[0]} took {us(taken[0])}, {mine / usual:.1f}× as long as {words}", first.row, lost
    )


@register_pattern(
    "dead-window",
    Section.CPU_LANE,
    "A range begins with nothing",
    meaning="the same cold start from close by: something was set up before the first op could run",
    action="warm up; if it recurs, look at what runs between the range's start and its first op",
    decided="From an annotation's start to its first op or runtime call, against the median of that annotation's other "
    "instances; the profiler's own work is left out.",
    thresholds=(limits.DEAD_WINDOW_RATIO, limits.DEAD_WINDOW_MIN, limits.MIN_OTHERS),
    severity=Severity.PROBLEM,
    fires_on_absence=True,
)
def dead_window(view: ScopeView) -> Answer:
    facts = view.tables
    if not len(facts.annotations):
        return cannot_tell_answer("no annotation was recorded: mark ranges with record_function")
    if not len(facts.ops):
        return cannot_tell_answer(NO_CPU)
    table, gap = _measure_first_gaps(facts)
    counts = np.bincount(table.name) if len(table) else np.zeros(1, np.int64)
    if counts.max() < 1 + limits.MIN_OTHERS.value:
        return cannot_tell_answer("no annotation occurs three times with ops inside: nothing to compare with")
    dead, lost, usual = [], [], []
    for name in np.flatnonzero(counts >= 1 + limits.MIN_OTHERS.value).tolist():
        mine = np.flatnonzero(table.name == name)
        gaps = gap[mine]
        # Only the few that are long enough are compared with the rest.
        for k in np.flatnonzero(gaps >= limits.DEAD_WINDOW_MIN.value).tolist():
            median = float(np.median(np.delete(gaps, k)))
            if gaps[k] >= limits.DEAD_WINDOW_RATIO.value * median:
                dead.append(int(mine[k]))
                lost.append(int(gaps[k] - median))
                usual.append(median)
    chosen = table.select(np.array(dead, dtype=np.int64))
    opening = EventTable(chosen.row, chosen.start, chosen.start + gap[dead], chosen.name) if dead else chosen
    inside = view.overlap_mask(opening.start, opening.end)
    if not inside.any():
        return absent_answer()
    worst = int(np.where(inside, lost, -1).argmax())
    seen = (
        f"{facts.name(int(chosen.row[worst]))} has no op for its first {us(gap[dead[worst]])}; its other instances "
        f"begin after {us(usual[worst])}"
    )
    order = np.flatnonzero(inside)
    cut = opening.select(order)
    return fired_answer(seen, np.sort(cut.row), min(int(np.array(lost)[order].sum()), view.covered_time(cut)))


def _measure_first_gaps(facts: TraceTables) -> tuple[EventTable, I64]:
    """Annotations with an op or a call inside, and the ns from each one's start to the first of them."""
    trace, ranges = facts.trace, facts.annotations
    inner = facts.ops_and_calls.row
    place = inner.searchsorted(ranges.row)
    known = place < len(inner)
    first = inner[np.minimum(place, len(inner) - 1)]
    begins = np.asarray(trace.start[first])
    known &= (trace.lane[first] == trace.lane[ranges.row]) & (begins < ranges.end)
    table, begins = ranges.select(known), begins[known]
    profiler = facts.overhead_intervals
    return table, begins - table.start - (profiler.measure_before(begins) - profiler.measure_before(table.start))


def _find_occupancy_queries(view: ScopeView) -> tuple[Bool, EventTable]:
    """(bool[work]: launched after an occupancy query in the same op, the queries in the scope)."""
    facts = view.tables
    queries = facts.match_names(OCCUPANCY_QUERY_REGEX, Kind.RUNTIME)
    asked = np.zeros(len(view.work), dtype=np.bool_)
    by = nearest_ancestor(view.trace, queries.row) if len(queries) else np.empty(0, dtype=np.int64)
    if (by >= 0).any():
        order = np.lexsort((queries.start, by))
        order = order[by[order] >= 0]
        ops, first = np.unique(by[order], return_index=True)
        asked_at = queries.start[order][first]  # each op's first query
        inner, launch = view.inner_op, view.work.launch
        place = np.minimum(ops.searchsorted(inner), len(ops) - 1)
        begins = view.trace.start[np.maximum(launch, 0)]
        asked = (ops[place] == inner) & (launch >= 0) & (begins >= asked_at[place])
    return asked, view.select_in_scope(queries)


def _missing_launches_reason(view: ScopeView) -> str:
    if missing := view.missing_gpu_reason():
        return missing
    if not len(view.tables.calls):
        return NO_CALLS
    return "" if (view.work.launch >= 0).any() else NO_LINKS


@register_pattern(
    "adaptive-launch",
    Section.CPU_LANE,
    "The library sized this launch to the GPU",
    meaning="a heavyweight kernel: how many blocks fit on a multiprocessor was asked before it was launched",
    action="nothing: expect it for GEMMs, convolutions and reductions; the query costs a microsecond or so",
    decided="A runtime call that asks for occupancy (cudaOccupancy…, hipOccupancy…) before a launch in the same op.",
)
def adaptive_launch(view: ScopeView) -> Answer:
    if missing := _missing_launches_reason(view):
        return cannot_tell_answer(missing)
    asked, queries = _find_occupancy_queries(view)
    if not asked.any():
        return absent_answer()
    rows = view.work.events.select(asked)
    kernel = view.tables.short_name(int(rows.row[rows.duration.argmax()]))
    seen = f"{format_count(len(rows), 'launch', 'launches')} after an occupancy query, {kernel} among them"
    evidence = np.sort(np.concatenate([queries.row, rows.row]))
    return fired_answer(seen, evidence)


@register_pattern(
    "fixed-launch",
    Section.CPU_LANE,
    "Launched with a fixed shape",
    meaning="elementwise or reduction work with a light footprint, launched without asking",
    action="nothing: these are the kernels that fuse well, if there are many of them",
    decided="A launch without an occupancy query in its op, of a kernel whose name says elementwise, reduction, copy, "
    "softmax, norm or generated by Triton.",
    fires_on_absence=True,
)
def fixed_launch(view: ScopeView) -> Answer:
    if missing := _missing_launches_reason(view):
        return cannot_tell_answer(missing)
    asked, _ = _find_occupancy_queries(view)
    light = view.work.class_mask(
        KernelClass.ELEMENTWISE,
        KernelClass.REDUCTION,
        KernelClass.COPY,
        KernelClass.SOFTMAX,
        KernelClass.NORM,
        KernelClass.TRITON,
    )
    first = view.trace.links.work_first
    launch = np.maximum(view.work.launch, 0)
    alone = (view.work.launch >= 0) & (first[launch + 1] - first[launch] == 1)  # a graph's kernels have no launch each
    chosen = ~asked & light & alone & (view.work.kind == Kind.KERNEL)
    if not chosen.any():
        return absent_answer()
    rows = view.work.events.select(chosen)
    ops = view.outer_op[chosen]
    named = [view.tables.name(int(op)) for op in ops[ops >= 0][:1]]
    by = f", by {named[0]} for one" if named else ""
    return fired_answer(
        f"{format_count(len(rows), 'kernel')} of {len(view.work):,} launched without asking{by}", rows.row
    )


@register_pattern(
    "trailing-sync",
    Section.CPU_LANE,
    "A long wait ends the recording",
    meaning="the profiler waits for the GPU before it stops; it is not part of any step",
    action="nothing: leave it out when you add up times",
    decided="The last call that waits for the GPU, if nothing was launched after it and it began after the last step; "
    "beside its length, the GPU work that it covers.",
    severity=Severity.ARTEFACT,
    fires_on_absence=True,
)
def trailing_sync(view: ScopeView) -> Answer:
    facts = view.tables
    if not len(facts.calls):
        return cannot_tell_answer(NO_CALLS)
    if not len(facts.work):
        return cannot_tell_answer(NO_GPU)
    last = find_trailing_sync(view)
    if last < 0:
        return absent_answer("no wait follows the last step" if len(facts.steps) else "no wait follows the last launch")
    sync = facts.event_table(np.array([last]))
    if not len(view.select_in_scope(sync)):
        return absent_answer("it is not in this range")
    taken = int(sync.duration[0])
    covers = covered_gpu_time(facts, sync)
    return fired_answer(
        f"{facts.name(last)} waits {us(taken)} after the last {'step' if len(facts.steps) else 'launch'} and covers "
        f"{us(covers)} of GPU work: {_format_idle_share(covers, taken)} idle",
        sync.row,
    )


def covered_gpu_time(facts: TraceTables, sync: EventTable) -> int:
    """ns of GPU work during a wait, of the device that had most."""
    t0, t1 = int(sync.start[0]), int(sync.end[0])
    return max((facts.busy_intervals(device).measure_between(t0, t1) for device in facts.devices), default=0)


def _format_idle_share(covers: int, taken: int) -> str:
    return format_percent(1 - covers / taken if taken else 0.0)


def find_trailing_sync_note(view: ScopeView) -> dict[int, str]:
    """What the wait that ends the recording covered, by its event; empty where none does."""
    facts = view.tables
    last = find_trailing_sync(view) if len(facts.calls) and len(facts.work) else -1
    if last < 0:
        return {}
    sync = facts.event_table(np.array([last]))
    covers = covered_gpu_time(facts, sync)
    return {last: f"covers {us(covers)} of GPU work: {_format_idle_share(covers, int(sync.duration[0]))} idle"}


def find_trailing_sync(view: ScopeView) -> int:
    """The event of the wait that ends the recording, -1 for none."""
    facts = view.tables
    syncs = facts.select_on_launch_lanes(view.gap_finder.sync_calls)
    if not len(syncs):
        return -1
    last = int(syncs.start.argmax())
    begins = int(syncs.start[last])
    launches = facts.work.launch[facts.work.launch >= 0]
    if len(launches) and int(view.trace.start[launches].max()) > begins:
        return -1
    if len(facts.steps) and begins < int(facts.steps.end[-1]):
        return -1
    return int(syncs.row[last])


@register_pattern(
    "hidden-copy",
    Section.CPU_LANE,
    "A copy on the GPU that you did not write",
    meaning="an op copied its input first: a bias that seeds addmm, an out-of-place op, a layout that had to change",
    action="look at the op that is named: its in-place variant, a contiguous input, or a fused op avoids the copy",
    code="scores.masked_fill_(mask, float('-inf'))  # in place: no clone",
    decided="A device-to-device copy, or a kernel that copies for aten::clone, whose outermost operator is not copy_, "
    "clone or to: another operator, or a library such as DDP's reducer, wanted it. Casts do not count, nor do copies "
    "that together take less than a hundredth of the time, busy or not.",
    thresholds=(limits.HIDDEN_COPY_SHARE,),
    severity=Severity.PROBLEM,
)
def hidden_copy(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason():
        return cannot_tell_answer(missing)
    memory = device_copy_mask(view)
    copies = np.flatnonzero(memory | _layout_copy_mask(view))
    if not len(copies):
        return absent_answer("no device-to-device copy")
    outer = outermost_ancestor(view.trace, np.maximum(view.work.launch[copies], 0), view.tables.is_operator_like)
    known = (view.work.launch[copies] >= 0) & (outer >= 0)
    if not known.any():
        return cannot_tell_answer("device-to-device copies ran, but no op is known to have launched them")
    copies, outer = copies[known], outer[known]
    names = np.array([view.tables.name(int(op)) not in EXPLICIT_COPY_OPS for op in outer])
    place, outer = copies[names], outer[names]
    if not len(place):
        return absent_answer("all device-to-device copies were asked for")
    rows = view.work.events.select(place)
    by = [view.tables.name(int(op)) for op in outer]
    who = max(sorted(set(by)), key=by.count)
    time = view.covered_time(rows)
    seen = (
        f"{who} copied {by.count(who)}×{view.format_per_step(by.count(who))}; hidden copies take {us(time)} on the GPU"
    )
    share = int(view.time_in_scope(rows).sum()) / max(view.device_time, 1)
    if share < limits.HIDDEN_COPY_SHARE.value:
        return absent_answer(f"{seen}, {format_percent(share)} of the time")
    return fired_answer(seen, rows.row, time)


def device_copy_mask(view: ScopeView) -> Bool:
    """bool[work]: copies within one device's memory."""
    work = view.work
    copy = work.kind == Kind.COPY
    rows = view.tables.filter_by_name(work.events.select(copy), _is_device_copy)
    found: Bool = copy & np.isin(work.events.row, rows.row)
    return found


def _layout_copy_mask(view: ScopeView) -> Bool:
    """bool[work]: kernels by which `aten::clone` copies, as for `.contiguous()` and `reshape`: a copy into another
    layout is a kernel, where one of dense memory is a Memcpy. Casts (`_to_copy`) call no clone."""
    facts, work = view.tables, view.work
    found: Bool = work.class_mask(KernelClass.COPY) & (work.kind == Kind.KERNEL) & (work.launch >= 0)
    place = np.flatnonzero(found)
    found[place] = outermost_ancestor(view.trace, work.launch[place], facts.is_clone) >= 0
    return found


def _is_device_copy(name: str) -> bool:
    return re.match(DEVICE_COPY_REGEX, name) is not None
