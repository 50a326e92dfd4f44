"""Find the edges between the nodes of replayed graphs, which torch writes as flows from GPU work to GPU work.

torch 2.15's second CUDA backend ("cuspy"), where it records graph dependencies, writes one `ac2g` flow for each edge of
each replay, from the end of a node to the start of the one that waits for it (torch/profiler/_cuspy/trace.py). Flows of
that category from a thread are launches, which are known by their correlation.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.build.event_columns import EventColumns
from torchprof_tui.trace.build.event_kinds import is_gpu_work
from torchprof_tui.trace.build.launch_links import match_flows
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.raw_events import NO_TIME, RawEvents

_CATEGORIES = ("ac2g", "async_gpu")
_ROUNDING = 1
"""Times of a flow and of its work are rounded to ns on their own."""


def link_graph_nodes(events: RawEvents, columns: EventColumns, first: I64) -> tuple[I32, I32]:
    """Link GPU work with what waits for it in the same replay: int32[e] each, no pair twice.

    `first` int64[lanes + 1]: the bounds of each lane's events. Times of `events` are relative to the trace's origin.
    """
    nothing = np.zeros(0, np.int32), np.zeros(0, np.int32)
    wanted = [k for k, category in enumerate(events.categories) if category.lower() in _CATEGORIES]
    if not wanted:
        return nothing
    work = np.flatnonzero(is_gpu_work(columns.kind))
    lane_of_track = np.full(len(events.tracks), -1, np.int32)
    lane_of_track[events.track[columns.ordinal[work]]] = columns.lane[work]
    is_flow = np.isin(events.category, wanted) & (events.id >= 0) & (lane_of_track[events.track] >= 0)
    starts = np.flatnonzero(is_flow & (events.phase == ord("s")))
    if not len(starts):
        return nothing  # launches begin on threads
    ends = np.flatnonzero(is_flow & (events.phase == ord("f")))
    flows = np.concatenate([starts, ends])
    flows = flows[events.time[flows] != NO_TIME]
    begin, end = match_flows(events.id[flows], events.phase[flows] == ord("s"))
    times, lanes = events.time[flows], lane_of_track[events.track[flows]]
    is_work = np.zeros(len(columns.kind), np.bool_)
    is_work[work] = True
    before = _find_work_at(columns, first, is_work, lanes[begin], times[begin], at_end=True)
    after = _find_work_at(columns, first, is_work, lanes[end], times[end], at_end=False)
    found = (before >= 0) & (after >= 0) & (before != after)
    found &= columns.launch_of[before] == columns.launch_of[after]
    pairs = np.unique(np.column_stack([before[found], after[found]]), axis=0).astype(np.int32)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def _find_work_at(columns: EventColumns, first: I64, is_work: Bool, lanes: I32, times: I64, at_end: bool) -> I64:
    """Find the GPU work on each lane that starts or ends at each time: int64[k], -1 for none."""
    found = np.full(len(times), -1, np.int64)
    for lane in np.unique(lanes).tolist():
        rows = np.arange(first[lane], first[lane + 1])
        rows = rows[is_work[rows]]
        bounds = columns.start[rows] + (columns.duration[rows] if at_end else 0)
        order = np.argsort(bounds, kind="stable")
        chosen = np.flatnonzero(lanes == lane)
        place = np.searchsorted(bounds[order], times[chosen] - _ROUNDING)
        # Of two within the rounding the nearest: work that begins or ends one ns later is another.
        following = np.minimum(place + 1, len(rows) - 1)
        place = np.minimum(place, len(rows) - 1)
        distances = np.abs(bounds[order][np.stack([place, following])] - times[chosen])
        nearest = np.where(distances[1] < distances[0], following, place)
        is_near = distances.min(axis=0) <= _ROUNDING
        found[chosen[is_near]] = rows[order][nearest[is_near]]
    return found
