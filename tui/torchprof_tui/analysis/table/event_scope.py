"""Which events a table counts: those of a time, a step, a lane. Masks are bool[n] over the trace; `&` joins them."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Step, Trace


def range_mask(trace: Trace, t0: int, t1: int) -> Bool:
    """Events that begin between t0 and, not with, t1 (ns): so ranges side by side add up."""
    return (trace.start >= t0) & (trace.start < t1)


def lane_mask(trace: Trace, lane: int) -> Bool:
    """Events on one lane, by its number."""
    return np.asarray(trace.lane == lane)


def step_mask(trace: Trace, step: Step, request_times: I64 | None = None) -> Bool:
    """What was asked for during a step: GPU work that it launched counts, however late it ran."""
    when = compute_request_times(trace) if request_times is None else request_times
    return (when >= step.start) & (when < step.start + max(step.duration, 1))


def compute_request_times(trace: Trace) -> I64:
    """int64[n] ns: when the CPU asked for each event: of GPU work its launch, of an annotation's span the annotation.

    Its own start for everything else, and where neither was recorded.
    """
    when = np.array(trace.start)
    launched = np.flatnonzero(trace.links.launch_of >= 0)
    when[launched] = trace.start[trace.links.launch_of[launched]]
    ids = trace.args.get("external_id")
    if ids is None:
        return when
    value = ids.values.astype(np.int64)
    kind = trace.kind[ids.events]
    ranges = ((kind == Kind.ANNOTATION) | (kind == Kind.STEP)) & (value > 0)
    spans = (kind == Kind.GPU_ANNOTATION) & (value > 0)
    known, first = np.unique(value[ranges], return_index=True)
    if len(known):
        wanted = value[spans]
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        hit = known[place] == wanted
        when[ids.events[spans][hit]] = trace.start[ids.events[ranges][first[place[hit]]]]
    return when
