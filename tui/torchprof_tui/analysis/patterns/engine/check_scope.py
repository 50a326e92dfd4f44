"""Where a check looks: the whole trace, a range of time, a step, or the events of a selection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchprof_tui.analysis.completeness.slice_metadata import read_slice_metadata
from torchprof_tui.trace.model.trace import Step, Trace


@dataclass(frozen=True, slots=True)
class Scope:
    """`t0` up to, not with, `t1`: ns from the trace's first event, t1 > t0. `label` is what a panel calls it."""

    t0: int
    t1: int
    label: str
    is_whole_trace: bool = False

    @property
    def length(self) -> int:
        return self.t1 - self.t0


def whole_trace_scope(trace: Trace) -> Scope:
    first, last = trace.span
    return Scope(first, max(last, first + 1), "whole trace", is_whole_trace=True)


def default_scope(trace: Trace) -> Scope:
    """All of it. Of a slice the range that was asked for: around it lies only what that is linked to, and a step that
    was emptied but for this looks like one in which the GPU was idle."""
    mine = read_slice_metadata(trace)
    everything = whole_trace_scope(trace)
    if mine is None or mine.slice_range is None:
        return everything
    t0, t1 = max(mine.slice_range[0], everything.t0), min(mine.slice_range[1], everything.t1)
    return Scope(t0, t1, "range of the slice") if t1 > t0 else everything


def range_scope(t0: int, t1: int) -> Scope:
    """Raises ValueError for an empty range."""
    if t1 <= t0:
        raise ValueError(f"no time between {t0} and {t1} ns")
    return Scope(t0, t1, "range")


def step_scope(step: Step) -> Scope:
    """The time that the step took on the CPU."""
    return Scope(step.start, step.start + max(step.duration, 1), step.name)


def selection_scope(trace: Trace, events: Iterable[int]) -> Scope:
    """From the first start to the last end: an event and its chain. Raises ValueError for no events."""
    rows = list(events)
    if not rows:
        raise ValueError("no events")
    t0 = min(int(trace.start[row]) for row in rows)
    t1 = max(int(trace.start[row] + trace.duration[row]) for row in rows)
    return Scope(t0, max(t1, t0 + 1), "selection")
