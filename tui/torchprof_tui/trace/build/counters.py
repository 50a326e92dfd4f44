"""Build counters: from `C` entries and from what `[memory]` instants record about each device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from torchprof_tui.trace.build.event_phases import ClassifiedEntries, EntryAccounting
from torchprof_tui.trace.build.lane_assignment import PendingLane
from torchprof_tui.trace.core.arrays import F64, I64, Array, Bool, factorize
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.raw_events import NO_TIME, RawEvents
from torchprof_tui.trace.model.trace import MemoryEvents

_DEVICE_TYPES = {0: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 13: "MPS", 15: "HPU", 19: "MTIA"}
"""c10/core/DeviceType.h: CUDA is 1, HIP 6 (ROCm writes either). Others are shown by number."""


@record
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


def build_counter_series(
    events: RawEvents, process_names: Mapping[str, str], classified: ClassifiedEntries, accounting: EntryAccounting
) -> list[CounterSeries]:
    """Build one series per (process, counter, id, series name), the first MAX_SERIES of them.

    Accounts for the `C` entries: those that give a point are drawn.
    """
    points = events.counters
    timed = np.flatnonzero(events.time[points.entry] > NO_TIME)
    entry, series = points.entry[timed], points.series[timed]
    numbers: dict[str, int] = {}
    process_of = np.array([numbers.setdefault(pid, len(numbers)) for pid, _ in events.tracks], np.int64)
    process = process_of[events.track[entry]]
    keys = np.stack([process, events.name[entry], events.id[entry], series], axis=1)
    _, first, code = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)  # series in the order of their first points
    rank[np.argsort(first)] = np.arange(len(first))
    code = rank[code.ravel()]
    drawn = np.unique(entry[code < MAX_SERIES])
    beyond = len(np.unique(entry)) - len(drawn)
    accounting.count_not_drawn("counter without a number", classified.counter_points - len(drawn) - beyond)
    accounting.count_not_drawn("counter beyond the 10,000th", beyond)
    classified.drawn_entries += len(drawn)
    order = np.argsort(code, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(code, minlength=len(first)))[:-1]) if len(order) else []
    return [_build_series(events, process_names, timed[group]) for group in groups[:MAX_SERIES]]


def _build_series(events: RawEvents, process_names: Mapping[str, str], points: I64) -> CounterSeries:
    """Build the series of these points, indices in `events.counters`, at least one."""
    ordinals, values = events.counters.entry[points], events.counters.value[points]
    first = ordinals[0]
    pid, instance = events.tracks[events.track[first]][0], int(events.id[first])
    title = events.names[events.name[first]]
    if instance >= 0:
        title += f" [{events.ids[instance]}]"
    series = events.counters.names[events.counters.series[points[0]]]
    if series not in ("value", title):
        title = " ".join(filter(None, [title, series]))
    times = events.time[ordinals]
    order = np.argsort(times, kind="stable")
    word = process_names.get(pid) or ("process" if pid.isdigit() or not pid else "")  # "GPU 0 Counters" says what it is
    group = " ".join(filter(None, [word, pid]))
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

    found: list[tuple[Array, I64, Bool]] = []  # entries of an arg, the index of each instant there, whether it has it

    def column(name: str, missing: int) -> I64:
        out = np.full(len(ordinals), missing, np.int64)
        arg = events.args.get(name)
        if arg is None or not len(arg.entries):
            return out
        if not found or not np.array_equal(found[-1][0], arg.entries):  # most instants have all args
            index = np.minimum(np.searchsorted(arg.entries, ordinals), len(arg.entries) - 1)
            found.append((arg.entries, index, arg.entries[index] == ordinals))
        _, index, has_arg = found[-1]
        np.copyto(out, arg.values[index], where=has_arg)
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
    type_code, types = factorize(memory.device_type)
    id_code, ids = factorize(memory.device_id)
    code, known = factorize(type_code * len(ids) + id_code)
    narrow = code.astype(np.uint16) if len(known) < 1 << 16 else code  # uint16 sorts by radix
    order = np.argsort(narrow, kind="stable")  # one sort: a file may name any number of devices
    events_by_device = np.split(order, np.cumsum(np.bincount(code))[:-1])
    devices = zip(types[known // len(ids)].tolist(), ids[known % len(ids)].tolist(), strict=True)
    for (device_type, number), events in zip(devices, events_by_device, strict=True):
        word = _DEVICE_TYPES.get(device_type, f"device type {device_type}" if device_type >= 0 else "device")
        device = word if device_type == 0 or number < 0 else f"{word} {number}"
        with_total = events[memory.allocated[events] >= 0]
        with_reserved = events[memory.reserved[events] > 0]
        quantities = [("allocated", with_total, memory.allocated[with_total])]
        if not len(with_total):
            quantities = [("allocated since start", events, np.cumsum(memory.bytes[events]))]
        if len(with_reserved):
            quantities.append(("reserved", with_reserved, memory.reserved[with_reserved]))
        for quantity, points, values in quantities:
            name = f"{device} {quantity}"
            times, floats = memory.time[points], values.astype(np.float64)
            series.append(CounterSeries("", name, "memory", name, "bytes", times, floats))
    return series
