"""Find where a part of the step changed: the code and the ops whose time differs most between the two sides.

What takes most time on one side says nothing about a change: a place is chosen by how much its time differs.
A section is what the program marks with an annotation on its main thread, such as "forward" or "Optimizer.step": idle
time counts to all that are open there at that moment, whichever thread launches. So time that autograd's thread takes
belongs to "backward".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from torchprof_tui.analysis.compare.account import CPU, GPU_CLASS, IDLE, PartChange
from torchprof_tui.analysis.compare.op_tree import count_occurrences, group_keys
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.dispatch.frame_names import ANNOTATION, SourceLine, build_annotation_line
from torchprof_tui.analysis.dispatch.source_line import MAX_ARG_READS
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine.host_code_time import find_main_thread
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.largest_gaps import find_gap_line
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.rules.host_code import measure_cpu_work
from torchprof_tui.analysis.patterns.verdict.time_tree import divide_compute, list_copy_intervals
from torchprof_tui.analysis.patterns.verdict.tree_model import COPIES, EXPOSED
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union
from torchprof_tui.trace.core.arrays import I64, find_largest, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind

K = TypeVar("K", bound=Hashable)

MIN_SHARE = 0.5
"""Share of the part's change that a section must have to be named: with less, the change is not of one place."""

NESTED_SHARE = 0.9  # share of the largest change that a section inside that one must have to be named in its place
MAX_NAMES = 500  # annotations of more names than these are not sections of a step but numbered items


def find_changed_section(a: SideAnalysis, b: SideAnalysis, cause: IdleCause) -> str | None:
    """Find the section with most of the change of a cause's idle time; None where no section has most of it.

    Sections inside each other have about the same change: of those with nearly the largest one the innermost is
    returned, which is that with the least idle time.
    """
    total_a, of_a = _measure_sections(a, cause)
    total_b, of_b = _measure_sections(b, cause)
    change = total_b - total_a
    if not change:
        return None
    shares = {name: (of_b.get(name, 0.0) - of_a.get(name, 0.0)) / change for name in (*of_a, *of_b)}
    largest = max(shares.values(), default=0.0)
    candidates = [name for name, share in shares.items() if share >= max(MIN_SHARE, NESTED_SHARE * largest)]
    return min(candidates, key=lambda name: (max(of_a.get(name, 0.0), of_b.get(name, 0.0)), name), default=None)


def measure_gaps_in_section(view: ScopeView, cause: IdleCause, section: str | None) -> I64:
    """Measure the idle time of a cause in each gap of a view, or only in sections of this name, ns: int64[gaps]."""
    gaps = view.gaps
    time: I64 = gaps.time[:, cause]
    if section is None:
        return time
    sections, time = _find_sections(view), np.zeros_like(time)
    for device in sorted_unique(gaps.device).tolist():
        inside = view.gap_finder.list_cause_intervals(gaps, cause, device) & sections.get(section, NO_INTERVALS)
        of_device = gaps.device == device
        time[of_device] = inside.measure_within(gaps.start[of_device], gaps.end[of_device])
    return time


def _measure_sections(side: SideAnalysis, cause: IdleCause) -> tuple[float, dict[str, float]]:
    """Measure the idle time of a cause a step and device, ns: in all, and by name of the section."""
    view, gaps = side.view, side.view.gaps
    devices = sorted_unique(gaps.device).tolist()
    unit = side.side.step_count * max(len(devices), 1)
    idle = [view.gap_finder.list_cause_intervals(gaps, cause, device) for device in devices]
    return sum(each.total for each in idle) / unit, {
        name: sum(each.measure_overlap(intervals) for each in idle) / unit
        for name, intervals in _find_sections(view).items()
    }


def _find_sections(view: ScopeView) -> dict[str, Intervals]:
    """Find when the main thread was in annotations: name -> intervals; none where there are too many names."""
    main = find_main_thread(view)
    if main is None:
        return {}
    ranges = view.select_in_scope(view.tables.annotations)
    ranges = ranges.select((ranges.row >= main.first) & (ranges.row < main.last))
    names = sorted_unique(ranges.name).tolist()
    if len(names) > MAX_NAMES:
        return {}
    sections = {}
    for name in names:
        of_name = ranges.select(ranges.name == name)
        sections[view.trace.names[name]] = union(of_name.start, of_name.end)
    return sections


PLACE_SHARE = 0.25  # share of a part's change that a place or an op must have to be named beside a larger one
_MAX_NAMED = 2  # places and ops of one change that are named

