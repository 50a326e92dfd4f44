"""Summary of one GPU event for the kernel panel: its footprint or transfer, and all instances of its name."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.footprint import Footprint, compute_footprint
from torchprof_tui.analysis.kernel.memory_transfer import Transfer, measure_transfer
from torchprof_tui.trace.core.arrays import I32, I64, Array, Bool, is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace


@record
class DurationStatistics:
    """Statistics of `count` durations in ns. Percentiles interpolate linearly, as in numpy."""

    count: int
    mean: float
    median: float
    p5: float
    p95: float
    shortest: int
    longest: int
    total: int


@record
class KernelInstances:
    """All k GPU events of one name, in time order. `selected_index`: index of the selected event.

    `same_shape` bool[k]: the instances with the same grid and block. Other shapes do other work, so their durations are
    no variation of this one's.
    """

    events: I32
    start: I64
    duration: I64
    same_shape: Bool
    selected_index: int
    statistics: DurationStatistics
    same_shape_statistics: DurationStatistics


def find_instances(trace: Trace, event: int) -> KernelInstances:
    """Find all GPU events with the name of this one, on any stream and device. Costs one pass over the GPU lanes.

    Raises ValueError if the event is no GPU work.
    """
    if trace.event(event).kind not in GPU_WORK:
        raise ValueError("not GPU work")
    kinds = np.array(sorted(GPU_WORK), dtype=trace.kind.dtype)
    parts = []
    for lane in trace.lanes:
        if lane.role is Role.STREAM:
            rows = slice(lane.first, lane.last)
            same = np.flatnonzero(trace.name[rows] == trace.name[event])
            parts.append((same[is_in(trace.kind[rows][same], kinds)] + lane.first).astype(np.int32))
    events = np.concatenate(parts) if parts else np.array([event], np.int32)
    events = events[np.argsort(trace.start[events], kind="stable")]
    shapes = np.hstack([_read_shapes(trace, "grid", events), _read_shapes(trace, "block", events)])
    selected = int(np.flatnonzero(events == event)[0])
    same_shape = (shapes == shapes[selected]).all(axis=1)
    duration = np.asarray(trace.duration[events])
    return KernelInstances(
        events=events,
        start=np.asarray(trace.start[events]),
        duration=duration,
        same_shape=same_shape,
        selected_index=selected,
        statistics=compute_duration_statistics(duration),
        same_shape_statistics=compute_duration_statistics(duration[same_shape]),
    )


def compute_duration_statistics(durations: I64) -> DurationStatistics:
    """Compute statistics of at least one duration (ns)."""
    low, middle, high = np.percentile(durations, (5, 50, 95))
    return DurationStatistics(
        count=len(durations),
        mean=float(durations.mean()),
        median=float(middle),
        p5=float(low),
        p95=float(high),
        shortest=int(durations.min()),
        longest=int(durations.max()),
        total=int(durations.sum()),
    )


def _read_shapes(trace: Trace, column: str, events: I32) -> Array:
    """Read the column's value of each event, else of the call that launched it, else -1: int64[k, 3]."""
    shapes = np.full((len(events), 3), -1, np.int64)
    sparse = trace.args.get(column)
    if sparse is None or not len(sparse.events):
        return shapes
    for owners in (trace.links.launch_of[events], events):  # the kernel's own value wins
        index = np.minimum(np.searchsorted(sparse.events, owners), len(sparse.events) - 1)
        hit = sparse.events[index] == owners
        shapes[hit] = sparse.values[index[hit]]
    return shapes


@record
class KernelSummary:
    """`footprint` for a kernel or collective, `transfer` for a copy or fill; the other is None.

    `wait`: of a collective, how much of it is the wait for the last rank; "" if that is not known.
    """

    event: int
    footprint: Footprint | None
    transfer: Transfer | None
    instances: KernelInstances
    wait: str = ""


def summarize_kernel(trace: Trace, event: int) -> KernelSummary | None:
    """Summarize a GPU event; None for any other event. Reads the event's args from the file."""
    if event < 0 or trace.event(event).kind not in GPU_WORK:
        return None
    footprint, transfer = compute_footprint(trace, event), measure_transfer(trace, event)
    return KernelSummary(event, footprint, transfer, find_instances(trace, event))
