"""Collect the steps of a trace, and count its events by category."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.build.event_columns import EventColumns
from torchprof_tui.trace.build.event_phases import ClassifiedEntries
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.factorize import bincount_chunked
from torchprof_tui.trace.core.thread_tasks import run_blocks
from torchprof_tui.trace.model.raw_events import RawEvents
from torchprof_tui.trace.model.steps import Step, find_profiler_steps, find_serving_steps


def collect_steps(names: list[str], columns: EventColumns) -> list[Step]:
    """Collect the steps by start: those of a serving engine, which say what was served, else the `ProfilerStep#N`."""
    kind, name, start, duration = columns.kind, columns.name, columns.start, columns.duration
    steps = find_serving_steps(names, kind, name, columns.lane, start, duration)
    return steps or find_profiler_steps(names, kind, name, start, duration)


def count_by_category(events: RawEvents, classified: ClassifiedEntries) -> dict[str, int]:
    """Count complete events by category: X, and each pair of B and E once."""
    categories = len(events.categories)
    parts: list[I64] = []

    def count(block: slice) -> None:
        is_complete = (events.phase[block] == ord("X")) & classified.drawn[block]
        parts.append(np.bincount(events.category[block][is_complete], minlength=categories))

    run_blocks(count, len(events))
    pairs = classified.begin[events.phase[classified.begin] == ord("B")]
    counts = sum(parts, bincount_chunked(events.category[pairs], categories)).tolist()
    return {category: count for category, count in zip(events.categories, counts, strict=False) if count}
