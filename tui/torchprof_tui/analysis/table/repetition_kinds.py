"""Say what repetitions are where a serving engine says it: prefill, decode or mixed steps."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.repetition.repetitions import Pattern, Repetitions
from torchprof_tui.analysis.serving.measure_steps import assign_steps, get_serving_steps
from torchprof_tui.analysis.serving.serving_steps import KINDS
from torchprof_tui.trace.core.arrays import U8
from torchprof_tui.trace.model.trace import Trace

MIN_KIND_SHARE = 0.8
"""Share of a repetition's kernels that steps of one kind must have launched: its bounds are found from the kernels."""

NO_KIND = 255


def find_kinds(trace: Trace, repetitions: Repetitions, pattern: Pattern) -> U8:
    """Find the kind of the serving steps that launched each repetition: uint8[r] index into KINDS, else NO_KIND."""
    kinds = np.full(len(pattern), NO_KIND, np.uint8)
    steps = get_serving_steps(trace)
    if not len(steps):
        return kinds
    events = repetitions.sequence.events
    launch = np.asarray(trace.links.launch_of[events])
    request = np.where(launch >= 0, launch, events)
    step = assign_steps(
        steps.start, steps.end, steps.lane, np.asarray(trace.lane[request]), np.asarray(trace.start[request])
    )
    kind_of_event = np.where(step >= 0, steps.kind[np.maximum(step, 0)], NO_KIND)
    for kind in range(len(KINDS)):
        before = np.concatenate([[0], np.cumsum(kind_of_event == kind)])
        share = (before[pattern.last] - before[pattern.first]) / (pattern.last - pattern.first)
        kinds[share >= MIN_KIND_SHARE] = kind
    return kinds


def name_kind(kind: int) -> str:
    """Return the name of a kind, "" for NO_KIND."""
    return "" if kind == NO_KIND else KINDS[kind].value
