"""Which lane each event lies on.

The reader knows tracks: (pid, tid) pairs as text. A lane is a track in one role. GPU events go by `args.device`
and `args.stream` (tids lie: torch 1.9 wrote "stream 7", late 2024 made negative ones absolute); a stream's
annotations and syncs get lanes of their own beside it; async events lie by process and category; the profiler's
own spans and marks, which it spreads over pseudo processes, lie together. Tracks without events never become lanes:
Kineto declares sixteen GPUs where one is used.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Container
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U8, U16, Array, take_chunked
from torchprof_tui.trace.core.factorize import bincount_chunked, factorize
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.raw_events import SparseArg

DEVICE_WIDE = -1
"""The stream number of a sync that waited for a whole device."""

_UNSIGNED_MINUS_ONE = 0xFFFFFFFF
"""What older writers made of -1."""

_MAX_DEVICES = 4096
"""A numeric pid below this on a GPU event is a device's number; above, a process's."""

_DEVICE_NUMBER = re.compile(r"[0-9]{1,9}")
_LAST_NUMBER = re.compile(r"-?[0-9]{1,18}$")

SPANS, MARKS = "spans", "marks"
"""The profiler's two lanes beside its overhead: tids of ours, under the pid "profiler"."""

_ROLE_OF_KIND = {
    **dict.fromkeys(GPU_WORK, Role.STREAM),
    Kind.SYNC: Role.SYNC,
    Kind.GPU_ANNOTATION: Role.GPU_ANNOTATIONS,
}
_ROLE_ORDER = (Role.STREAM, Role.SYNC, Role.GPU_ANNOTATIONS)
_GPU_ROLE_OF_KIND = np.full(256, -1, np.int8)
_GPU_ROLE_OF_KIND[[int(kind) for kind in _ROLE_OF_KIND]] = [_ROLE_ORDER.index(role) for role in _ROLE_OF_KIND.values()]

ROLES = tuple(Role)
"""Roles by number, for columns of them."""


@dataclass(slots=True)
class PendingLane:
    """A lane to be: what its events have in common, and what decides where it stands."""

    role: Role
    pid: str
    tid: str
    track: int = -1  # the reader's; -1 where several lie together
    device: int | None = None
    stream: int | None = None
    events: int = 0
    launches: int = 0  # runtime calls with GPU work
    has_step: bool = False
    merged_count: int = 0  # so many places in one, which `crowd.py` has put together


@dataclass(frozen=True, slots=True)
class PendingLanes:
    """k places, none without events, as columns: a file may have a million of them. `place` makes one of them.

    `role` uint8[k]: numbers into ROLES; `device` int64[k], -1 for none; `events` int64[k].
    """

    role: U8
    device: I64
    events: I64
    _factory: Callable[[int], PendingLane]

    def __len__(self) -> int:
        return len(self.role)

    def create_lane(self, index: int) -> PendingLane:
        place = self._factory(index)
        place.events = int(self.events[index])
        return place


def assign_lanes(
    tracks: list[tuple[str, str]],
    categories: list[str],
    track: I32,
    category: U16,
    kind: U8,
    is_instant: Array,
    read_device: Callable[[I64], I64],
    read_stream: Callable[[I64], I64],
    process_pids: Container[str] = (),
) -> tuple[I32, PendingLanes]:
    """The place of each drawn event: int32[d]. Linear, but for sorting async and GPU events.

    All arrays are [d]: `marks` bool, which are instants. `device`, `stream` tell the args of some events, NO_ARG where
    missing. `processes`: pids that never are a device's number, however small.
    """
    slot = track.astype(np.int32, copy=True)
    made = _LaneSlots()
    made.add_section(Role.THREAD, len(tracks), lambda k: _create_track_lane(Role.THREAD, tracks, k))

    overhead = np.flatnonzero(kind == Kind.OVERHEAD)
    used, which = np.unique(track[overhead], return_inverse=True)
    slot[overhead] = len(made) + which
    own_tracks = used.tolist()
    made.add_section(Role.PROFILER, len(used), lambda k: _create_track_lane(Role.PROFILER, tracks, own_tracks[k]))

    own = np.flatnonzero(kind == Kind.PROFILER)
    slot[own] = len(made) + is_instant[own]
    made.add_section(Role.PROFILER, 2, lambda k: PendingLane(Role.PROFILER, "profiler", (SPANS, MARKS)[k]))

    waits = np.flatnonzero(kind == Kind.ASYNC)
    if len(waits):
        number_of = {pid: k for k, pid in enumerate(dict.fromkeys(pid for pid, _ in tracks))}
        pids = list(number_of)
        process = np.array([number_of[pid] for pid, _ in tracks], np.int64)
        used, which = np.unique(process[track[waits]] << 16 | category[waits], return_inverse=True)
        slot[waits] = len(made) + which
        groups = used.tolist()
        made.add_section(
            Role.ASYNC,
            len(used),
            lambda k: PendingLane(Role.ASYNC, pids[groups[k] >> 16], categories[groups[k] & 0xFFFF]),
        )

    gpu = np.flatnonzero(_GPU_ROLE_OF_KIND[kind] >= 0)
    if len(gpu):
        which, on_gpu = _assign_gpu_lanes(
            tracks,
            track[gpu],
            _GPU_ROLE_OF_KIND[kind[gpu]].astype(np.int64),
            read_device(gpu),
            read_stream(gpu),
            process_pids,
        )
        slot[gpu] = len(made) + which
        made.add_gpu_lanes(on_gpu)

    counts = bincount_chunked(slot, len(made))
    kept = np.flatnonzero(counts)
    number = np.full(len(made), -1, np.int32)
    number[kept] = np.arange(len(kept), dtype=np.int32)
    return take_chunked(number, slot), made.select_lanes(kept, counts[kept])


