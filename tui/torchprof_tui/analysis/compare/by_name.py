"""Count calls and sum their times by name, on both sides: the table of HolisticTraceAnalysis' TraceDiff.

The definitions are those of that tool: CPU rows are all calls of ops, annotations, steps, Python frames and the
runtime, with the time of what they call; GPU rows are kernels, copies and fills, which count for the step that launched
them. What happens between two steps is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from torchprof_tui.analysis.compare.op_tree import Side, select_events
from torchprof_tui.trace.core.arrays import I32, I64, Bool

Device = Literal["cpu", "gpu"]


@dataclass(frozen=True, slots=True)
class NameRow:
    """All calls of one name in the compared steps of either side; totals in ns, including nested calls."""

    name: str
    count_a: int
    count_b: int
    total_a: int
    total_b: int

    @property
    def count_change(self) -> str:
        """ "+" for more calls in B, "-" for fewer, "=" for as many."""
        difference = self.count_b - self.count_a
        return "+" if difference > 0 else "-" if difference < 0 else "="


def compare_by_name(a: Side, b: Side, device: Device) -> tuple[NameRow, ...]:
    """Compare two recordings by name; rows by name."""
    sums_a, sums_b = _sum_names(a, device), _sum_names(b, device)
    none = (0, 0)
    rows = []
    for name in sorted({*sums_a, *sums_b}):
        (count_a, total_a), (count_b, total_b) = sums_a.get(name, none), sums_b.get(name, none)
        rows.append(NameRow(name, count_a, count_b, total_a, total_b))
    return tuple(rows)


def _sum_names(side: Side, device: Device) -> dict[str, tuple[int, int]]:
    """Return (calls, ns) of each name."""
    trace = side.trace
    events = select_named(side, device)
    name, row = np.unique(trace.name[events], return_inverse=True)
    total = np.zeros(len(name), np.int64)
    np.add.at(total, row, trace.duration[events])
    counts = np.bincount(row, minlength=len(name)).tolist()
    names = [trace.names[index] for index in name.tolist()]
    return dict(zip(names, zip(counts, total.tolist(), strict=True), strict=True))


def select_named(side: Side, device: Device) -> I32:
    """Select the calls within the compared steps, not between them, or the GPU work that these launched."""
    trace, selected = side.trace, select_events(side)
    if device == "cpu":
        return selected.calls[_is_in_steps(side, trace.start[selected.calls])]
    launch = trace.links.launch_of[selected.work]
    return selected.work[_is_in_steps(side, trace.start[np.where(launch >= 0, launch, selected.work)])]


def _is_in_steps(side: Side, times: I64) -> Bool:
    """Test whether each time is within a compared step: bool[k]; without steps all are."""
    if not side.steps:
        return np.ones(len(times), np.bool_)
    starts = np.array([step.start for step in side.steps], np.int64)
    ends = starts + np.array([step.duration for step in side.steps], np.int64)
    index = np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)
    return (times >= starts[index]) & (times < ends[index])