_MAX_GROUPS = 512
"""Groups of like work whose lines are looked up, those with most time: each takes up to a quarter of a millisecond."""

_MAX_GAPS = 10  # gaps whose lines are looked up, the longest of those in question


@record
class NamedChange:
    """How much one place or op changed, B less A, ns of one step. `text`: as recorded, `clean` it."""

    text: str
    delta: float
    line: SourceLine | None = None


@record
class PlacesOfChange:
    """Where a part changed, the largest change first: `lines` of the program, `ops` by name. Empty where unknown."""

    lines: tuple[NamedChange, ...] = ()
    ops: tuple[NamedChange, ...] = ()


def find_places(a: SideAnalysis, b: SideAnalysis, part: PartChange) -> PlacesOfChange:
    """Find the lines and the ops by which a part changed, in the direction of its change."""
    if part.id.startswith(CPU) or not part.delta:
        return PlacesOfChange()
    cause = next((cause for cause in IdleCause if part.id == IDLE + cause.id), None)
    if cause is not None:
        line = _find_idle_line(a, b, cause, part.delta)
        ops = [_measure_idle_ops(side, cause) for side in (a, b)]
        place = () if line is None else (NamedChange(describe_line(line), float(part.delta), line),)
        return PlacesOfChange(place, _choose_ops(ops[0], ops[1], part.delta))
    groups = _group_work(a, part.id), _group_work(b, part.id)
    by_line = [_sum_by([line for _, line, _ in each], each) for each in groups]
    by_op = [_sum_by([op for op, _, _ in each], each) for each in groups]
    lines = _choose_largest(by_line[0], by_line[1], part.delta, describe_line)
    # The op of a collective is a record of torch's.
    return PlacesOfChange(lines, () if part.id == EXPOSED else _choose_ops(by_op[0], by_op[1], part.delta))


def describe_line(line: SourceLine) -> str:
    return f"the backward of {line.text}" if line.from_forward else line.text


def describe_lines(changes: Sequence[NamedChange]) -> str:
    """Describe the lines of a change; a line and its backward pass as one."""
    lines = [each.line for each in changes]
    if len(lines) == 2 and lines[0] and lines[1] and lines[0].text == lines[1].text:
        return f"{lines[0].text} and its backward"
    return " and ".join(each.text for each in changes)


def _choose_ops(a: Mapping[str | None, float], b: Mapping[str | None, float], delta: int) -> tuple[NamedChange, ...]:
    """Choose the ops that changed most; none where most of it is that other ops do the same work."""
    chosen = _choose_largest(a, b, delta, str)
    return chosen if abs(sum(each.delta for each in chosen)) <= (1 + PLACE_SHARE) * abs(delta) else ()


def _choose_largest(
    a: Mapping[K | None, float], b: Mapping[K | None, float], delta: float, describe: Callable[[K], str]
) -> tuple[NamedChange, ...]:
    """Choose what changed most, if that is most of `delta` and more than what nothing names. Keys: None for no name."""
    sign = 1.0 if delta > 0 else -1.0
    changes = {key: b.get(key, 0.0) - a.get(key, 0.0) for key in (*a, *b)}
    unnamed = sign * changes.pop(None, 0.0)
    largest = sorted(changes, key=lambda key: (-sign * changes[key], str(key)))[:_MAX_NAMED]
    chosen = [key for key in largest if sign * changes[key] >= PLACE_SHARE * abs(delta)]
    total = sum(sign * changes[key] for key in chosen)
    if total < MIN_SHARE * abs(delta) or total < unnamed:
        return ()
    return tuple(
        NamedChange(describe(key), changes[key], key if isinstance(key, SourceLine) else None)
        for key in chosen
        if key is not None
    )


_WorkGroup = tuple[str | None, SourceLine | None, float]
"""The op that launches GPU work, its line, and its time in ns of one step."""


def _sum_by(keys: Sequence[K | None], groups: Sequence[_WorkGroup]) -> dict[K | None, float]:
    sums: dict[K | None, float] = defaultdict(float)
    for key, group in zip(keys, groups, strict=True):
        sums[key] += group[2]
    return sums


