"""Assign each event to a lane.

The reader knows tracks: (pid, tid) pairs as text. A lane is a track in one role. GPU events are assigned by
`args.device` and `args.stream` (tids are unreliable: torch 1.9 wrote "stream 7", late 2024 made negative ones
absolute); a stream's annotations and syncs have lanes of their own beside it; async events are grouped by process and
category; the profiler's own spans and marks, which it spreads over pseudo processes, share two lanes. Tracks without
events never become lanes: Kineto declares sixteen GPUs where one is used.

A *slot* is the number of a lane before lanes are put in order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U8, U16, Bool, factorize
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import bincount_parallel, find_indexes, take_parallel
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import MARKS, SPANS, Role
from torchprof_tui.trace.model.raw_events import SparseArg
from torchprof_tui.trace.model.trace import SparseColumn

DEVICE_WIDE = -1  # the stream number of a sync that waited for a whole device

_UNSIGNED_MINUS_ONE = 0xFFFFFFFF  # -1 as older writers wrote it
_MAX_DEVICES = 4096  # a numeric pid below this on a GPU event is a device's number; above, a process's

MAX_DEVICE = int(np.iinfo(np.int32).max)
"""A larger number, as in a damaged file, is no device: tables of GPU work keep 32 bits of it."""

_DEVICE_NUMBER = compile_later(r"[0-9]{1,9}")
_LAST_NUMBER = compile_later(r"-?[0-9]{1,18}$")


_ROLE_OF_KIND = {
    **dict.fromkeys(GPU_WORK, Role.STREAM),
    Kind.SYNC: Role.SYNC,
    Kind.GPU_ANNOTATION: Role.GPU_ANNOTATIONS,
}
_ROLE_ORDER = (Role.STREAM, Role.SYNC, Role.GPU_ANNOTATIONS)
_GPU_ROLE_OF_KIND = np.full(256, -1, np.int8)
_GPU_ROLE_OF_KIND[[int(kind) for kind in _ROLE_OF_KIND]] = [_ROLE_ORDER.index(role) for role in _ROLE_OF_KIND.values()]

ROLES = tuple(Role)  # roles by number, for columns of them
NO_ARG = np.iinfo(np.int64).min  # the value of a sparse arg that an event does not have


@dataclass(slots=True)
class PendingLane:
    """A lane before layout: what its events have in common, and what decides its position."""

    role: Role
    pid: str
    tid: str
    track: int = -1  # the reader's; -1 where events of several tracks share the lane
    device: int | None = None
    stream: int | None = None
    events: int = 0
    launches: int = 0  # runtime calls with GPU work
    has_step: bool = False
    merged_count: int = 0  # number of slots that `lane_merging.py` merged into this lane


@record
class PendingLanes:
    """k slots, none without events, as columns, because a file may have a million of them.

    `role` uint8[k]: indexes into ROLES; `device` int64[k], -1 for none; `events` int64[k].
    """

    role: U8
    device: I64
    events: I64
    _factory: Callable[[int], PendingLane]

    def __len__(self) -> int:
        return len(self.role)

    def create_lane(self, index: int) -> PendingLane:
        lane = self._factory(index)
        lane.events = int(self.events[index])
        return lane


@record
class EventTracks:
    """What decides the lane of each drawn event: arrays [d], and the tables that `track` and `category` index."""

    tracks: list[tuple[str, str]]
    categories: list[str]
    track: I32
    category: U16
    kind: U8
    is_instant: Bool


def assign_lanes(
    events: EventTracks,
    read_device: Callable[[I64], I64],
    read_stream: Callable[[I64], I64],
    process_pids: Container[str] = (),
) -> tuple[I32, PendingLanes]:
    """Assign each drawn event to a slot: int32[d], and the slots. Linear, but for sorting async and GPU events.

    `read_device`, `read_stream`: the args of the events at some indexes, NO_ARG where missing. `process_pids`: pids
    that are never a device's number, however small.
    """
    slot = events.track.astype(np.int32, copy=True)
    slots = _LaneSlots()
    tracks = events.tracks  # the factories outlive the columns of `events`
    slots.add_section(Role.THREAD, len(tracks), lambda track: _create_track_lane(Role.THREAD, tracks, track))
    _assign_profiler_lanes(events, slot, slots)
    _assign_async_lanes(events, slot, slots)
    gpu = find_indexes(lambda block: _GPU_ROLE_OF_KIND[events.kind[block]] >= 0, len(slot)).astype(np.int64)
    if len(gpu):
        role = _GPU_ROLE_OF_KIND[events.kind[gpu]].astype(np.int64)
        args = read_device(gpu), read_stream(gpu)
        slot[gpu] = len(slots) + _assign_gpu_lanes(tracks, events.track[gpu], role, *args, process_pids, slots)

    counts = bincount_parallel(slot, len(slots))
    used = np.flatnonzero(counts)
    new_slot = np.full(len(slots), -1, np.int32)
    new_slot[used] = np.arange(len(used), dtype=np.int32)
    return take_parallel(new_slot, slot), slots.select_lanes(used, counts[used])


def _find_kind(kind: U8, wanted: Kind) -> I64:
    return find_indexes(lambda block: kind[block] == wanted, len(kind)).astype(np.int64)


def _assign_profiler_lanes(events: EventTracks, slot: I32, slots: _LaneSlots) -> None:
    """Assign the profiler's overhead by track, and its spans and marks to a slot each."""
    overhead = _find_kind(events.kind, Kind.OVERHEAD)
    used, code = np.unique(events.track[overhead], return_inverse=True)
    slot[overhead] = len(slots) + code
    tracks, overhead_tracks = events.tracks, used.tolist()
    slots.add_section(Role.PROFILER, len(used), lambda k: _create_track_lane(Role.PROFILER, tracks, overhead_tracks[k]))

    profiler = _find_kind(events.kind, Kind.PROFILER)
    slot[profiler] = len(slots) + events.is_instant[profiler]
    slots.add_section(Role.PROFILER, 2, lambda k: PendingLane(Role.PROFILER, "profiler", (SPANS, MARKS)[k]))


