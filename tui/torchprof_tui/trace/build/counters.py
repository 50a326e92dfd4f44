"""Values over time: `C` entries and what `[memory]` instants say about each device."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I32, I64, Array
from torchprof_tui.trace.model.raw_events import NO_TIME, RawEvents, SparseArg
from torchprof_tui.trace.model.trace import MemoryEvents

_DEVICE_TYPES = {0: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 13: "MPS", 15: "HPU", 19: "MTIA"}
"""c10/core/DeviceType.h: CUDA is 1, HIP 6 (ROCm writes either). Others are shown by number."""


@dataclass(frozen=True, slots=True)
class CounterSeries:
    """A counter to be: its heading, its name, its points in order of time."""

    pid: str
    tid: str
    group: str
    name: str
    unit: str
    times: I64
    values: F64


MAX_SERIES = 10_000
"""Each takes lanes, arrays and labels of its own: beyond this no screen shows them, and a file of millions would fill
the memory."""


def build_counter_series(events: RawEvents, process: dict[str, str]) -> tuple[list[CounterSeries], int, int]:
    """One series per (process, counter, id, series name), the first MOST_SERIES of them; how many `C` entries gave a
    point, and how many of the others have one for a series beyond."""
    points: defaultdict[tuple[str, int, int, str], list[tuple[int, float]]] = defaultdict(list)
    track, name, ids = events.track, events.name, events.id
    beyond: set[int] = set()
    for ordinal, series, value in events.counters:
        if events.time[ordinal] > NO_TIME:
            pid = events.tracks[track[ordinal]][0]
            key = (pid, int(name[ordinal]), int(ids[ordinal]), series)
            if len(points) < MAX_SERIES or key in points:
                points[key].append((ordinal, value))
            else:
                beyond.add(ordinal)
    found = []
    for (pid, counter, instance, series), listed in points.items():
        ordinals = np.array([ordinal for ordinal, _ in listed], np.int64)
        values = np.array([value for _, value in listed], np.float64)
        title = events.names[counter]
        if instance >= 0:
            title += f" [{events.ids[instance]}]"
        if series not in ("value", title):
            title = " ".join(filter(None, [title, series]))
        times = events.time[ordinals]
        order = np.argsort(times, kind="stable")
        group = " ".join(filter(None, [process.get(pid) or "process", pid]))
        found.append(CounterSeries(pid, title, group, title, "", times[order], values[order]))
    drawn = {ordinal for listed in points.values() for ordinal, _ in listed}
    return found, len(drawn), len(beyond - drawn)


def build_memory_table(ordinals: I32, time: I64, args: dict[str, SparseArg], lane: I32) -> MemoryEvents:
    """The `[memory]` instants at these entries. `time` and `lane` are those of the entries, [k]."""
    order = np.argsort(time, kind="stable")
    ordinals = ordinals[order]

    def column(name: str, missing: int) -> I64:
        out = np.full(len(ordinals), missing, np.int64)
        arg = args.get(name)
        if arg is not None and len(arg.entries):
            place = np.minimum(np.searchsorted(arg.entries, ordinals), len(arg.entries) - 1)
            hit = arg.entries[place] == ordinals
            out[hit] = arg.values[place[hit]]
        return out

    return MemoryEvents(
        time=time[order],
        lane=lane[order],
        device_type=column("device_type", -1),
        device_id=column("device_id", -1),
        bytes=column("bytes", 0),
        allocated=column("allocated", -1),
        reserved=column("reserved", -1),
        address=column("address", 0),
        ordinal=ordinals,
    )


def build_memory_series(memory: MemoryEvents) -> list[CounterSeries]:
    """Allocated and reserved bytes of each device. Where totals were not recorded, the sum since the start."""
    found = []
    devices: Array
    devices, which = np.unique(np.stack([memory.device_type, memory.device_id], axis=1), axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")  # one sort: a file may name as many devices as it likes
    of_each = np.split(order, np.cumsum(np.bincount(which.ravel()))[:-1])
    for (kind, number), mine in zip(devices.tolist(), of_each, strict=True):
        word = _DEVICE_TYPES.get(kind, f"device type {kind}" if kind >= 0 else "device")
        device = word if kind == 0 or number < 0 else f"{word} {number}"
        told = mine[memory.allocated[mine] >= 0]
        if len(told):
            found.append(_build_device_series(device, "allocated", memory.time[told], memory.allocated[told]))
        else:
            found.append(
                _build_device_series(device, "allocated since start", memory.time[mine], np.cumsum(memory.bytes[mine]))
            )
        held = mine[memory.reserved[mine] > 0]
        if len(held):
            found.append(_build_device_series(device, "reserved", memory.time[held], memory.reserved[held]))
    return found


def _build_device_series(device: str, what: str, times: I64, values: I64) -> CounterSeries:
    return CounterSeries(
        "", f"{device} {what}", "memory", f"{device} {what}", "bytes", times, values.astype(np.float64)
    )
