"""Compare an event and its chain over the steps: one row per step, with its gaps, launch latency and kernel time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.dispatch.chain import Chain, ChainFinder, HopRole, list_ancestors
from torchprof_tui.analysis.kernel.kernel_summary import DurationStatistics, compute_duration_statistics
from torchprof_tui.trace.core.arrays import I64, Bool, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.steps import Step, parse_step_name
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

MIN_STEPS = 3  # steps from which one can be called an outlier: of two that differ, neither is
MAX_STEPS = 1000  # steps compared: each needs a chain of its own, some tenths of a millisecond

OUTLIER_DEVIATIONS = 3 * 1.4826
"""Distance from the median in median absolute deviations: three standard deviations of a normal distribution."""

OUTLIER_SHARE = 0.5  # distance from the median by the median: where all others are equal, their deviation is 0
OUTLIER_MIN = 500  # distance from the median in ns: less is within what the clocks of CPU and GPU resolve
TYPICAL_SHARE = 0.1  # difference of mean and median by the median from which the mean is no typical value

VARIES_SHARE, VARIES_MIN = 0.15, 1_000
"""p95 − p5 of a kernel's time by the median, and in ns, from which it varies: as in the pattern `kernel-variance`."""

_DECODE, _PREFILL = re.compile(r"\bdecode\b", re.IGNORECASE), re.compile(r"\bprefill\b", re.IGNORECASE)

TIMES = ("first_op_gap", "op_gap", "dispatch", "launch_latency", "queue_delay", "kernel_time", "duration")
"""The measured attributes of a row."""


@record
class StepRow:
    """The event of one step and its chain; times in ns, None where the chain has no such part. Events are rows.

    `calls`: events of the name in the step; the one at the same position among them is compared. `annotation`: the
    innermost around the chain's first op, else the step. `first_op`: the op that begins first inside the annotation.
    `first_op_gap`: from the start of the annotation to that op. `op_gap`: the same to the chain's own first op.
    `dispatch`: from the start of that op to the start of the launch. `kernel`: the longest GPU work of the chain.
    `inputs`: what is known of the work's size: the kind of step, the input shapes of the innermost op, the grid.
    """

    step: Step
    event: int
    calls: int
    duration: int
    annotation: str
    first_op: str
    first_op_gap: int | None
    op_gap: int | None
    dispatch: int | None
    launch_latency: int | None
    queue_delay: int | None
    kernel: str
    kernel_time: int | None
    inputs: str
    has_shapes: bool


@record
class StepRows:
    """The rows of all steps in which the event occurs, by time; see `compare_steps`.

    `statistics` by the name of a measured attribute, where at least one row has it; `outliers`: (index of the row,
    attribute). `missing`: steps without such an event. `selected`: index of the row of the event that was asked for.
    `explanation`: what the kernel's time varies with, "" where it does not vary.
    """

    rows: tuple[StepRow, ...]
    statistics: dict[str, DurationStatistics]
    outliers: frozenset[tuple[int, str]]
    missing: tuple[Step, ...]
    selected: int
    explanation: str

    def describe_spread(self, attribute: str) -> str:
        """Describe how a time is distributed: "mean 1.08 ms, typical 580 µs" where the mean is not typical."""
        found = self.statistics.get(attribute)
        if found is None:
            return ""
        if abs(found.mean - found.median) > TYPICAL_SHARE * found.median:
            return f"mean {format_duration(found.mean)}, typical {format_duration(found.median)}"
        return f"mean {format_duration(found.mean)}"


