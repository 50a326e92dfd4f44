"""Select the events that a table counts, by time, step or lane. Masks are bool[n] over the trace; combine them with
`&`."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.errors import NotThereError
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import SparseColumn, Step, Trace


class NotRecordedError(NotThereError):
    """The trace lacks the requested data; the text says how to record it."""


def range_mask(trace: Trace, t0: int, t1: int) -> Bool:
    """Select events that start in [t0, t1) ns, so that adjacent ranges add up."""
    return (trace.start >= t0) & (trace.start < t1)


def lane_mask(trace: Trace, lane: int) -> Bool:
    """Select events on one lane, by its number."""
    return np.asarray(trace.lane == lane)


def step_mask(trace: Trace, step: Step, request_times: I64 | None = None) -> Bool:
    """Select events requested during a step: GPU work counts for the step that launched it, however late it ran."""
    times = compute_request_times(trace) if request_times is None else request_times
    return (times >= step.start) & (times < step.start + max(step.duration, 1))


def compute_request_times(trace: Trace) -> I64:
    """Compute when the CPU requested each event: int64[n] ns.

    For GPU work the start of its launch, for an annotation's span on the GPU the start of the annotation. The event's
    own start for all others, and where neither was recorded.
    """
    times = np.array(trace.start)
    launched = np.flatnonzero(trace.links.launch_of >= 0)
    times[launched] = trace.start[trace.links.launch_of[launched]]
    ids = trace.args.get("external_id")
    if ids is None:
        return times
    external_ids = ids.values.astype(np.int64)
    kind = trace.kind[ids.events]
    is_annotation = ((kind == Kind.ANNOTATION) | (kind == Kind.STEP)) & (external_ids > 0)
    is_span = (kind == Kind.GPU_ANNOTATION) & (external_ids > 0)
    annotation_ids, first_index = np.unique(external_ids[is_annotation], return_index=True)
    annotations = SparseColumn(annotation_ids, ids.events[is_annotation][first_index])
    annotation = annotations.values_at(external_ids[is_span]).astype(np.int64)
    times[ids.events[is_span][annotation >= 0]] = trace.start[annotation[annotation >= 0]]
    return times


def step_index_at(trace: Trace, times: I64) -> I32:
    """Return the index in `trace.steps` of the step that contains each time: int32[k]; -1 for none."""
    start = np.array([step.start for step in trace.steps], np.int64)
    end = np.array([step.start + max(step.duration, 1) for step in trace.steps], np.int64)
    index = np.searchsorted(start, times, side="right") - 1
    is_inside = (index >= 0) & (times < np.append(end, 0)[index])
    return np.where(is_inside, index, -1).astype(np.int32)
