"""When the drawn events happened, and the order in which they lie in the columns."""

from __future__ import annotations

import numpy as np

from tui.trace.arrays import I32, I64, U8
from tui.trace.kinds import Kind
from tui.trace.phases import Drawing, Ledger
from tui.trace.raw import NO_DURATION, NO_TIME, RawEvents

_DAY = 86_400 * 10**9
"""A `ts` of 0 more than this before all others was clamped by the writer, and is no time at all."""

_FAR = 2**61
"""Times and durations beyond this (73 years either way) are cut off: sums must fit 64 bits."""

_NEVER = np.iinfo(np.int64).max


def settle_times(events: RawEvents, ordinals: I32, kind: U8, drawing: Drawing, ledger: Ledger) -> int:
    """Mend times and durations in place, and make times relative to the trace's first event. Returns when that was.

    The profiler's own events do not count as the first: they may lie at negative times.
    `ordinals` int32[d]: the entries that are drawn; `kind` uint8[d]: what they are.
    """
    time, duration = events.time, events.duration
    lengths = duration[ordinals]
    negative = ordinals[(lengths < 0) & (lengths != NO_DURATION)]
    ledger.problem("negative duration", events, negative, "drawn without")
    duration[ordinals] = np.clip(lengths, 0, _FAR)
    del lengths

    is_timed = time != NO_TIME
    points = np.flatnonzero((events.phase == ord("C")) & is_timed)
    others = np.concatenate([drawing.memory, points])
    shown = time[ordinals]
    if not len(shown) and not len(others):
        return 0
    own = np.isin(kind, (Kind.PROFILER, Kind.OVERHEAD))
    inside = np.concatenate([shown[~own] if own.any() else shown, time[others]])
    inside = inside if len(inside) else shown
    origin = int(inside.min())
    if origin == 0:
        origin = int(inside.min(where=inside != 0, initial=_NEVER))
        origin = origin if _DAY < origin < _NEVER else 0
    if origin > _DAY:
        clamped = np.concatenate([ordinals[shown == 0], others[time[others] == 0]])
        ledger.problem("clamped timestamp", events, np.sort(clamped), "placed at the trace's start")
        time[clamped] = origin
    del shown, inside
    np.subtract(time, origin, out=time, where=is_timed)
    far = ordinals[np.abs(time[ordinals]) > _FAR]
    ledger.problem("time out of range", events, far, "cut off at 73 years")
    if len(far):
        np.clip(time, -_FAR, _FAR, out=time, where=is_timed)
    return origin


def lane_order(lane: I32, time: I64, duration: I64) -> I64:
    """By lane, start, longest first, file order: one packed key, and the few ties mended. int64[d]."""
    if not len(lane):
        return np.zeros(0, np.int64)
    low = int(time.min())
    bits = max(int(time.max()) - low, 1).bit_length()
    if bits + int(lane.max()).bit_length() > 62:
        return np.lexsort((-duration, time, lane))
    key = (lane.astype(np.int64) << bits) | (time - low)
    order = np.argsort(key, kind="stable")
    key = key[order]
    same = key[1:] == key[:-1]
    del key
    tied = np.zeros(len(order), np.bool_)
    tied[1:] = same
    tied[:-1] |= same
    where = np.flatnonzero(tied)
    if len(where):
        group = np.cumsum(~np.concatenate([[False], same])[where])
        mine = order[where]
        order[where] = mine[np.lexsort((-duration[mine], group))]
    return order
