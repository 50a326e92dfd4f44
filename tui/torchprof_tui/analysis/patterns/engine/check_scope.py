"""The scope of a check: the whole trace, a time range, a step, or the events of a selection."""

from __future__ import annotations

from collections.abc import Iterable

from torchprof_tui.analysis.completeness.data_loss import read_slice_metadata
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Step, Trace


@record
class Scope:
    """The half-open time range [t0, t1) in ns from the trace's first event, t1 > t0. `label` is shown on panels."""

    t0: int
    t1: int
    label: str
    is_whole_trace: bool = False

    @property
    def length(self) -> int:
        return self.t1 - self.t0


def whole_trace_scope(trace: Trace) -> Scope:
    """Return the scope from the trace's first event to its last end, at least 1 ns long."""
    first, last = trace.span
    return Scope(first, max(last, first + 1), trace.part or "whole trace", is_whole_trace=True)


def default_scope(trace: Trace) -> Scope:
    """Return the scope that is checked unless another is given: the whole trace, of a slice the requested range.

    A slice also holds what is linked to its range. A step that was emptied except for such events would look like one
    in which the GPU was idle.
    """
    slice_metadata = read_slice_metadata(trace)
    whole_trace = whole_trace_scope(trace)
    if slice_metadata is None or slice_metadata.slice_range is None:
        return whole_trace
    t0, t1 = max(slice_metadata.slice_range[0], whole_trace.t0), min(slice_metadata.slice_range[1], whole_trace.t1)
    return Scope(t0, t1, "range of the slice") if t1 > t0 else whole_trace


def range_scope(t0: int, t1: int) -> Scope:
    """Return the scope of a time range in ns. Raises ValueError for an empty range."""
    if t1 <= t0:
        raise ValueError(f"no time between {t0} and {t1} ns")
    return Scope(t0, t1, "range")


def step_scope(step: Step) -> Scope:
    """Return the scope of the time that the step took on the CPU."""
    return Scope(step.start, step.start + max(step.duration, 1), step.name)


def selection_scope(trace: Trace, events: Iterable[int]) -> Scope:
    """Return the scope from the first start to the last end of these events. Raises ValueError without events."""
    rows = list(events)
    if not rows:
        raise ValueError("no events")
    t0 = min(int(trace.start[row]) for row in rows)
    t1 = max(int(trace.start[row] + trace.duration[row]) for row in rows)
    return Scope(t0, max(t1, t0 + 1), "selection")
