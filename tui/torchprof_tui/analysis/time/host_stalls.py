"""Find host stalls: places where the program of one rank idles and the others do not (a sleep, slow disk, logging).

A late arrival does not show its cause. All ranks run the same program, so the operators of a step have the same order
on the thread that runs it. Before each operator there is some idle time, in which no thread of the process has a
recorded event. If that time is longer on one rank, at the same operator in step after step, the program does something
there that the trace does not record.

All ranks run the same program. A rank on a slow host (a busy node, a lower clock, a process on the wrong socket) takes
longer for nearly every op; one that stalls at one place (`host_stalls`) or has more work does not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from torchprof_tui.analysis.time.gpu_time import cover_events
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals
from torchprof_tui.trace.core.arrays import F64, I64
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.ranks import Ranks
from torchprof_tui.trace.model.trace import Trace

SYNC_CALL_REGEX = (
    r"(cuda|cu|hip|musa)(Stream|Device|Event|Ctx)Synchronize"
    r"|(cudaMemcpy|hipMemcpy|hipMemcpyWithStream|cuMemcpy(DtoH|HtoD)(_v2)?)$"
    r"|(AscendCL@)?aclrt(Synchronize|Memcpy$)|event_wait|ur(EventWait|QueueFinish)|zeEventHostSynchronize"
)
"""Calls that return only when the GPU has finished; copies without `Async` block as well."""


MIN_RUNS = 10  # runs of an op on each rank: fewer have no steady median
MIN_OPS = 10  # ops to compare: a handful does not describe a host
SLOWER_RATIO = 1.15  # from here on an op counts as slower than on the fastest rank


@record(slots=False)
class HostSpeed:
    """The speed of r hosts. `op_count`: the ops compared; 0 where they cannot be.

    `factor` float64[r]: median over the ops of an op's median duration over that on the fastest rank, which has 1.
    `slower_share` float64[r]: the share of ops that take at least `SLOWER_RATIO` times as long. `slowest_op_time`: when
    the slowest rank ran ops, on the common clock.
    """

    op_count: int
    factor: F64
    slower_share: F64
    fastest: int
    slowest: int
    slowest_op_time: Intervals

    @property
    def slowest_factor(self) -> float:
        return float(self.factor[self.slowest]) if self.op_count else 1.0


def compare_host_speed(ranks: Ranks) -> HostSpeed:
    """Compare the median durations of the ops that all ranks ran often enough."""
    medians = [_median_durations(rank.trace) for rank in ranks.all]
    common = sorted(set.intersection(*(set(of_rank) for of_rank in medians))) if medians else []
    if len(medians) < 2 or len(common) < MIN_OPS:
        return HostSpeed(0, np.ones(len(medians)), np.zeros(len(medians)), 0, 0, NO_INTERVALS)
    duration = np.array([[of_rank[name] for name in common] for of_rank in medians])  # [r, ops]
    to_best = np.median(duration / duration.min(axis=0), axis=1)
    fastest = int(to_best.argmin())
    ratio = duration / duration[fastest]
    factor = np.median(ratio, axis=1)
    slowest = int(factor.argmax())
    trace = ranks.all[slowest].trace
    rows = np.flatnonzero(np.asarray(trace.kind) == Kind.OP)
    return HostSpeed(
        op_count=len(common),
        factor=factor,
        slower_share=(ratio >= SLOWER_RATIO).mean(axis=1),
        fastest=fastest,
        slowest=slowest,
        slowest_op_time=cover_events(trace, rows),
    )


def _median_durations(trace: Trace) -> dict[str, float]:
    """Return the median duration (ns) of each `aten` op that ran often enough and takes any time, by name."""
    rows = np.flatnonzero(np.asarray(trace.kind) == Kind.OP)
    name, duration = np.asarray(trace.name[rows]), np.asarray(trace.duration[rows])
    order = np.lexsort((duration, name))
    name, duration = name[order], duration[order]
    names, first, count = np.unique(name, return_index=True, return_counts=True)
    median = (duration[first + (count - 1) // 2] + duration[first + count // 2]) / 2 if len(names) else duration
    return {
        trace.names[int(name_id)]: float(value)
        for name_id, value, runs in zip(names, median, count, strict=True)
        if runs >= MIN_RUNS and value > 0 and trace.names[int(name_id)].startswith("aten::")
    }


MIN_STALL_NS = 500_000
"""Minimum stall, ns. Python takes tens of µs between two operators, the scheduler of a busy machine hundreds."""

MIN_STALL_STEPS = 2  # a delay in a single step may be an accident


@record
class HostStall:
    """Idle time of one rank before an operator, compared with the other ranks.

    `excess`: ns above the median of all ranks, median over `step_count` of `compared_steps` steps. `event`: the first
    such operator, numbered as in the rank's own trace.
    """

    rank_index: int
    operator: str
    excess: int
    step_count: int
    compared_steps: int
    event: int

    @property
    def text(self) -> str:
        steps = f"{self.step_count} of {self.compared_steps} steps"
        often = "each step" if self.step_count == self.compared_steps else steps
        return f"pauses {format_duration(self.excess)} before {self.operator} in {often}"


class _StepOperators(NamedTuple):
    """One step of a rank: its k outermost operators, and the idle time (ns) of the process before each."""

    names: tuple[str, ...]
    events: I64
    idle_before: I64


def _read_steps(trace: Trace) -> dict[int, _StepOperators]:
    kind = np.asarray(trace.kind)
    busy = cover_events(trace, np.flatnonzero((kind == Kind.OP) | (kind == Kind.RUNTIME)))  # of any thread
    steps = {}
    for step in trace.profiler_steps:
        lane = trace.lanes[int(trace.lane[step.event])]
        bounds = trace.start[lane.first : lane.last].searchsorted([step.start, step.start + step.duration])
        rows = lane.first + np.arange(*bounds)
        rows = rows[kind[rows] == Kind.OP]
        start = np.asarray(trace.start[rows])
        end = start + trace.duration[rows]
        # Sorted by start, longest first: a nested operator ends no later than an operator before it.
        reach = np.maximum.accumulate(np.append(step.start, end))[:-1]
        outermost = end > reach
        rows, start, reach = rows[outermost], start[outermost], reach[outermost]
        busy_between = busy.measure_within(reach, np.maximum(start, reach))
        names = tuple(trace.names[code] for code in trace.name[rows].tolist())
        idle = np.maximum(start - reach, 0) - busy_between
        steps[step.number] = _StepOperators(names, rows.astype(np.int64), idle)
    return steps


def find_host_stalls(ranks: Ranks) -> list[HostStall]:
    """Find the stalls that occur in at least half of the comparable steps, largest total first.

    Needs steps on at least three ranks: with two it is undecidable which of them is normal.
    """
    if len(ranks) < 3:
        return []
    steps: dict[int, dict[int, _StepOperators]] = defaultdict(dict)  # by step number, then rank index
    for rank_index, rank in enumerate(ranks.all):
        for number, operators in _read_steps(rank.trace).items():
            steps[number][rank_index] = operators
    delays: dict[tuple[int, int, str], list[tuple[int, int]]] = defaultdict(list)  # of a rank's operator: (ns, event)
    compared = 0
    for step in steps.values():
        common_names, count = Counter(operators.names for operators in step.values()).most_common(1)[0]
        if count < 3:
            continue
        compared += 1
        rank_indices = [rank_index for rank_index, operators in step.items() if operators.names == common_names]
        idle = np.stack([step[rank_index].idle_before for rank_index in rank_indices])
        excess = idle - np.median(idle, axis=0).astype(np.int64)
        for row, column in zip(*np.nonzero(excess >= MIN_STALL_NS), strict=True):
            rank_index = rank_indices[int(row)]
            key = (rank_index, int(column), common_names[int(column)])
            delays[key].append((int(excess[row, column]), int(step[rank_index].events[column])))
    stalls = [
        HostStall(
            rank_index=rank_index,
            operator=name,
            excess=int(np.median([ns for ns, _ in operator_delays])),
            step_count=len(operator_delays),
            compared_steps=compared,
            event=min(event for _, event in operator_delays),
        )
        for (rank_index, _, name), operator_delays in delays.items()
        if len(operator_delays) >= max(MIN_STALL_STEPS, compared / 2)
    ]
    return sorted(stalls, key=lambda stall: -stall.excess * stall.step_count)
