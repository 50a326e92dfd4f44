"""Collect the steps of a trace, and count its events by category."""

from __future__ import annotations

from torchprof_tui.trace.build.event_columns import EventColumns
from torchprof_tui.trace.build.event_phases import ClassifiedEntries
from torchprof_tui.trace.core.factorize import bincount_chunked
from torchprof_tui.trace.model.raw_events import RawEvents
from torchprof_tui.trace.model.steps import Step, find_profiler_steps, find_serving_steps


def collect_steps(names: list[str], columns: EventColumns) -> list[Step]:
    """Collect the steps by start: those of a serving engine, which say what was served, else the `ProfilerStep#N`."""
    kind, name, start, duration = columns.kind, columns.name, columns.start, columns.duration
    steps = find_serving_steps(names, kind, name, columns.lane, start, duration)
    return steps or find_profiler_steps(names, kind, name, start, duration)


def count_by_category(events: RawEvents, classified: ClassifiedEntries) -> dict[str, int]:
    """Count complete events by category: X, and each pair of B and E once."""
    complete = (events.phase == ord("X")) & classified.drawn
    complete[classified.begin[events.phase[classified.begin] == ord("B")]] = True
    counts = bincount_chunked(events.category[complete], len(events.categories)).tolist()
    return {category: count for category, count in zip(events.categories, counts, strict=False) if count}
