"""Find the kind of a language model's steps in which the GPU waits, where one kind is replayed and another is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count
from torchprof_tui.analysis.patterns.rules.generation_steps import GenerationSteps, find_generation_steps
from torchprof_tui.analysis.serving.serving_steps import KINDS, StepKind
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration

_MOST_OF_THE_WAITING = 0.8
"""Share of the waiting time in steps that is in steps of one kind, for that kind to be named."""


@dataclass(frozen=True, slots=True)
class StepKindWaits:
    """The kind of steps in which the GPU waits. `steps`: the steps' events, int64[k]; `idle`, `total`: ns, all GPUs."""

    kind: StepKind
    steps: I64
    kernels: int
    idle: int
    total: int

    @property
    def text(self) -> str:
        """Where the waiting is, and how these steps launch their work."""
        return (
            f"{format_duration(self.idle)} of {format_duration(self.total)} in {format_count(len(self.steps), 'step')} "
            f"of {self.kind.value}, {self.kernels // len(self.steps):,} kernels each, launched one by one; the other "
            "steps replay graphs"
        )

    @property
    def remedy(self) -> str:
        if self.kind is StepKind.PREFILL:
            return "the decode steps are graphs already: compile the prefill, or read more tokens at once"
        return f"capture the {self.kind.value} steps as well: the others are graphs already"


def find_waiting_kind(view: ScopeView) -> StepKindWaits | None:
    """Find the kind of steps with most of the waiting; None unless it alone is launched without graphs."""
    steps: GenerationSteps = view.tables.compute_once(find_generation_steps)
    t0, t1 = view.window
    inside = (steps.start < t1) & (steps.end > t0)
    kinds = [kind for kind in KINDS if (inside & steps.kind_mask(kind)).any()]
    if len(kinds) < 2:
        return None
    idle = view.gap_finder.known_idle_intervals
    times = []
    for kind in kinds:
        chosen = inside & steps.kind_mask(kind)
        of_kind = union(steps.start[chosen], steps.end[chosen]).clip(t0, t1)
        times.append(sum((intervals & of_kind).total for intervals in idle.values()))
    worst = int(np.argmax(times))
    chosen = inside & steps.kind_mask(kinds[worst])
    kernels = int(steps.kernels[chosen].sum())
    if times[worst] < _MOST_OF_THE_WAITING * sum(times) or not kernels:
        return None
    others = inside & ~chosen
    is_replayed = [
        float(steps.graph_kernels[mask].sum()) >= thresholds.GRAPH_SHARE.value * max(int(steps.kernels[mask].sum()), 1)
        for mask in (chosen, others)
    ]
    if is_replayed != [False, True]:
        return None
    return StepKindWaits(kinds[worst], steps.row[chosen].astype(np.int64), kernels, times[worst], sum(times))