def _assign_async_lanes(events: EventTracks, slot: I32, slots: _LaneSlots) -> None:
    indexes = _find_kind(events.kind, Kind.ASYNC)
    if not len(indexes):
        return
    number_of = {pid: k for k, pid in enumerate(dict.fromkeys(pid for pid, _ in events.tracks))}
    pids = list(number_of)
    process = np.array([number_of[pid] for pid, _ in events.tracks], np.int64)
    keys = process[events.track[indexes]] << 16 | events.category[indexes]
    used, code = np.unique(keys, return_inverse=True)
    slot[indexes] = len(slots) + code
    categories, groups = events.categories, used.tolist()
    slots.add_section(
        Role.ASYNC, len(used), lambda k: PendingLane(Role.ASYNC, pids[groups[k] >> 16], categories[groups[k] & 0xFFFF])
    )


def _assign_gpu_lanes(
    tracks: list[tuple[str, str]],
    track: I32,
    role: I64,
    device: I64,
    stream: I64,
    process_pids: Container[str],
    slots: _LaneSlots,
) -> I64:
    """Assign GPU events to new slots by (role, device, stream); by track where no device is known (Ascend).

    Overwrites `device` and `stream`.
    """
    incomplete = np.flatnonzero((device == NO_ARG) | (stream == NO_ARG))
    used, code = np.unique(track[incomplete], return_inverse=True)
    devices, streams = _parse_devices_and_streams([tracks[k] for k in used.tolist()], process_pids)
    for column, parsed in ((device, devices[code]), (stream, streams[code])):
        column[incomplete] = np.where(column[incomplete] == NO_ARG, parsed, column[incomplete])
    stream[(role == _ROLE_ORDER.index(Role.SYNC)) & (stream == _UNSIGNED_MINUS_ONE)] = DEVICE_WIDE
    # By track if there is no device, or if there is no stream either in args or tid.
    by_track = (device < 0) | (device > MAX_DEVICE) | (stream == NO_ARG)
    keys = (role, np.where(by_track, -1, device), np.where(by_track, 0, stream), np.where(by_track, track, -1))
    slot = np.zeros(len(track), np.int64)
    for key in keys:
        code, known = factorize(key)
        slot, _ = factorize(slot * len(known) + code)
    count = int(slot.max()) + 1
    example = np.full(count, len(track), np.int64)
    np.minimum.at(example, slot, np.arange(len(track)))
    is_track = by_track[example]
    track, role, stream = track[example], role[example], stream[example]  # of one event of each slot
    device = np.where(is_track, -1, device[example])

    def create_lane(k: int) -> PendingLane:
        own_role, own_track, own_device = _ROLE_ORDER[int(role[k])], int(track[k]), int(device[k])
        if own_device < 0:
            return _create_track_lane(own_role, tracks, own_track)
        return PendingLane(own_role, str(own_device), str(stream[k]), own_track, own_device, int(stream[k]))

    role_numbers = np.array([ROLES.index(each) for each in _ROLE_ORDER], np.uint8)
    slots.append_section(role_numbers[role], device, create_lane)
    return slot


