"""Build the sheet of repetitions: tokens or iterations one by one, and the time per layer."""

from __future__ import annotations

from collections import Counter

import numpy as np

from torchprof_tui.analysis.repetition.repetitions import Difference, Pattern, Repetitions
from torchprof_tui.analysis.serving.measure_steps import assign_steps, get_serving_steps
from torchprof_tui.analysis.serving.serving_steps import KINDS
from torchprof_tui.analysis.table.sheets import (
    CALLS_FIELD,
    NAME_FIELD,
    Field,
    PatternTotals,
    RepetitionTotals,
    Sheet,
    Unit,
)
from torchprof_tui.trace.core.arrays import I32, I64, U8
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace

MIN_KIND_SHARE = 0.8
"""Share of a repetition's kernels that steps of one kind must have launched: its bounds are found from the kernels."""

NO_KIND = 255


def find_kinds(trace: Trace, repetitions: Repetitions, pattern: Pattern) -> U8:
    """Find the kind of the serving steps that launched each repetition: uint8[r] index into KINDS, else NO_KIND."""
    kinds = np.full(len(pattern), NO_KIND, np.uint8)
    steps = get_serving_steps(trace)
    if not len(steps):
        return kinds
    events = repetitions.sequence.events
    launch = np.asarray(trace.links.launch_of[events])
    request = np.where(launch >= 0, launch, events)
    step = assign_steps(
        steps.start, steps.end, steps.lane, np.asarray(trace.lane[request]), np.asarray(trace.start[request])
    )
    kind_of_event = np.where(step >= 0, steps.kind[np.maximum(step, 0)], NO_KIND)
    for kind in range(len(KINDS)):
        before = np.concatenate([[0], np.cumsum(kind_of_event == kind)])
        share = (before[pattern.last] - before[pattern.first]) / (pattern.last - pattern.first)
        kinds[share >= MIN_KIND_SHARE] = kind
    return kinds


def name_kind(kind: int) -> str:
    return "" if kind == NO_KIND else KINDS[kind].value


REPETITION_FIELDS = (
    NAME_FIELD,
    CALLS_FIELD,
    Field("events", "kernels", Unit.COUNT),
    Field("total", "total", Unit.NS),
    Field("p50", "p50", Unit.NS),
    Field("p95", "p95", Unit.NS),
    Field("min", "min", Unit.NS),
    Field("max", "max", Unit.NS),
    Field("busy", "busy", Unit.SHARE),
    Field("start", "first at", Unit.NS),
    Field("differing", "differ", Unit.COUNT),
)
"""Columns: `events` are those of one (the median); `busy` is the share of its time in which they ran."""


_IN_A_ROW = " in a row"  # ends the names of rows that count the same place of several patterns around it
MAX_NUMBERS = 4  # repetitions that are named of those that differ


@record
class _Rows:
    """Rows of one pattern: `row` int64[r], the row of each repetition, from 0; `names` of the rows."""

    pattern: Pattern
    row: I64
    names: list[str]


def build_repetitions_sheet(trace: Trace, repetitions: Repetitions) -> Sheet:
    """Build the sheet: one row for each repetition that is gone through as a step and for those around it.

    What repeats within these has a row for each position (layer 0, layer 1, …) over all of them. Members of a row are
    the first events of its repetitions.
    """
    parts = [_choose_rows(repetitions, index) for index in range(len(repetitions.patterns))]
    names: list[str] = []
    for part in parts:  # rows of one repetition are named with what it is, such as `pattern 1 #0 prefill`
        is_single = not part.names[0].endswith(_IN_A_ROW)
        kinds = find_kinds(trace, repetitions, part.pattern).tolist() if is_single else [NO_KIND] * len(part.names)
        names += [f"{name} {name_kind(kind)}".rstrip() for name, kind in zip(part.names, kinds, strict=True)]
    columns: dict[str, list[str] | I64] = {"name": names}
    numbers = [_measure_rows(part) for part in parts]
    for key in [field.key for field in REPETITION_FIELDS[1:]]:
        columns[key] = np.concatenate([found[key] for found in numbers]) if numbers else np.empty(0, np.int64)
    events = [repetitions.sequence.events[part.pattern.first][np.argsort(part.row, kind="stable")] for part in parts]
    members: I32 = np.concatenate(events) if events else np.empty(0, np.int32)
    first = np.concatenate([[0], np.cumsum(columns["calls"])]).astype(np.int64)
    totals = measure_totals(trace, repetitions)
    fields = tuple(
        Field(field.key, repetitions.sequence.unit if field.key == "events" else field.title, field.unit)
        for field in REPETITION_FIELDS
    )
    lines = tuple(format_pattern(pattern, totals.unit) for pattern in totals.patterns)
    return Sheet("Repetitions", fields, dict(columns), members, first, lines, totals)


def find_row_repetitions(repetitions: Repetitions, row: int) -> tuple[Pattern, I64]:
    """Return the pattern of a row of the sheet, and which of its repetitions the row counts: int64[c]."""
    for index in range(len(repetitions.patterns)):
        part = _choose_rows(repetitions, index)
        if row < len(part.names):
            return part.pattern, np.flatnonzero(part.row == row)
        row -= len(part.names)
    raise IndexError(row)