def _group_work(side: SideAnalysis, part_id: str) -> list[_WorkGroup]:
    """Group the GPU work of a part by the place of its launch in a step."""
    view, tables, trace = side.view, side.checker.tables, side.trace
    time = measure_part_time(view, part_id)
    chosen = np.flatnonzero(time)
    if not len(chosen):
        return []
    rows, time = view.work.events.row[chosen], time[chosen]
    inner, outer = (each[view.work_in_scope][chosen] for each in tables.launching_ops)
    launch = view.work.launch[chosen].astype(np.int64)
    above = np.where(launch >= 0, trace.parent[np.maximum(launch, 0)], -1)
    names = [np.where(each >= 0, trace.name[np.maximum(each, 0)], -1) for each in (inner, outer, above)]
    # The same launch of each step is in one group, so that a line is looked up once.
    step = np.searchsorted(side.step_bounds, view.work.events.start[chosen], side="right")
    _, kind = group_keys(trace.name[rows], *names)
    order = np.lexsort((np.where(launch >= 0, launch, rows), step))
    occurrence = np.empty(len(rows), np.int64)
    occurrence[order] = count_occurrences(step[order], kind[order].astype(np.int32))
    first, group = group_keys(kind, occurrence)
    sums = np.bincount(group, weights=time) / (side.side.step_count * max(len(tables.devices), 1))
    ops = [trace.names[int(trace.name[event])] if event >= 0 else None for event in inner[first].tolist()]
    lines: list[SourceLine | None] = [None] * len(first)
    for rank, number in enumerate(find_largest(sums, _MAX_GROUPS).tolist()):
        line = tables.line_finder.find_line(int(rows[first[number]]), read_args=rank < MAX_ARG_READS)
        lines[number] = None if line is None else replace(line, library="")
    return list(zip(ops, lines, sums.tolist(), strict=True))


def measure_part_time(view: ScopeView, part_id: str) -> I64:
    """Measure the time of a part that belongs to each piece of GPU work, ns: int64[work]; it sums to the part."""
    work = view.work
    if part_id.startswith(GPU_CLASS):
        numbers = [int(number) for number in KernelClass if number.label == part_id.removeprefix(GPU_CLASS)]
        of_class: I64 = np.where(is_in(work.kernel_class, numbers), divide_compute(view), 0)
        return of_class
    time = np.zeros(len(work), dtype=np.int64)
    if part_id not in (COPIES, EXPOSED):
        return time
    kind, intervals = (
        (Kind.COPY, list_copy_intervals(view)) if part_id == COPIES else (Kind.COLLECTIVE, view.exposed_intervals)
    )
    for device, alone in intervals.items():
        index = np.flatnonzero((work.kind == kind) & (work.device == device))
        if len(index):  # where two overlap, the time belongs to the one that began first
            start, end = work.events.start[index], work.events.end[index]
            start = np.maximum(start, np.maximum.accumulate(np.concatenate([start[:1], end]))[:-1])
            time[index] = alone.measure_within(start, np.maximum(end, start))
    return time


def _measure_idle_ops(side: SideAnalysis, cause: IdleCause) -> dict[str | None, float]:
    """Measure the idle time of a cause by the outermost op that ran meanwhile: name -> ns of one step."""
    view = side.view
    if cause is IdleCause.CPU_COMPUTE:
        ops = view.compute_once(measure_cpu_work).ops
    elif cause in (IdleCause.DISPATCH, IdleCause.LAUNCH):
        found = view.select_in_scope(view.tables.launching_thread_ops)
        is_op = np.zeros(len(view.trace), dtype=np.bool_)
        is_op[found.row] = True
        ops = found.select(view.tables.innermost_ancestor(found.row, is_op) < 0)
    else:
        return {}
    time = np.zeros(len(ops), dtype=np.int64)
    devices = view.tables.devices
    for device in devices:
        idle = view.gap_finder.list_cause_intervals(view.gaps, cause, device)
        time += idle.measure_within(ops.start, ops.end)
    by_name = np.bincount(ops.name, weights=time, minlength=1) / (side.side.step_count * max(len(devices), 1))
    return {view.trace.names[name]: float(by_name[name]) for name in np.flatnonzero(by_name).tolist()}


def _find_idle_line(a: SideAnalysis, b: SideAnalysis, cause: IdleCause, delta: int) -> SourceLine | None:
    """Find the section in which idle time changed; with recorded stacks, the line of most of it there."""
    side = b if delta > 0 else a
    section = find_changed_section(a, b, cause)
    time = measure_gaps_in_section(side.view, cause, section)
    longest = np.argsort(-time, kind="stable")[:_MAX_GAPS]
    time_by_line: dict[SourceLine | None, int] = defaultdict(int)
    for gap in longest[time[longest] > 0].tolist():
        time_by_line[find_gap_line(side.view, gap)] += int(time[gap])
    gap_line = max(time_by_line, key=lambda line: time_by_line[line], default=None)
    if gap_line is not None and gap_line.kind != ANNOTATION:
        return gap_line
    return None if section is None else build_annotation_line(section)