def _create_track_lane(role: Role, tracks: list[tuple[str, str]], track: int) -> PendingLane:
    pid, tid = tracks[track]
    return PendingLane(role, pid, tid, track)


class _LaneSlots:
    """Number the slots: sections of one role each, then those on GPUs. Lanes are created on request."""

    def __init__(self) -> None:
        self._factories: list[tuple[int, Callable[[int], PendingLane]]] = []
        self._roles: list[U8] = []
        self._devices: list[I64] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_section(self, role: Role, count: int, factory: Callable[[int], PendingLane]) -> None:
        """Append `count` slots of one role; `factory` creates the lane of the k-th of them."""
        self.append_section(np.full(count, ROLES.index(role), np.uint8), np.full(count, -1, np.int64), factory)

    def append_section(self, role: U8, device: I64, factory: Callable[[int], PendingLane]) -> None:
        self._factories.append((self._count, factory))
        self._roles.append(role)
        self._devices.append(device)
        self._count += len(role)

    def select_lanes(self, used: I64, events: I64) -> PendingLanes:
        """Keep the slots with these numbers, int64[k]. `events` int64[k]: how many events each has."""
        firsts = [first for first, _ in self._factories]

        def create(index: int) -> PendingLane:
            slot = int(used[index])
            first, factory = self._factories[bisect_right(firsts, slot) - 1]
            return factory(slot - first)

        return PendingLanes(np.concatenate(self._roles)[used], np.concatenate(self._devices)[used], events, create)


def _parse_devices_and_streams(tracks: list[tuple[str, str]], process_pids: Container[str]) -> tuple[I64, I64]:
    """Parse device (-1 for none) and stream (NO_ARG for none) from pid and tid."""
    devices = np.full(len(tracks), -1, np.int64)
    streams = np.full(len(tracks), NO_ARG, np.int64)
    for k, (pid, tid) in enumerate(tracks):
        if _DEVICE_NUMBER.fullmatch(pid) and int(pid) < _MAX_DEVICES and pid not in process_pids:
            devices[k] = int(pid)
        number = _LAST_NUMBER.search(tid)
        if number:
            streams[k] = int(number[0])
    return devices, streams


def lookup_sparse_arg(arg: SparseArg | None, entries: I32) -> I64:
    """Look up a sparse arg of entries in any order, NO_ARG where one has none. `arg`: None where no entry has it."""
    if arg is None:
        return np.full(len(entries), NO_ARG, np.int64)
    return SparseColumn(arg.entries, arg.values).values_at(entries, NO_ARG).astype(np.int64, copy=False)
