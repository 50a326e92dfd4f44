"""Where one rank's program stands still and the others' do not: a sleep, a read from a slow disk, a log line.

A late rank says that it is late, not why. All ranks run the same program, so the operators of a step come in the same
order on the thread that runs it; before each of them some time passes in which no thread of the process does anything
that was recorded. Where that time is longer on one rank, at the same operator, step after step, the program does
something there that the trace has no name for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.ranks import Rank, Ranks
from torchprof_tui.trace.model.trace import Step

MIN_STALL_NS = 500_000
"""ns. Python between two operators takes some tens of µs, a busy machine's scheduler some hundreds."""

MIN_STALL_STEPS = 2
"""What happened in one step only is an accident."""


@dataclass(frozen=True, slots=True)
class HostStall:
    """`rank` (a place) stands still before the operator of this name, `longer` ns (the median) than the others do, in
    `times` steps of `of`. `event`: the first such operator, numbered as in the rank's own trace."""

    rank_index: int
    operator: str
    excess: int
    step_count: int
    compared_steps: int
    event: int


@dataclass(frozen=True, slots=True)
class _StepOperators:
    """One rank's step: the outermost operators on its thread, and how long the process stood still before each."""

    names: tuple[str, ...]
    events: I64
    idle_before: I64


def find_host_stalls(ranks: Ranks) -> list[HostStall]:
    """Those in at least half of the steps that can be compared, longest first. Needs steps, on three ranks or more: of
    two nobody can say which one is as it should be."""
    if len(ranks) < 3:
        return []
    walked: dict[int, dict[int, _StepOperators]] = defaultdict(dict)
    for place, rank in enumerate(ranks.all):
        for number, one in _read_steps(rank).items():
            walked[number][place] = one
    found: dict[tuple[int, int, str], list[tuple[int, int]]] = defaultdict(list)
    compared = 0
    for step in walked.values():
        usual, count = Counter(one.names for one in step.values()).most_common(1)[0]
        if count < 3:
            continue
        compared += 1
        places = [place for place, one in step.items() if one.names == usual]
        still = np.stack([step[place].idle_before for place in places])
        longer = still - np.median(still, axis=0).astype(np.int64)
        for row, column in zip(*np.nonzero(longer >= MIN_STALL_NS), strict=True):
            place = places[int(row)]
            at = (place, int(column), usual[int(column)])
            found[at].append((int(longer[row, column]), int(step[place].events[column])))
    told = [
        HostStall(place, name, int(np.median([ns for ns, _ in times])), len(times), compared, min(e for _, e in times))
        for (place, _, name), times in found.items()
        if len(times) >= max(MIN_STALL_STEPS, compared / 2)
    ]
    return sorted(told, key=lambda each: -each.excess * each.step_count)


def _read_steps(rank: Rank) -> dict[int, _StepOperators]:
    """By the steps' numbers."""
    trace = rank.trace
    kind = np.asarray(trace.kind)
    rows = np.flatnonzero((kind == Kind.OP) | (kind == Kind.RUNTIME))
    worked = union(trace.start[rows], trace.start[rows] + trace.duration[rows])
    return {step.number: _read_step(rank, step, worked) for step in trace.steps}


def _read_step(rank: Rank, step: Step, worked: Intervals) -> _StepOperators:
    trace = rank.trace
    lane = trace.lanes[int(trace.lane[step.event])]
    first = lane.first + int(trace.start[lane.first : lane.last].searchsorted(step.start))
    last = lane.first + int(trace.start[lane.first : lane.last].searchsorted(step.start + step.duration))
    rows = np.arange(first, last)
    rows = rows[np.asarray(trace.kind[first:last]) == Kind.OP]
    start = np.asarray(trace.start[rows])
    end = start + trace.duration[rows]
    # Sorted by start, longest first: what lies in an operator before it ends before that one does.
    reach = np.maximum.accumulate(np.concatenate([[step.start], end]))
    outermost = end > reach[:-1] if len(rows) else np.zeros(0, np.bool_)
    rows, start, reach = rows[outermost], start[outermost], reach[:-1][outermost]
    still = np.maximum(start - reach, 0) - (
        worked.measure_before(np.maximum(start, reach)) - worked.measure_before(reach)
    )
    names = tuple(trace.names[code] for code in trace.name[rows].tolist())
    return _StepOperators(names, rows.astype(np.int64), still)