def _choose_rows(repetitions: Repetitions, index: int) -> _Rows:
    pattern = repetitions.patterns[index]
    around_unit = repetitions.unit
    while around_unit >= 0 and around_unit != index:
        around_unit = repetitions.patterns[around_unit].parent
    if around_unit == index or pattern.parent < 0:
        row = np.arange(len(pattern))
        return _Rows(pattern, row, [f"pattern {pattern.label} #{number}" for number in range(len(pattern))])
    row = pattern.position.astype(np.int64)
    count = int(row.max()) + 1
    names = [f"pattern {pattern.label}, {number + 1} of {count}{_IN_A_ROW}" for number in range(count)]
    return _Rows(pattern, row, names)


def _measure_rows(part: _Rows) -> dict[str, I64]:
    """Measure each row; of rows that count one repetition all times are that one's."""
    pattern, count = part.pattern, len(part.names)
    calls = np.bincount(part.row, minlength=count)
    order = np.lexsort((pattern.duration, part.row))
    first = np.concatenate([[0], np.cumsum(calls)[:-1]])
    ordered = pattern.duration[order]
    total = np.add.reduceat(ordered, first)
    busy = np.add.reduceat(pattern.busy[order], first)
    lengths = (pattern.last - pattern.first)[np.lexsort((pattern.last - pattern.first, part.row))]
    return {
        "calls": calls,
        "events": lengths[first + calls // 2],
        "total": total,
        "p50": _quantile(ordered, first, calls, 0.5),
        "p95": _quantile(ordered, first, calls, 0.95),
        "min": ordered[first],
        "max": ordered[first + calls - 1],
        "busy": busy / np.maximum(total, 1),
        "start": np.minimum.reduceat(pattern.start[order], first),
        "differing": np.add.reduceat((pattern.variant != 0)[order].astype(np.int64), first),
    }


def _quantile(ordered: I64, first: I64, calls: I64, share: float) -> I64:
    """Return a quantile of each row, interpolated linearly as in numpy. `ordered`: ascending within each row."""
    place = (calls - 1) * share
    low = first + np.floor(place).astype(np.int64)
    high = first + np.ceil(place).astype(np.int64)
    values: I64 = np.round(ordered[low] + (ordered[high] - ordered[low]) * (place % 1)).astype(np.int64)
    return values


def measure_totals(trace: Trace, repetitions: Repetitions) -> RepetitionTotals:
    sequence = repetitions.sequence
    return RepetitionTotals(
        unit=sequence.unit,
        lane=trace.lanes[sequence.lane].label if sequence.lane >= 0 else "",
        events=len(sequence),
        patterns=tuple(
            PatternTotals(
                label=pattern.label,
                level=pattern.level,
                parent=None if pattern.parent < 0 else repetitions.patterns[pattern.parent].label,
                is_unit=index == repetitions.unit,
                repetitions=len(pattern),
                runs=pattern.runs,
                events=pattern.period,
                median=pattern.quantile(0.5),
                p95=pattern.quantile(0.95),
                shortest=int(pattern.duration.min()),
                longest=int(pattern.duration.max()),
                slowest=int(pattern.duration.argmax()),
                interval=float(np.median(pattern.interval)) if len(pattern.interval) else None,
                coverage=pattern.coverage,
                shown_start=int(pattern.start[pattern.shown]),
                differing=pattern.differing,
                kinds=tuple(
                    (name_kind(kind), count)
                    for kind, count in sorted(Counter(find_kinds(trace, repetitions, pattern).tolist()).items())
                    if kind != NO_KIND
                ),
                differing_numbers=tuple(np.flatnonzero(pattern.variant)[:MAX_NUMBERS].tolist()),
                differences=tuple((found.name, found.more, found.fewer) for found in pattern.differences),
            )
            for index, pattern in enumerate(repetitions.patterns)
        ),
    )


def format_difference(difference: Difference, count: int) -> str:
    """Format by which kernel how many of `count` repetitions differ from the one that stands for all."""
    parts = [
        f"{word} in {number}" for word, number in (("more", difference.more), ("fewer", difference.fewer)) if number
    ]
    return f"{' and '.join(parts)} of {count}: {difference.name}"


def format_pattern(pattern: PatternTotals, unit: str) -> str:
    """Format one line on a pattern: how often, how long, and how many differ from the one that stands for all."""
    count = f"{pattern.repetitions} × {pattern.events:,} {unit}"
    remarks = []
    if pattern.parent is not None:
        each = pattern.repetitions / pattern.runs
        places = "1 place" if pattern.runs == 1 else f"{pattern.runs:,} places"
        remarks.append(f"{each:.3g} in a row, at {places} in pattern {pattern.parent}")
    if pattern.kinds:
        remarks.append(", ".join(f"{number} {kind}" for kind, number in pattern.kinds))
    if remarks:
        count += f" ({'; '.join(remarks)})"
    every = "" if pattern.interval is None else f", one every {format_duration(pattern.interval)}"
    times = f"p50 {format_duration(pattern.median)}, p95 {format_duration(pattern.p95)}{every}"
    differing = f"{pattern.differing} differ" if pattern.differing else "all alike"
    if pattern.is_unit and 0 < pattern.differing <= len(pattern.differing_numbers):
        numbers = ", ".join(f"#{number}" for number in pattern.differing_numbers)
        differing = f"{pattern.differing} {'differs' if pattern.differing == 1 else 'differ'}: {numbers}"
    return f"{pattern.label}: {count}, {times}, {pattern.coverage:.0%} of the time; {differing}"
