"""When the drawn events happened, and the order in which they lie in the columns."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.build.event_phases import ClassifiedEntries, EntryAccounting
from torchprof_tui.trace.core.arrays import I32, I64, U8, block_slices
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME, RawEvents

_DAY = 86_400 * 10**9
"""A `ts` of 0 more than this before all others was clamped by the writer, and is no time at all."""

_MAX_TIME = 2**61
"""Times and durations beyond this (73 years either way) are cut off: sums must fit 64 bits."""

_NEVER = np.iinfo(np.int64).max


def normalize_timestamps(
    events: RawEvents, ordinals: I32, kind: U8, classified: ClassifiedEntries, accounting: EntryAccounting
) -> int:
    """Mend times and durations in place, and make times relative to the trace's first event. Returns when that was.

    The profiler's own events do not count as the first: they may lie at negative times.
    `ordinals` int32[d]: the entries that are drawn; `kind` uint8[d]: what they are.
    """
    time, duration = events.time, events.duration
    negative = np.flatnonzero(classified.drawn & (duration < 0) & (duration != NO_DURATION))
    accounting.add_entry_problem("negative duration", events, negative, "drawn without")
    np.clip(duration, 0, _MAX_TIME, out=duration)

    is_timed = time != NO_TIME
    shown = (events.phase == ord("C")) & is_timed
    shown[classified.memory] = True
    shown |= classified.drawn
    if not shown.any():
        return 0
    inside = shown.copy()
    inside[ordinals[np.isin(kind, (Kind.PROFILER, Kind.OVERHEAD))]] = False
    inside = inside if inside.any() else shown
    origin = int(time.min(where=inside, initial=_NEVER))
    if origin == 0:
        origin = int(time.min(where=inside & (time != 0), initial=_NEVER))
        origin = origin if _DAY < origin < _NEVER else 0
    if origin > _DAY:
        clamped = np.flatnonzero(shown & (time == 0))
        accounting.add_entry_problem("clamped timestamp", events, clamped, "placed at the trace's start")
        time[clamped] = origin
    np.subtract(time, origin, out=time, where=is_timed)
    far = np.flatnonzero(classified.drawn & ((time > _MAX_TIME) | (time < -_MAX_TIME)))
    accounting.add_entry_problem("time out of range", events, far, "cut off at 73 years")
    if len(far):
        np.clip(time, -_MAX_TIME, _MAX_TIME, out=time, where=is_timed)
    return origin


def sort_by_lane(lane: I32, time: I64, duration: I64, ordinals: I32) -> I64:
    """By lane, start, longest first, file order: one packed key, and the few ties mended. int64[d].

    `time` is used up; `duration` int64[entries], of which `entry` int32[d] are the events.
    """
    if not len(lane):
        return np.zeros(0, np.int64)
    low = int(time.min())
    bits = max(int(time.max()) - low, 1).bit_length()
    if bits + int(lane.max()).bit_length() > 62:
        return np.lexsort((-duration[ordinals], time, lane))
    time -= low
    for block in block_slices(len(lane)):
        time[block] |= lane[block].astype(np.int64) << bits
    order = np.argsort(time, kind="stable")
    same = np.zeros(len(order) + 1, np.bool_)  # as the one before
    last = -1
    for block in block_slices(len(order)):
        key = time[order[block]]
        np.equal(key[1:], key[:-1], out=same[block][1:])
        same[block.start] = key[0] == last
        last = key[-1]
    where = np.flatnonzero(same[:-1] | same[1:])
    if len(where):
        group = np.cumsum(~same[where])
        mine = order[where]
        order[where] = mine[np.lexsort((-duration[ordinals[mine]], group))]
    return order
