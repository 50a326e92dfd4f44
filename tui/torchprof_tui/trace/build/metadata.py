"""Read what describes a trace as a whole: its steps, its devices, its rank, its counts by category."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from torchprof_tui.trace.build.event_columns import EventColumns
from torchprof_tui.trace.build.event_phases import ClassifiedEntries
from torchprof_tui.trace.core.factorize import bincount_chunked
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.raw_events import RawEvents
from torchprof_tui.trace.model.trace import Step


def collect_steps(names: list[str], columns: EventColumns) -> list[Step]:
    """Collect the steps by start; a step that several threads recorded counts once, as its longest event."""
    steps: list[Step] = []
    last: dict[str, int] = {}
    start, duration = columns.start, columns.duration
    events = np.flatnonzero(columns.kind == Kind.STEP)
    for event in events[np.lexsort((-duration[events], start[events]))].tolist():
        title = names[columns.name[event]]
        digits = re.search(r"#([0-9]{1,18})", title)
        step = Step(title, int(digits[1]) if digits else len(steps), event, int(start[event]), int(duration[event]))
        index = last.get(title)
        if index is not None and step.start < steps[index].start + steps[index].duration:
            if step.duration > steps[index].duration:
                steps[index] = step
            continue
        last[title] = len(steps)
        steps.append(step)
    return sorted(steps, key=lambda step: step.start)


def read_devices(header: dict[str, Any]) -> list[dict[str, Any]]:
    """Read `deviceProperties`; entries that are not objects are dropped."""
    listed = header.get("deviceProperties")
    return [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []


def read_device_names(devices: list[dict[str, Any]]) -> dict[int, str]:
    """Map device numbers to names, "" where a device has none."""
    return {device["id"]: str(device.get("name") or "") for device in devices if isinstance(device.get("id"), int)}


def read_rank_and_world_size(header: dict[str, Any]) -> tuple[int | None, int | None]:
    """Read rank and world size from `distributedInfo`, None where the trace does not have them."""
    info = header.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    return _parse_count(info.get("rank")), _parse_count(info.get("world_size"))


def count_by_category(events: RawEvents, classified: ClassifiedEntries) -> dict[str, int]:
    """Count complete events by category: X, and each pair of B and E once."""
    complete = (events.phase == ord("X")) & classified.drawn
    complete[classified.begin[events.phase[classified.begin] == ord("B")]] = True
    counts = bincount_chunked(events.category[complete], len(events.categories)).tolist()
    return {category: count for category, count in zip(events.categories, counts, strict=False) if count}


def _parse_count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
