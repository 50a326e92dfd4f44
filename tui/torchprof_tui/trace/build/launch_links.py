"""Who launched what: GPU work and runtime calls by correlation, forward and backward by `fwdbwd` flows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Bool, flatnonzero_int32
from torchprof_tui.trace.core.column_file import ColumnAllocator, allocate_in_memory
from torchprof_tui.trace.model.raw_events import NO_TIME, RawEvents

_TABLE_SLOTS_PER_EVENT = 16
"""Correlations are joined through a table while its size stays within this many slots an event."""

_FLOW_PHASES = (ord("s"), ord("t"), ord("f"))

_MAX_PARENT_STEPS = 1000
"""Parents looked at to find the slice that encloses a flow; deeper than any real stack."""


ParentProvider = Callable[[], I32]
"""The parent of every event, int32[n]: asked only where it is needed."""


def link_launches(correlation: I64, ordinals: I32, is_call: Bool, is_driver: Bool, is_work: Bool) -> I32:
    """For each GPU event its runtime call, -1 for none and for all other events, int32[n].

    `correlation` int64[entries], of which `entry` int32[n] are the events; all else is [n]. 0 and -1 mean "no
    correlation". Where a driver call was made inside a runtime call both may carry the number: the runtime call is what
    the program called, so it wins; among equals the first in order.
    """
    launch = np.full(len(ordinals), -1, np.int32)
    work, calls = (
        _select_correlated(correlation[ordinals[mine]], mine)
        for mine in (flatnonzero_int32(is_work), flatnonzero_int32(is_call))
    )
    if not len(work) or not len(calls):
        return launch
    drivers = calls[is_driver[calls]]
    # Written last to first, drivers before runtime calls: what is written later stays.
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
    place = np.searchsorted(keys, wanted, side="right") - 1
    hit = (place >= 0) & (keys[np.maximum(place, 0)] == wanted)
    launch[work[hit]] = ranked[place[hit]]
    return launch


def _select_correlated(correlation: I64, events: I32) -> I32:
    found: I32 = events[(correlation != 0) & (correlation != -1)]
    return found


def group_work_by_launch(launch_of: I32, allocate: ColumnAllocator = allocate_in_memory) -> tuple[I32, I32]:
    """The same join the other way: `order[first[i] : first[i + 1]]` is the GPU work of event i, by time."""
    work = flatnonzero_int32(launch_of >= 0)
    order = work[np.argsort(launch_of[work], kind="stable")]
    first = allocate("links.work_first", len(launch_of) + 1, np.int32)
    first[:] = 0
    np.add.at(first[1:], launch_of[work], 1)
    np.cumsum(first, out=first)
    return order, first


def match_flows(ids: I32, starts: Bool) -> tuple[I64, I64]:
    """Places of flow starts and ends with the same id. Of several starts the first; every end pairs with it."""
    begin, end = np.flatnonzero(starts), np.flatnonzero(~starts)
    if not len(begin) or not len(end):
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    known, first = np.unique(ids[begin], return_index=True)
    place = np.minimum(np.searchsorted(known, ids[end]), len(known) - 1)
    hit = known[place] == ids[end]
    return begin[first[place[hit]]], end[hit]


def link_forward_backward(
    events: RawEvents, event_of: I32, lane: I32, first: I64, start: I64, duration: I64, get_parents: ParentProvider
) -> tuple[I32, I32]:
    """Pairs of events that `fwdbwd` flows join. `event_of` int32[entries]: the event that an entry became, or -1.

    A flow belongs to the slice that it directly follows in the file, as Kineto writes them since 2022, or else
    to the innermost one that encloses it on its thread. Times of `events` are the trace's own.
    """
    wanted = [k for k, category in enumerate(events.categories) if category.lower() == "fwdbwd"]
    if not wanted:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    flows = np.flatnonzero(np.isin(events.category, wanted) & np.isin(events.phase, _FLOW_PHASES) & (events.id >= 0))
    flows = flows[events.time[flows] != NO_TIME]
    begin, end = match_flows(events.id[flows], events.phase[flows] == ord("s"))
    slices = _bind_flows(events, event_of, flows, lane, first, start, duration, get_parents)
    forward, backward = slices[begin], slices[end]
    good = (forward >= 0) & (backward >= 0)
    return forward[good], backward[good]


def _bind_flows(
    events: RawEvents,
    event_of: I32,
    flows: I64,
    lane: I32,
    first: I64,
    start: I64,
    duration: I64,
    parent: ParentProvider,
) -> I32:
    """The event that each flow entry is bound to, int32[flows], -1 for none."""
    if not len(flows):
        return np.zeros(0, np.int32)
    no_flow = np.where(np.isin(events.phase, _FLOW_PHASES), -1, np.arange(len(events), dtype=np.int32))
    before = np.maximum.accumulate(no_flow)[flows]
    owner = np.maximum(before, 0)
    follows = (
        (before >= 0)
        & (events.track[owner] == events.track[flows])
        & (events.time[owner] == events.time[flows])
        & (event_of[owner] >= 0)
    )
    found = np.where(follows, event_of[owner], -1).astype(np.int32)
    left = np.flatnonzero(~follows)
    if len(left):
        drawn = np.flatnonzero(event_of >= 0)
        lane_of_track = np.full(len(events.tracks), -1, np.int32)
        lane_of_track[events.track[drawn]] = lane[event_of[drawn]]
        where = lane_of_track[events.track[flows[left]]]
        left, where = left[where >= 0], where[where >= 0]
        found[left] = _find_enclosing(
            first[where], first[where + 1], events.time[flows[left]], start, duration, parent()
        )
    return found


def _find_enclosing(low: I64, high: I64, time: I64, start: I64, duration: I64, parent: I32) -> I32:
    """The innermost event of rows `low:high` (a lane) that encloses each time, -1 for none."""
    found = np.full(len(time), -1, np.int32)
    for k, (begin, end) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        place = begin + int(np.searchsorted(start[begin:end], time[k], side="right")) - 1
        found[k] = place if place >= begin else -1
    for _ in range(_MAX_PARENT_STEPS):
        inside = np.flatnonzero(found >= 0)
        event = found[inside]
        over = start[event] + duration[event] < time[inside]
        if not over.any():
            return found
        found[inside[over]] = parent[event[over]]
    return np.where(start[found] + duration[found] < time, -1, found)