NO_ARG = np.iinfo(np.int64).min


def _assign_gpu_lanes(
    tracks: list[tuple[str, str]],
    track: I32,
    role: I64,
    device: I64,
    stream: I64,
    processes: Container[str],
) -> tuple[I64, _GpuLanes]:
    """The places of GPU events by (role, device, stream); by track where no device is known (Ascend)."""
    untold = np.flatnonzero((device == NO_ARG) | (stream == NO_ARG))
    used, which = np.unique(track[untold], return_inverse=True)
    devices, streams = _parse_devices_and_streams([tracks[k] for k in used.tolist()], processes)
    for column, told in ((device, devices[which]), (stream, streams[which])):
        column[untold] = np.where(column[untold] == NO_ARG, told, column[untold])
    stream[(role == _ROLE_ORDER.index(Role.SYNC)) & (stream == _UNSIGNED_MINUS_ONE)] = DEVICE_WIDE
    # By track if there is no device, or if there is no stream either in args or tid.
    alone = (device < 0) | (stream == NO_ARG)
    keys = (role, np.where(alone, -1, device), np.where(alone, 0, stream), np.where(alone, track, -1))
    which = np.zeros(len(track), np.int64)
    for key in keys:
        code, known = factorize(key)
        which, _ = factorize(which * len(known) + code)
    count = int(which.max()) + 1
    example = np.full(count, len(track), np.int64)
    np.minimum.at(example, which, np.arange(len(track)))
    apart = alone[example]
    return which, _GpuLanes(
        tracks,
        track[example],
        role[example],
        np.where(apart, -1, device[example]),
        np.where(apart, NO_ARG, stream[example]),
    )


@dataclass(frozen=True, slots=True)
class _GpuLanes:
    """Places on GPUs, [k]: an event's track for each; `device` -1 and `stream` NO_ARG where a place is a track."""

    tracks: list[tuple[str, str]]
    track: I32
    role: I64
    device: I64
    stream: I64

    def create_lane(self, k: int) -> PendingLane:
        track, role = int(self.track[k]), _ROLE_ORDER[int(self.role[k])]
        if self.device[k] < 0:
            return _create_track_lane(role, self.tracks, track)
        on, number = int(self.device[k]), int(self.stream[k])
        return PendingLane(role, str(on), str(number), track, on, number)


def _create_track_lane(role: Role, tracks: list[tuple[str, str]], track: int) -> PendingLane:
    pid, tid = tracks[track]
    return PendingLane(role, pid, tid, track)


class _LaneSlots:
    """Places to be, by their numbers: sections of one role each, and at the end those on GPUs."""

    def __init__(self) -> None:
        self._factories: list[tuple[int, Callable[[int], PendingLane]]] = []
        self._roles: list[U8] = []
        self._devices: list[I64] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_section(self, role: Role, count: int, make: Callable[[int], PendingLane]) -> None:
        self._append_section(np.full(count, ROLES.index(role), np.uint8), np.full(count, -1, np.int64), make)

    def add_gpu_lanes(self, found: _GpuLanes) -> None:
        numbers = np.array([ROLES.index(role) for role in _ROLE_ORDER], np.uint8)
        self._append_section(numbers[found.role], found.device, found.create_lane)

    def _append_section(self, role: U8, device: I64, make: Callable[[int], PendingLane]) -> None:
        self._factories.append((self._count, make))
        self._roles.append(role)
        self._devices.append(device)
        self._count += len(role)

    def select_lanes(self, kept: I64, events: I64) -> PendingLanes:
        """Those of these numbers, int64[k], with so many events."""
        firsts = [first for first, _ in self._factories]

        def make(number: int) -> PendingLane:
            slot = int(kept[number])
            first, maker = self._factories[bisect_right(firsts, slot) - 1]
            return maker(slot - first)

        return PendingLanes(np.concatenate(self._roles)[kept], np.concatenate(self._devices)[kept], events, make)


def _parse_devices_and_streams(tracks: list[tuple[str, str]], processes: Container[str]) -> tuple[I64, I64]:
    """Device (-1 for none) and stream (`NO_ARG` for none) as pid and tid tell them."""
    devices = np.full(len(tracks), -1, np.int64)
    streams = np.full(len(tracks), NO_ARG, np.int64)
    for k, (pid, tid) in enumerate(tracks):
        if _DEVICE_NUMBER.fullmatch(pid) and int(pid) < _MAX_DEVICES and pid not in processes:
            devices[k] = int(pid)
        number = _LAST_NUMBER.search(tid)
        if number:
            streams[k] = int(number[0])
    return devices, streams


def lookup_sparse_arg(arg: SparseArg | None, entries: I32) -> I64:
    """A sparse arg of these entries, in any order; NO_ARG where one has none. `arg`: None where none of all has it."""
    found = np.full(len(entries), NO_ARG, np.int64)
    if arg is not None and len(arg.entries):
        place = np.searchsorted(arg.entries, entries)
        np.minimum(place, len(arg.entries) - 1, out=place)
        has = arg.entries[place] == entries
        found[has] = arg.values[place[has]]
    return found
