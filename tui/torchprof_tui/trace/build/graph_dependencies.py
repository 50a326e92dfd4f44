"""Link the nodes of a replayed CUDA graph to the nodes that they waited for.

torch's cuspy backend (`CuspyConfig(enable_graph_dependencies=True)`) writes each dependency of a graph as a flow from
the end of one node to the start of the next, both of one replay. These flows have the category of launches, `ac2g`, and
ids from 2^40 on, far from all correlations (`torch/profiler/_cuspy/trace.py`).
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.build.event_columns import EventColumns
from torchprof_tui.trace.build.launch_links import find_flow_entries, match_flows
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.thread_tasks import find_indexes
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.raw_events import NO_TIME, RawEvents

FIRST_DEPENDENCY_ID = 1 << 40
"""Ids below are correlations: the flows of launches."""

_CATEGORY = "ac2g"


def link_graph_dependencies(events: RawEvents, columns: EventColumns) -> tuple[I32, I32]:
    """Find the pairs of GPU events of which the second waited for the first: int32[e] each, by the second one.

    Times of `events` are relative to the trace's origin. A flow that meets no event at its time is left out.
    """
    nothing = np.zeros(0, np.int32)
    if _CATEGORY not in events.categories:
        return nothing, nothing
    is_node = np.isin(np.arange(256), [*GPU_WORK, Kind.SYNC])
    nodes = find_indexes(lambda block: is_node[columns.kind[block]], len(columns)).astype(np.int64)
    flows = _select_flows(events, events.track[columns.ordinal[nodes]])
    if not len(flows):
        return nothing, nothing
    starts = events.phase[flows] == ord("s")
    begin, end = match_flows(events.id[flows], starts)
    track = events.track[columns.ordinal[nodes]]
    ends = columns.start[nodes] + columns.duration[nodes]
    source = _find_events(nodes, track, ends, events, flows[begin])
    target = _find_events(nodes, track, columns.start[nodes], events, flows[end])
    known = (source >= 0) & (target >= 0) & (source != target)
    source, target = source[known], target[known]
    order = np.lexsort((source, target))
    return source[order], target[order]


def _select_flows(events: RawEvents, gpu_tracks: I32) -> I64:
    """Select the flow entries of dependencies: on tracks with GPU events, where launches only end, and by their ids."""
    on_gpu: Bool = np.zeros(len(events.tracks), np.bool_)
    on_gpu[gpu_tracks] = True
    category = events.categories.index(_CATEGORY)
    flows = find_flow_entries(events)
    flows = flows[(events.category[flows] == category) & (events.id[flows] >= 0) & on_gpu[events.track[flows]]]
    flows = flows[(events.time[flows] != NO_TIME) & (events.phase[flows] != ord("t"))]
    starts = flows[events.phase[flows] == ord("s")]
    wanted = [code for code in np.unique(events.id[starts]).tolist() if _is_dependency(events.ids[code])]
    dependencies: I64 = flows[np.isin(events.id[flows], wanted)]
    return dependencies


def _is_dependency(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text[:19]) >= FIRST_DEPENDENCY_ID


def _find_events(nodes: I64, track: I32, time: I64, events: RawEvents, flows: I64) -> I32:
    """Find the event among `nodes`, at `track` and `time`, that each flow entry touches: int32[flows], -1 for none."""
    order = np.lexsort((time, track))
    keys = np.stack([track[order].astype(np.int64), time[order]], axis=1)
    wanted = np.stack([events.track[flows].astype(np.int64), events.time[flows]], axis=1)
    _, code = np.unique(np.concatenate([keys, wanted]), axis=0, return_inverse=True)
    code = code.ravel()
    event_of = np.full(int(code.max(initial=0)) + 1, -1, np.int32)
    event_of[code[: len(keys)][::-1]] = nodes[order][::-1]  # of several, the first
    found: I32 = event_of[code[len(keys) :]]
    return found
