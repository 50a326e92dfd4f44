"""Build counters: from `C` entries and from what `[memory]` instants record about each device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.build.event_phases import ClassifiedEntries, EntryAccounting
from torchprof_tui.trace.build.lane_assignment import PendingLane
from torchprof_tui.trace.core.arrays import F64, I64, Array
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.raw_events import NO_TIME, RawEvents
from torchprof_tui.trace.model.trace import MemoryEvents

_DEVICE_TYPES = {0: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 13: "MPS", 15: "HPU", 19: "MTIA"}
"""c10/core/DeviceType.h: CUDA is 1, HIP 6 (ROCm writes either). Others are shown by number."""


@dataclass(frozen=True, slots=True)
class CounterSeries:
    """A counter before layout: its group heading, its name, its points in order of time."""

    pid: str
    tid: str
    group: str
    name: str
    unit: str
    times: I64
    values: F64


MAX_SERIES = 10_000
"""Each takes lanes, arrays and labels of its own: no screen shows more than this, and a file of millions would fill
the memory."""

_SeriesKey = tuple[str, int, int, str]
"""(pid, number of the counter's name, number of its id or -1, series name)."""


def build_counter_series(
    events: RawEvents, process_names: Mapping[str, str], classified: ClassifiedEntries, accounting: EntryAccounting
) -> list[CounterSeries]:
    """Build one series per (process, counter, id, series name), the first MAX_SERIES of them.

    Accounts for the `C` entries: those that give a point are drawn.
    """
    points, drawn, beyond = _group_points(events)
    accounting.count_not_drawn("counter without a number", classified.counter_points - drawn - beyond)
    accounting.count_not_drawn("counter beyond the 10,000th", beyond)
    classified.drawn_entries += drawn
    return [_build_series(events, process_names, key, values) for key, values in points.items()]


def _group_points(events: RawEvents) -> tuple[dict[_SeriesKey, list[tuple[int, float]]], int, int]:
    """Group the points (ordinal, value) of each series; count the entries that gave one, and those of the others whose
    points are beyond MAX_SERIES."""
    points: defaultdict[_SeriesKey, list[tuple[int, float]]] = defaultdict(list)
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
    drawn = {ordinal for values in points.values() for ordinal, _ in values}
    return points, len(drawn), len(beyond - drawn)


def _build_series(
    events: RawEvents, process_names: Mapping[str, str], key: _SeriesKey, points: list[tuple[int, float]]
) -> CounterSeries:
    pid, counter, instance, series = key
    ordinals = np.array([ordinal for ordinal, _ in points], np.int64)
    values = np.array([value for _, value in points], np.float64)
    title = events.names[counter]
    if instance >= 0:
        title += f" [{events.ids[instance]}]"
    if series not in ("value", title):
        title = " ".join(filter(None, [title, series]))
    times = events.time[ordinals]
    order = np.argsort(times, kind="stable")
    group = " ".join(filter(None, [process_names.get(pid) or "process", pid]))
    return CounterSeries(pid, title, group, title, "", times[order], values[order])


def build_memory_table(
    events: RawEvents, classified: ClassifiedEntries, pending_lanes: list[PendingLane]
) -> MemoryEvents | None:
    """Collect the `[memory]` instants by time, each with the lane of the thread that allocated; None without any."""
    if not len(classified.memory):
        return None
    lane_of_track = np.full(len(events.tracks), -1, np.int32)
    for index, lane in enumerate(pending_lanes):
        if lane.role is Role.THREAD and lane.track >= 0:
            lane_of_track[lane.track] = index
    ordinals = classified.memory.astype(np.int32)
    time = events.time[ordinals]
    order = np.argsort(time, kind="stable")
    ordinals = ordinals[order]

    def column(name: str, missing: int) -> I64:
        out = np.full(len(ordinals), missing, np.int64)
        arg = events.args.get(name)
        if arg is not None and len(arg.entries):
            index = np.minimum(np.searchsorted(arg.entries, ordinals), len(arg.entries) - 1)
            hit = arg.entries[index] == ordinals
            out[hit] = arg.values[index[hit]]
        return out

    return MemoryEvents(
        time=time[order],
        lane=lane_of_track[events.track[ordinals]],
        device_type=column("device_type", -1),
        device_id=column("device_id", -1),
        bytes=column("bytes", 0),
        allocated=column("allocated", -1),
        reserved=column("reserved", -1),
        address=column("address", 0),
        ordinal=ordinals,
    )


def build_memory_series(memory: MemoryEvents | None) -> list[CounterSeries]:
    """Build series of the allocated and reserved bytes of each device.

    Where totals were not recorded, allocated is the sum since the start.
    """
    if memory is None:
        return []
    series = []
    devices: Array
    devices, code = np.unique(np.stack([memory.device_type, memory.device_id], axis=1), axis=0, return_inverse=True)
    order = np.argsort(code.ravel(), kind="stable")  # one sort: a file may name any number of devices
    events_by_device = np.split(order, np.cumsum(np.bincount(code.ravel()))[:-1])
    for (device_type, number), events in zip(devices.tolist(), events_by_device, strict=True):
        word = _DEVICE_TYPES.get(device_type, f"device type {device_type}" if device_type >= 0 else "device")
        device = word if device_type == 0 or number < 0 else f"{word} {number}"
        with_total = events[memory.allocated[events] >= 0]
        if len(with_total):
            series.append(
                _build_device_series(device, "allocated", memory.time[with_total], memory.allocated[with_total])
            )
        else:
            total = np.cumsum(memory.bytes[events])
            series.append(_build_device_series(device, "allocated since start", memory.time[events], total))
        with_reserved = events[memory.reserved[events] > 0]
        if len(with_reserved):
            series.append(
                _build_device_series(device, "reserved", memory.time[with_reserved], memory.reserved[with_reserved])
            )
    return series


def _build_device_series(device: str, quantity: str, times: I64, values: I64) -> CounterSeries:
    name = f"{device} {quantity}"
    return CounterSeries("", name, "memory", name, "bytes", times, values.astype(np.float64))
