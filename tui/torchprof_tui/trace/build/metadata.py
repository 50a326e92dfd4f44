"""What a trace says about itself as a whole: its steps, its devices, its rank, its counts by category."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from torchprof_tui.trace.build.event_phases import ClassifiedEntries
from torchprof_tui.trace.core.arrays import I32, I64, U8
from torchprof_tui.trace.core.factorize import bincount_chunked
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.raw_events import RawEvents
from torchprof_tui.trace.model.trace import Step


def collect_steps(names: list[str], name: I32, kind: U8, start: I64, duration: I64) -> list[Step]:
    """By start; a step that several threads recorded counts once, as its longest event."""
    found: list[Step] = []
    last: dict[str, int] = {}
    at = np.flatnonzero(kind == Kind.STEP)
    for event in at[np.lexsort((-duration[at], start[at]))].tolist():
        title = names[name[event]]
        digits = re.search(r"#([0-9]{1,18})", title)
        step = Step(title, int(digits[1]) if digits else len(found), event, int(start[event]), int(duration[event]))
        place = last.get(title)
        if place is not None and step.start < found[place].start + found[place].duration:
            if step.duration > found[place].duration:
                found[place] = step
            continue
        last[title] = len(found)
        found.append(step)
    return sorted(found, key=lambda step: step.start)


def read_devices(header: dict[str, Any]) -> list[dict[str, Any]]:
    """`deviceProperties`, as far as they are what they should be."""
    listed = header.get("deviceProperties")
    return [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []


def read_rank_and_world_size(header: dict[str, Any]) -> tuple[int | None, int | None]:
    """Rank and world size, where the trace says."""
    info = header.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    return _parse_count(info.get("rank")), _parse_count(info.get("world_size"))


def count_by_category(events: RawEvents, classified: ClassifiedEntries) -> dict[str, int]:
    """Complete events by category: X, and each pair of B and E once."""
    complete = (events.phase == ord("X")) & classified.drawn
    complete[classified.begin[events.phase[classified.begin] == ord("B")]] = True
    many = bincount_chunked(events.category[complete], len(events.categories)).tolist()
    return {category: count for category, count in zip(events.categories, many, strict=False) if count}


def _parse_count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