def compare_steps(trace: Trace, event: int) -> StepRows | None:
    """Compare the chain of an event over the steps of a trace of one process. None where it is in no step.

    An event corresponds to those of its name and kind at the same position in the other steps, a step to all steps.
    GPU work counts for the step in which it was launched. Input shapes are read from the file, and only where the
    kernel's time varies.
    """
    steps = trace.steps
    own_events = np.array([step.event for step in steps], np.int64)
    is_step = event in own_events  # each has a name of its own
    rows = (
        own_events if is_step else np.flatnonzero((trace.name == trace.name[event]) & (trace.kind == trace.kind[event]))
    )
    times = np.asarray(trace.start[rows]).copy()
    launch = trace.links.launch_of[rows]
    times[launch >= 0] = trace.start[launch[launch >= 0]]
    rows = rows[np.argsort(times, kind="stable")]
    times = np.sort(times)
    occurrences = [
        rows[np.searchsorted(times, step.start) : np.searchsorted(times, step.start + max(step.duration, 1))]
        for step in steps
    ]
    place = next(((index, found) for index, found in enumerate(occurrences) if event in found), None)
    if place is None:
        return None
    position = int(np.flatnonzero(place[1] == event)[0])
    first = max(0, min(place[0] - MAX_STEPS // 2, len(steps) - MAX_STEPS))
    compared = range(first, min(first + MAX_STEPS, len(steps)))
    finder = ChainFinder(trace)
    present = {
        index: finder.find_chain(int(occurrences[index][position]))
        for index in compared
        if position < len(occurrences[index])
    }
    found = tuple(_measure_row(trace, steps[index], chain, len(occurrences[index])) for index, chain in present.items())
    statistics, outliers = _summarize(found)
    varies = _varies(statistics.get("kernel_time"))
    if varies:
        found = _add_shapes(trace, found, list(present.values()))
    return StepRows(
        rows=found,
        statistics=statistics,
        outliers=outliers,
        missing=tuple(steps[index] for index in compared if index not in present),
        selected=list(present).index(place[0]),
        explanation=_explain_variation(found) if varies else "",
    )


def _add_shapes(trace: Trace, rows: tuple[StepRow, ...], chains: list[Chain]) -> tuple[StepRow, ...]:
    """Add the recorded input shapes of each chain's innermost op, which decide what its kernel does."""
    ops = [
        next((hop.event for hop in reversed(chain.hops) if int(trace.kind[hop.event]) == Kind.OP), -1)
        for chain in chains
    ]
    known = sorted_unique(np.array([op for op in ops if op >= 0], np.int64))
    shapes: dict[int, str] = {}
    with suppress(OSError, LookupError, RecursionError):  # gone, or too deep: then no shapes are known
        for index, entry in read_entries(trace, known):
            args = entry.get("args")
            dims = args.get("Input Dims") if isinstance(args, dict) else None
            if dims:
                shapes[int(known[index])] = str(dims)
    return tuple(
        replace(row, inputs=" · ".join(filter(None, (row.inputs, shapes[op]))), has_shapes=True)
        if op in shapes
        else row
        for row, op in zip(rows, ops, strict=True)
    )


def _measure_row(trace: Trace, step: Step, chain: Chain, calls: int) -> StepRow:
    ops = [hop for hop in chain.hops if hop.role is HopRole.OP]
    launches = [hop for hop in chain.hops if hop.role is HopRole.LAUNCH]
    own_op = ops[0].event if ops else -1
    ancestors = list_ancestors(trace, own_op) if own_op >= 0 else []
    around = next((each for each in ancestors if int(trace.kind[each]) == Kind.ANNOTATION), step.event)
    first_op = _find_first_op(trace, around, own_op)
    work = chain.work[0] if chain.work else None
    return StepRow(
        step=step,
        event=chain.event,
        calls=calls,
        duration=int(trace.duration[chain.event]),
        annotation=trace.names[trace.name[around]],
        first_op=trace.names[trace.name[first_op]] if first_op >= 0 else "",
        first_op_gap=_measure_from(trace, around, first_op),
        op_gap=_measure_from(trace, around, own_op),
        dispatch=_measure_from(trace, own_op, launches[0].event) if own_op >= 0 and launches else None,
        launch_latency=chain.launch_latency,
        queue_delay=chain.queue_delay,
        kernel=trace.names[trace.name[work.event]] if work is not None else "",
        kernel_time=work.duration if work is not None else None,
        inputs=_describe_inputs(trace, step, chain),
        has_shapes=False,
    )


def _measure_from(trace: Trace, since: int, until: int) -> int | None:
    return int(trace.start[until]) - int(trace.start[since]) if until >= 0 else None


def _find_first_op(trace: Trace, around: int, own_op: int) -> int:
    """Find the op that begins first inside an annotation, on its thread; that of the chain on another thread."""
    if own_op < 0 or int(trace.lane[own_op]) != int(trace.lane[around]):
        return own_op
    between = np.arange(around + 1, own_op + 1)
    inside = between[np.asarray(trace.kind[between]) == Kind.OP]
    return int(inside[0]) if len(inside) else own_op


def _describe_inputs(trace: Trace, step: Step, chain: Chain) -> str:
    """Describe what decides how much a kernel does, as far as columns have it: kind of step, grid; "" for nothing."""
    parts = []
    around = [step.name, *(hop.name for hop in chain.hops if hop.role in (HopRole.STEP, HopRole.ANNOTATION))]
    served = next((served for name in around if (served := parse_step_name(name)) is not None), None)
    if served is not None:
        parts.append(served.kind.value)
    else:
        parts += [
            label for label, word in (("prefill", _PREFILL), ("decode", _DECODE)) if any(map(word.search, around))
        ]
    if chain.work and (column := trace.args.get("grid")) is not None:
        grid = column.get(chain.work[0].event)
        if grid is not None:
            parts.append(f"grid {'×'.join(str(int(size)) for size in np.atleast_1d(grid))}")
    return " · ".join(parts)


def _summarize(rows: Sequence[StepRow]) -> tuple[dict[str, DurationStatistics], frozenset[tuple[int, str]]]:
    statistics: dict[str, DurationStatistics] = {}
    outliers: set[tuple[int, str]] = set()
    for attribute in TIMES:
        places = [index for index, row in enumerate(rows) if getattr(row, attribute) is not None]
        if not places:
            continue
        values = np.array([getattr(rows[index], attribute) for index in places], np.int64)
        statistics[attribute] = compute_duration_statistics(values)
        if len(values) >= MIN_STEPS:
            outliers |= {(places[index], attribute) for index in np.flatnonzero(mark_outliers(values)).tolist()}
    return statistics, frozenset(outliers)


def mark_outliers(values: I64) -> Bool:
    """Mark values far from the median of all: bool[n]. Robust, so that an outlier does not hide itself or others."""
    median = float(np.median(values))
    distance = np.abs(values - median)
    deviation = float(np.median(distance))
    limit = max(OUTLIER_DEVIATIONS * deviation, OUTLIER_SHARE * abs(median), OUTLIER_MIN)
    marked: Bool = distance > limit
    return marked


def _varies(found: DurationStatistics | None) -> bool:
    """Return whether times spread by more than the GPU's clock and the profiler's resolution explain."""
    if found is None or found.count < MIN_STEPS:
        return False
    return found.p95 - found.p5 >= max(VARIES_SHARE * found.median, VARIES_MIN)


def _explain_variation(rows: Sequence[StepRow]) -> str:
    """Explain what a kernel's time varies with: its inputs first, then what a trace cannot show."""
    groups: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row.kernel_time is not None:
            groups.setdefault((row.kernel, row.inputs), []).append(row.kernel_time)
    if len(groups) > 1:
        what = "kernels" if len({kernel for kernel, _ in groups}) > 1 else "inputs"
        medians = sorted(float(np.median(times)) for times in groups.values())
        spread = f"{format_duration(medians[0])} to {format_duration(medians[-1])}"
        if not any(_varies(compute_duration_statistics(np.array(times))) for times in groups.values()):
            return f"the {what} of the steps differ, and the time with them: {spread}"
        return f"the {what} of the steps differ ({spread}), but the time varies where they are the same, too"
    if not any(row.has_shapes for row in rows):
        return (
            "no input shapes were recorded (record_shapes=True); if they are the same in all steps: clocks, heat, "
            "power, or other work on the GPU"
        )
    return "the inputs are the same in all steps: clocks, heat, power, or other work on the GPU"
