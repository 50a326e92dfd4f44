"""Which lane each event lies on.

The reader knows tracks: (pid, tid) pairs as text. A lane is a track in one role. GPU events go by `args.device`
and `args.stream` (tids lie: torch 1.9 wrote "stream 7", late 2024 made negative ones absolute); a stream's
annotations and syncs get lanes of their own beside it; async events lie by process and category; the profiler's
own spans and marks, which it spreads over pseudo processes, lie together. Tracks without events never become lanes:
Kineto declares sixteen GPUs where one is used.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from tui.trace.arrays import I32, I64, U8, U16, Array
from tui.trace.kinds import GPU_WORK, Kind
from tui.trace.raw import SparseArg
from tui.trace.trace import Role

DEVICE_WIDE = -1
"""The stream number of a sync that waited for a whole device."""

_UNSIGNED = 0xFFFFFFFF
"""What older writers made of -1."""

_MOST_DEVICES = 4096
"""A numeric pid below this on a GPU event is a device's number; above, a process's."""

SPANS, MARKS = "spans", "marks"
"""The profiler's two lanes beside its overhead: tids of ours, under the pid "profiler"."""

_ROLES = {
    **dict.fromkeys(GPU_WORK, Role.STREAM),
    Kind.SYNC: Role.SYNC,
    Kind.GPU_ANNOTATION: Role.GPU_ANNOTATIONS,
}
_ROLE_ORDER = (Role.STREAM, Role.SYNC, Role.GPU_ANNOTATIONS)


@dataclass(slots=True)
class Place:
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


def place_events(
    tracks: list[tuple[str, str]],
    categories: list[str],
    track: I32,
    category: U16,
    kind: U8,
    marks: Array,
    device: I64 | None,
    stream: I64 | None,
    processes: Container[str] = (),
) -> tuple[I32, list[Place]]:
    """The place of each drawn event: int32[d] into the list. Linear, but for sorting async and GPU events.

    All arrays are [d]: `marks` bool, which are instants; `device`, `stream` the args, `NO_ARG` where missing.
    `processes`: pids that never are a device's number, however small.
    """
    slot = track.astype(np.int32, copy=True)
    places = [Place(Role.THREAD, pid, tid, k) for k, (pid, tid) in enumerate(tracks)]

    overhead = np.flatnonzero(kind == Kind.OVERHEAD)
    used, which = np.unique(track[overhead], return_inverse=True)
    slot[overhead] = len(places) + which
    places += [Place(Role.PROFILER, tracks[k][0], tracks[k][1], k) for k in used.tolist()]

    own = np.flatnonzero(kind == Kind.PROFILER)
    slot[own] = len(places) + marks[own]
    places += [Place(Role.PROFILER, "profiler", tid) for tid in (SPANS, MARKS)]

    waits = np.flatnonzero(kind == Kind.ASYNC)
    number_of = {pid: k for k, pid in enumerate(dict.fromkeys(pid for pid, _ in tracks))}
    pids = list(number_of)
    process = np.array([number_of[pid] for pid, _ in tracks], np.int64)
    used, which = np.unique(process[track[waits]] << 16 | category[waits], return_inverse=True)
    slot[waits] = len(places) + which
    places += [Place(Role.ASYNC, pids[k >> 16], categories[k & 0xFFFF]) for k in used.tolist()]

    role = np.full(256, -1, np.int64)
    for one, its in _ROLES.items():
        role[one] = _ROLE_ORDER.index(its)
    gpu = np.flatnonzero(role[kind] >= 0)
    if len(gpu):
        which, on_gpu = _place_gpu(
            tracks,
            track[gpu],
            role[kind[gpu]],
            None if device is None else device[gpu],
            None if stream is None else stream[gpu],
            processes,
        )
        slot[gpu] = len(places) + which
        places += on_gpu

    counts = np.bincount(slot, minlength=len(places))
    kept = np.flatnonzero(counts)
    number = np.full(len(places), -1, np.int32)
    number[kept] = np.arange(len(kept), dtype=np.int32)
    chosen = [places[k] for k in kept.tolist()]
    for place, count in zip(chosen, counts[kept].tolist(), strict=True):
        place.events = count
    return number[slot], chosen


NO_ARG = np.iinfo(np.int64).min


def _place_gpu(
    tracks: list[tuple[str, str]],
    track: I32,
    role: I64,
    device: I64 | None,
    stream: I64 | None,
    processes: Container[str],
) -> tuple[I64, list[Place]]:
    """The places of GPU events by (role, device, stream); by track where no device is known (Ascend)."""
    devices, streams = _told_by(tracks, processes)
    device = devices[track] if device is None else np.where(device == NO_ARG, devices[track], device)
    stream = streams[track] if stream is None else np.where(stream == NO_ARG, streams[track], stream)
    stream[(role == _ROLE_ORDER.index(Role.SYNC)) & (stream == _UNSIGNED)] = DEVICE_WIDE
    # By track if there is no device, or if there is no stream either in args or tid.
    alone = (device < 0) | (stream == NO_ARG)
    keys = (role, np.where(alone, -1, device), np.where(alone, 0, stream), np.where(alone, track, -1))
    which = np.zeros(len(track), np.int64)
    for key in keys:
        code = _dense(key)
        which = _dense(which * (int(code.max()) + 1) + code)
    count = int(which.max()) + 1
    example = np.full(count, len(track), np.int64)
    np.minimum.at(example, which, np.arange(len(track)))
    places = []
    for k in example.tolist():
        name, its_role = tracks[int(track[k])], _ROLE_ORDER[int(role[k])]
        if alone[k]:
            places.append(Place(its_role, *name, track=int(track[k])))
        else:
            on, number = int(device[k]), int(stream[k])
            places.append(Place(its_role, str(on), str(number), int(track[k]), on, number))
    return which, places


def _dense(values: I64) -> I64:
    """The same with numbers from 0 on for the values that occur, ascending: through a table where that is no longer."""
    low = int(values.min())
    size = int(values.max()) - low + 1
    if size > 2 * len(values):
        return np.unique(values, return_inverse=True)[1].astype(np.int64)
    occurs = np.zeros(size, np.int64)
    occurs[values - low] = 1
    return (np.cumsum(occurs) - 1)[values - low]


def _told_by(tracks: list[tuple[str, str]], processes: Container[str]) -> tuple[I64, I64]:
    """Device (-1 for none) and stream (`NO_ARG` for none) as pid and tid tell them."""
    devices = np.full(len(tracks), -1, np.int64)
    streams = np.full(len(tracks), NO_ARG, np.int64)
    for k, (pid, tid) in enumerate(tracks):
        if pid not in processes and re.fullmatch(r"[0-9]{1,9}", pid) and int(pid) < _MOST_DEVICES:
            devices[k] = int(pid)
        number = re.search(r"-?[0-9]{1,18}$", tid)
        if number:
            streams[k] = int(number[0])
    return devices, streams


def given(ordinals: I32, arg: SparseArg | None) -> I64 | None:
    """A sparse arg at these entries, `NO_ARG` where an entry has none; None where no entry of the file has it."""
    if arg is None or not len(arg.entries):
        return None
    every = np.full(int(max(arg.entries[-1], ordinals.max(initial=0))) + 1, NO_ARG, np.int64)
    every[arg.entries] = arg.values
    found: I64 = every[ordinals]
    return found
