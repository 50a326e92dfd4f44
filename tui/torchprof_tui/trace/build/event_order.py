"""Normalize the times of the drawn events and sort the events into the order of the columns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.build.event_kinds import DrawnEvents
from torchprof_tui.trace.build.event_phases import ClassifiedEntries, EntryAccounting
from torchprof_tui.trace.build.sparse_columns import MAX_SUM, find_beyond_sum
from torchprof_tui.trace.core.arrays import I32, I64, U8, U16, Bool, block_slices
from torchprof_tui.trace.core.column_file import ColumnAllocator
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import (
    find_indexes,
    map_blocks,
    run_blocks,
    run_slices,
    run_tasks,
    split_range,
)
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME, RawEvents


@record
class EventColumns:
    """One row per drawn event, n rows, sorted by lane, start, longest first, file order. As in `Trace`.

    Where `allocate` maps them in a file they cost no memory until they are filled.
    """

    # Filled by the sort. `lane` holds slots of `LaneOrder` until slots are merged and the lanes are laid out.
    lane: I32
    ordinal: I32
    start: I64
    duration: I64
    kind: U8
    launch_of: I32
    # Filled by nesting, on a background thread.
    row: I32
    parent: I32
    self_duration: I64
    # Copied from the raw columns when the final order of events is known.
    name: I32
    category: U16
    correlation: I64

    @classmethod
    def allocate(cls, size: int, allocate: ColumnAllocator) -> EventColumns:
        """Allocate all columns, not yet initialized. Raises what `allocate` raises."""
        dtypes: dict[str, npt.DTypeLike] = {
            **dict.fromkeys(("lane", "ordinal", "launch_of", "row", "parent", "name"), np.int32),
            **dict.fromkeys(("start", "duration", "self_duration", "correlation"), np.int64),
            "kind": np.uint8,
            "category": np.uint16,
        }
        columns: dict[str, Any] = {
            name: allocate("links.launch_of" if name == "launch_of" else name, size, dtype)
            for name, dtype in dtypes.items()
        }
        return cls(**columns)

    def __len__(self) -> int:
        return len(self.start)


_DAY = 86_400 * 10**9  # A `ts` of 0 more than this before all others was clamped by the writer, and is no time at all
_MAX_TIME = 2**61  # times and durations beyond this (73 years either way) are cut off: sums of two must fit 64 bits
_NEVER = np.iinfo(np.int64).max

_RANGE_SIZE = 1 << 18
_MAX_RANGES = 64
"""Events that are sorted at once; and into how many ranges they are divided, each of which reads a byte an event."""


def normalize_timestamps(
    events: RawEvents, drawn: DrawnEvents, classified: ClassifiedEntries, accounting: EntryAccounting
) -> int:
    """Mend times and durations in place, and make times relative to the trace's first event. Returns its time.

    The profiler's own events do not count as the first: they may have negative times.
    """
    time = events.time
    _mend_durations(events, classified, accounting)
    is_timed, shown = np.empty(len(time), np.bool_), np.empty(len(time), np.bool_)

    def select_shown(block: slice) -> None:
        np.not_equal(time[block], NO_TIME, out=is_timed[block])
        np.equal(events.phase[block], ord("C"), out=shown[block])
        shown[block] &= is_timed[block]
        shown[block] |= classified.drawn[block]

    run_blocks(select_shown, len(time))
    shown[classified.memory] = True
    if not shown.any():
        return 0
    counted = shown.copy()
    of_profiler = find_indexes(
        lambda block: (drawn.kind[block] == Kind.PROFILER) | (drawn.kind[block] == Kind.OVERHEAD), len(drawn)
    )
    counted[drawn.ordinals[of_profiler]] = False
    counted = counted if counted.any() else shown
    origin = int(min(map_blocks(lambda block: time[block].min(where=counted[block], initial=_NEVER), len(time))))
    if origin == 0:
        origin = int(time.min(where=counted & (time != 0), initial=_NEVER))
        origin = origin if _DAY < origin < _NEVER else 0
    if origin > _DAY:
        clamped = np.flatnonzero(shown & (time == 0))
        accounting.add_entry_problem("clamped timestamp", events, clamped, "placed at the trace's start")
        time[clamped] = origin

    run_blocks(lambda block: np.subtract(time[block], origin, out=time[block], where=is_timed[block]), len(time))
    far = find_indexes(
        lambda block: classified.drawn[block] & ((time[block] > _MAX_TIME) | (time[block] < -_MAX_TIME)), len(time)
    )
    accounting.add_entry_problem("time out of range", events, far, "cut off at 73 years")
    if len(far):
        np.clip(time, -_MAX_TIME, _MAX_TIME, out=time, where=is_timed)
    return origin


def _mend_durations(events: RawEvents, classified: ClassifiedEntries, accounting: EntryAccounting) -> None:
    """Set durations that are missing, negative or too long to 0, in place, and report those of drawn events."""
    duration = events.duration
    negative = find_indexes(
        lambda block: classified.drawn[block] & (duration[block] < 0) & (duration[block] != NO_DURATION), len(events)
    )
    accounting.add_entry_problem("negative duration", events, negative, "drawn without")
    longest = map_blocks(lambda block: int(duration[block].clip(0, _MAX_TIME, duration[block]).max()), len(duration))
    beyond = find_beyond_sum(duration) if max(longest, default=0) * len(duration) >= MAX_SUM else None
    if beyond is not None:
        accounting.add_entry_problem("duration out of range", events, np.flatnonzero(beyond), "drawn without")
        duration[beyond] = 0


def sort_by_lane(lane: I32, time: I64, duration: I64, ordinals: I32) -> I64:
    """Sort by lane, start, longest first, file order, int64[d]: by one packed key, then the few ties.

    Overwrites `time`. `lane`, `time` and `ordinals` are [d]; `duration` is int64[entries], indexed by `ordinals`.
    """
    if not len(lane):
        return np.zeros(0, np.int64)
    low = int(time.min())
    bits = max(int(time.max()) - low, 1).bit_length()
    if bits + int(lane.max()).bit_length() > 62:
        return np.lexsort((-duration[ordinals], time, lane))
    time -= low

    def add_lanes(part: slice) -> None:
        for block in block_slices(part.stop - part.start):
            events = slice(part.start + block.start, part.start + block.stop)
            time[events] |= lane[events].astype(np.int64) << bits

    run_slices(add_lanes, len(lane))
    order, is_tie = _sort_keys(time)
    tied = np.flatnonzero(is_tie[:-1] | is_tie[1:])
    if len(tied):
        group = np.cumsum(~is_tie[tied])
        unsorted = order[tied]
        order[tied] = unsorted[np.lexsort((-duration[ordinals[unsorted]], group))]
    return order


def _sort_keys(key: I64) -> tuple[I64, Bool]:
    """Sort by a key, equal ones in their order, int64[n]; and whether each has the key of the one before: bool[n + 1].

    Each range of keys is sorted by itself: side by side, and in less memory than all at once.
    """
    order, is_tie = np.empty(len(key), np.int64), np.zeros(len(key) + 1, np.bool_)
    parts = split_range(len(key))
    sample = np.sort(key[:: max(len(key) // 4096, 1)])
    ranges = max(len(parts), min(len(key) // _RANGE_SIZE, _MAX_RANGES))
    splitters = sorted({int(sample[len(sample) * k // ranges]) for k in range(1, ranges)})
    if not splitters:
        order[:] = np.argsort(key, kind="stable")
        _mark_ties(key, order, is_tie[:-1])
        return order, is_tie
    bounds = np.array(splitters, np.int64)
    counts = np.zeros((len(parts), len(splitters) + 1), np.int64)
    bucket = np.empty(len(key), np.uint8)

    def assign_buckets(number: int) -> None:
        for block in block_slices(parts[number].stop - parts[number].start):
            events = slice(parts[number].start + block.start, parts[number].start + block.stop)
            bucket[events] = np.searchsorted(bounds, key[events], side="right")
            counts[number] += np.bincount(bucket[events], minlength=counts.shape[1])

    run_tasks([partial(assign_buckets, number) for number in range(len(parts))])
    first = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])

    def sort_bucket(number: int) -> None:
        selected = np.flatnonzero(bucket == number)
        part = slice(int(first[number]), int(first[number + 1]))
        selected.take(np.argsort(key[selected], kind="stable"), out=order[part], mode="clip")
        _mark_ties(key, order[part], is_tie[part])

    run_tasks([partial(sort_bucket, number) for number in range(counts.shape[1])])
    return order, is_tie


def _mark_ties(key: I64, order: I64, is_tie: Bool) -> None:
    """Mark the elements whose key is that of the element before. The first one has none before it."""
    last: int | None = None
    for block in block_slices(len(order)):
        sorted_key = key[order[block]]
        np.equal(sorted_key[1:], sorted_key[:-1], out=is_tie[block][1:])
        is_tie[block.start] = last is not None and sorted_key[0] == last
        last = sorted_key[-1]


def invert_order(order: I32 | I64, count: int) -> I32:
    """Compute the index of each number in `order`, -1 for numbers that are not in it: int32[count]."""
    index_of = np.full(count, -1, np.int32)

    def invert(part: slice) -> None:
        index_of[order[part]] = np.arange(part.start, part.stop, dtype=np.int32)

    run_slices(invert, len(order))
    return index_of
