"""Link GPU work to the calls that launched it, and forward to backward ops.

Launches are joined by correlation, on Ascend, which records none, by flows; forward and backward by `fwdbwd` flows.

torch's cuspy backend (`CuspyConfig(enable_graph_dependencies=True)`) writes each dependency of a graph as a flow from
the end of one node to the start of the next, both of one replay. These flows have the category of launches, `ac2g`, and
ids from 2^40 on, far from all correlations (`torch/profiler/_cuspy/trace.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from torchprof_tui.trace.build.event_order import EventColumns, invert_order
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.column_file import ColumnAllocator, allocate_in_memory
from torchprof_tui.trace.core.thread_tasks import find_indexes, run_blocks, take_parallel
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.raw_events import NO_TIME, RawEvents

_TABLE_SLOTS_PER_EVENT = 16
"""Correlations are joined through a table while its size stays within this many slots an event."""

_FLOW_PHASES = (ord("s"), ord("t"), ord("f"))

_MAX_PARENT_STEPS = 1000  # parents followed to find the slice that encloses a flow; deeper than any real stack


class FlowLinks(NamedTuple):
    """Pairs of events that flows join, int32[...] each; see `Links`."""

    forward: I32
    backward: I32
    called_work: I32
    work_call: I32
    graph_before: I32
    graph_after: I32


ParentProvider = Callable[[], I32]
"""Return the parent of every event, int32[n]; called only where it is needed."""


def link_launches(correlation: I64, ordinals: I32, is_call: Bool, is_driver: Bool, is_work: Bool) -> I32:
    """Find the runtime call of each GPU event, -1 for none and for all other events, int32[n].

    `correlation` is int64[entries], indexed by `ordinals` int32[n]; all else is [n]. 0 and -1 mean "no correlation".
    Where a driver call was made inside a runtime call both may carry the number: the runtime call is what the program
    called, so it wins; among equals the first in order.
    """
    launch = np.full(len(ordinals), -1, np.int32)
    work = _select_correlated(correlation, ordinals, find_indexes(lambda block: is_work[block], len(is_work)))
    calls = _select_correlated(correlation, ordinals, find_indexes(lambda block: is_call[block], len(is_call)))
    if not len(work) or not len(calls):
        return launch
    drivers = calls[is_driver[calls]]
    # Written last to first, drivers before runtime calls: later writes win.
    ranked = np.concatenate([drivers[::-1], calls[~is_driver[calls]][::-1]]).astype(np.int32)
    keys, wanted = correlation[ordinals[ranked]], correlation[ordinals[work]]
    low, high = int(keys.min()), int(keys.max())
    if high - low < _TABLE_SLOTS_PER_EVENT * len(ordinals):
        table = np.full(high - low + 1, -1, np.int32)
        table[keys - low] = ranked
        inside = (wanted >= low) & (wanted <= high)
        launch[work[inside]] = table[wanted[inside] - low]
        return launch
    order = np.argsort(keys, kind="stable")
    keys, ranked = keys[order], ranked[order]
    index = np.searchsorted(keys, wanted, side="right") - 1
    hit = (index >= 0) & (keys[np.maximum(index, 0)] == wanted)
    launch[work[hit]] = ranked[index[hit]]
    return launch


def _select_correlated(correlation: I64, ordinals: I32, events: I32) -> I32:
    value = correlation[ordinals[events]]
    correlated: I32 = events[(value != 0) & (value != -1)]
    return correlated


def reorder_launches(launch: I32, order: I64, out: I32 | None = None) -> I32:
    """Renumber the launches of events when new event k is old event `order[k]`, into `out` where it is given."""
    new_index = invert_order(order, len(order))
    reordered: I32 = take_parallel(launch, order, out)
    linked = find_indexes(lambda block: reordered[block] >= 0, len(reordered))
    reordered[linked] = new_index[reordered[linked]]
    return reordered


def group_work_by_launch(launch_of: I32, allocate: ColumnAllocator = allocate_in_memory) -> tuple[I32, I32]:
    """Invert the join: (order, first), where `order[first[i] : first[i + 1]]` is the GPU work of event i, by time."""
    work = find_indexes(lambda block: launch_of[block] >= 0, len(launch_of))
    order = work[np.argsort(launch_of[work], kind="stable")]
    launches = launch_of[order]
    first = allocate("links.work_first", len(launch_of) + 1, np.int32)
    first[0] = 0

    def count(part: slice) -> None:
        low, high = np.searchsorted(launches, np.array([part.start, part.stop], np.int32))
        counts = np.bincount(launches[low:high] - part.start, minlength=part.stop - part.start)
        counts[:1] += low
        np.cumsum(counts, out=first[part.start + 1 : part.stop + 1])

    run_blocks(count, len(launch_of))
    return order, first


def match_flows(ids: I32, starts: Bool) -> tuple[I64, I64]:
    """Match flow starts and ends by id, as indexes. Of several starts the first counts; every end pairs with it.

    `ids`: codes from 0 on, as in `RawEvents.id`.
    """
    begin, end = np.flatnonzero(starts), np.flatnonzero(~starts)
    begin_of = np.full(int(ids.max(initial=-1)) + 1, -1, np.int64)
    begin_of[ids[begin[::-1]]] = begin[::-1]  # the first is written last
    source = begin_of[ids[end]]
    has_begin = source >= 0
    return source[has_begin], end[has_begin]


def link_forward_backward(
    events: RawEvents, event_of: I32, columns: EventColumns, first: I64, get_parents: ParentProvider
) -> tuple[I32, I32]:
    """Link pairs of events by `fwdbwd` flows: forward and backward, int32[f] each.

    `event_of` int32[entries]: the event that an entry became, or -1; `first` int64[lanes + 1]: the bounds of each
    lane's events. Times of `events` are relative to the trace's origin.

    A flow belongs to the slice that it directly follows in the file, as Kineto writes them since 2022, or else
    to the innermost one that encloses it on its thread.
    """
    wanted = [k for k, category in enumerate(events.categories) if category.lower() == "fwdbwd"]
    if not wanted:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    return _find_flow_pairs(events, event_of, wanted, columns, first, get_parents)


_LAUNCH_FLOWS = ("async_npu", "hosttodevice")
"""Categories of the flows from a call to its work on an Ascend NPU, the preferred one first: from the op of torch (on
the thread of the program), and from the call of its runtime CANN (on a thread of its own)."""


def link_launches_by_flows(
    events: RawEvents, event_of: I32, columns: EventColumns, first: I64, get_parents: ParentProvider
) -> tuple[I32, I32]:
    """Link GPU work that has no launch yet to the event that a launch flow leads from, in `columns.launch_of`.

    Arguments as of `link_forward_backward`. The source may be an op, not a runtime call. Returns the pairs of
    work whose launch is no runtime call, and the runtime call that another flow leads from: int32[f] each.
    """
    pairs = [(np.zeros(0, np.int32), np.zeros(0, np.int32))]
    folded = [category.lower() for category in events.categories]
    for wanted in _LAUNCH_FLOWS:
        if wanted not in folded:
            continue
        category = [k for k, text in enumerate(folded) if text == wanted]
        call, work = _find_flow_pairs(events, event_of, category, columns, first, get_parents)
        is_work = np.isin(columns.kind, list(GPU_WORK))
        new = is_work[work] & ~is_work[call] & (columns.launch_of[work] < 0)
        columns.launch_of[work[new]] = call[new]
        launch = columns.launch_of[work]
        is_second = is_work[work] & (columns.kind[call] == Kind.RUNTIME) & (columns.kind[launch] != Kind.RUNTIME)
        pairs.append((work[is_second & (launch >= 0)], call[is_second & (launch >= 0)]))
    return np.concatenate([work for work, _ in pairs]), np.concatenate([call for _, call in pairs])


def _find_flow_pairs(
    events: RawEvents,
    event_of: I32,
    categories: list[int],
    columns: EventColumns,
    first: I64,
    get_parents: ParentProvider,
) -> tuple[I32, I32]:
    """Find the pairs of events that flows of these categories join: source and target, int32[f] each."""
    flows = find_flow_entries(events)
    flows = flows[np.isin(events.category[flows], categories) & (events.id[flows] >= 0)]
    flows = flows[events.time[flows] != NO_TIME]
    begin, end = match_flows(events.id[flows], events.phase[flows] == ord("s"))
    slices = _bind_flows(events, event_of, flows, columns, first, get_parents)
    source, target = slices[begin], slices[end]
    bound = (source >= 0) & (target >= 0)
    return source[bound], target[bound]


def find_flow_entries(events: RawEvents) -> I64:
    """Find the entries that are flows: int64[k] ordinals."""
    is_flow = np.zeros(256, np.bool_)
    is_flow[list(_FLOW_PHASES)] = True
    return find_indexes(lambda block: is_flow[events.phase[block]], len(events)).astype(np.int64)


def _bind_flows(
    events: RawEvents, event_of: I32, flows: I64, columns: EventColumns, first: I64, get_parents: ParentProvider
) -> I32:
    """Find the event that each flow entry is bound to, int32[flows], -1 for none."""
    if not len(flows):
        return np.zeros(0, np.int32)
    all_flows = find_flow_entries(events)
    is_first = np.ones(len(all_flows), np.bool_)  # of flows that follow each other directly
    is_first[1:] = all_flows[1:] != all_flows[:-1] + 1
    run = np.maximum.accumulate(np.where(is_first, all_flows, 0))
    previous = run[np.searchsorted(all_flows, flows)] - 1  # the last entry before each that is no flow, -1 for none
    owner = np.maximum(previous, 0)
    follows = (
        (previous >= 0)
        & (events.track[owner] == events.track[flows])
        & (events.time[owner] == events.time[flows])
        & (event_of[owner] >= 0)
    )
    bound = np.where(follows, event_of[owner], -1).astype(np.int32)
    unbound = np.flatnonzero(~follows)
    if len(unbound):
        drawn = np.flatnonzero(event_of >= 0)
        lane_of_track = np.full(len(events.tracks), -1, np.int32)
        lane_of_track[events.track[drawn]] = columns.lane[event_of[drawn]]
        lane = lane_of_track[events.track[flows[unbound]]]
        unbound, lane = unbound[lane >= 0], lane[lane >= 0]
        time = events.time[flows[unbound]]
        bound[unbound] = _find_enclosing(
            first[lane], first[lane + 1], time, columns.start, columns.duration, get_parents()
        )
    return bound


def _find_enclosing(low: I64, high: I64, time: I64, start: I64, duration: I64, parent: I32) -> I32:
    """Find the innermost event of rows `low:high` (a lane) that encloses each time, -1 for none."""
    enclosing = np.full(len(time), -1, np.int32)
    for k, (begin, end) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        event = begin + int(np.searchsorted(start[begin:end], time[k], side="right")) - 1
        enclosing[k] = event if event >= begin else -1
    for _ in range(_MAX_PARENT_STEPS):
        inside = np.flatnonzero(enclosing >= 0)
        candidates = enclosing[inside]
        has_ended = start[candidates] + duration[candidates] < time[inside]
        if not has_ended.any():
            return enclosing
        enclosing[inside[has_ended]] = parent[candidates[has_ended]]
    return np.where(start[enclosing] + duration[enclosing] < time, -1, enclosing)


FIRST_DEPENDENCY_ID = 1 << 40  # ids below are correlations: the flows of launches

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
    on_gpu: Bool = np.zeros(len(events.tracks), np.bool_)  # where launches only end
    on_gpu[events.track[columns.ordinal[nodes]]] = True
    category = events.categories.index(_CATEGORY)
    flows = find_flow_entries(events)
    flows = flows[(events.category[flows] == category) & (events.id[flows] >= 0) & on_gpu[events.track[flows]]]
    flows = flows[(events.time[flows] != NO_TIME) & (events.phase[flows] != ord("t"))]
    flow_starts = flows[events.phase[flows] == ord("s")]
    wanted = [code for code in np.unique(events.id[flow_starts]).tolist() if _is_dependency(events.ids[code])]
    flows = flows[np.isin(events.id[flows], wanted)]  # dependencies, by their ids
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
