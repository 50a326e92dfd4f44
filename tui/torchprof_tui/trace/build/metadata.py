"""Collect the steps of a trace, and count its events by category."""

from __future__ import annotations

import re

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


def count_by_category(events: RawEvents, classified: ClassifiedEntries) -> dict[str, int]:
    """Count complete events by category: X, and each pair of B and E once."""
    complete = (events.phase == ord("X")) & classified.drawn
    complete[classified.begin[events.phase[classified.begin] == ord("B")]] = True
    counts = bincount_chunked(events.category[complete], len(events.categories)).tolist()
    return {category: count for category, count in zip(events.categories, counts, strict=False) if count}
