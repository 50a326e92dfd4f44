"""What mending a pattern would save: its remedy as a scenario of a step, predicted by the replay of its graph.

One step stands for the trace: that of median duration. The work is bounded, so that a check of a large trace takes no
second longer: large steps are left out, and of many problems those with most time at stake are predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from torchprof_tui.analysis.critical_path.step_window import WindowError, select_step
from torchprof_tui.analysis.patterns.engine.checker import severity_sort_key
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.what_if.forecast import Forecaster
from torchprof_tui.analysis.what_if.rank_join import build_step_model
from torchprof_tui.analysis.what_if.scenario import Scenario, ScenarioError, ScenarioKind, parse_scenario
from torchprof_tui.trace.model.trace import Trace

MAX_STEP_EVENTS = 400_000
"""Events of the step, on all ranks, up to which its graph is built."""

MAX_REPLAYED_EDGES = 150_000
"""Edges that are replayed for all predictions together: one takes 3 to 4 µs, in three rounds."""

_REMEDIES = {
    "overhead-bound": "launch=graph",
    "tiny-kernels": "launch=graph",
    "decode-without-graphs": "launch=graph",
    "memory-bound-elementwise": "compile",
    "sync-in-step": "sync=0",
    "token-sync": "sync=0",
    "trailing-sync": "sync=0",
    "input-starved": "dataloader=0",
    "optimizer-loop": "optimizer=fused",
    "exposed-comm": "collectives=overlapped",
    "straggler": "late-rank=0",
}
"""id -> the scenario that its remedy comes to. Remedies of some calls only, such as those of a loop, have none: a graph
of the whole step would save far more."""

_GONE_EVENTS = frozenset(
    (
        "hidden-copy",
        "pageable-copy",
        "copy-before-gemm",
        "layout-conversion",
        "autocast-casts",
        "gqa-expand-copy",
        "kv-cache-cat",
        "graph-input-copies",
        "buffer-request",
        "alloc-in-step",
    )
)
"""Patterns whose evidence would be gone."""


def find_remedy(finding: Finding) -> Scenario | None:
    """Find the scenario that mends a finding; None where none describes it."""
    remedy = _REMEDIES.get(finding.id)
    text = f"pattern={finding.id}"
    if remedy is not None:
        return replace(parse_scenario(remedy), text=text)
    if finding.id in _GONE_EVENTS and len(finding.answer.events):
        return Scenario(text, ScenarioKind.EVENT, factor=0.0, rows=tuple(finding.answer.events.tolist()))
    return None


@dataclass(frozen=True, slots=True)
class Wins:
    """What fixes save: `shares` of a step, 0..1, by pattern id. `step`: the name of the one that was replayed.

    `problem`: why nothing could be predicted and problems are ranked by time at stake, else empty.
    """

    shares: dict[str, float] = field(default_factory=dict)
    step: str = ""
    problem: str = ""

    @property
    def base(self) -> str:
        """What the shares are shares of."""
        return "a step" if self.step else "the recording"


def predict_wins(trace: Trace, findings: Sequence[Finding]) -> Wins:
    """Predict what mending each significant problem saves; findings worst first, rows of this trace.

    Without steps the whole recording is replayed, start-up included, which no remedy shortens: of it a fix saves at
    most the time at stake.
    """
    remedies = {finding.id: find_remedy(finding) for finding in findings if finding.is_significant}
    stakes = {finding.id: finding.share for finding in findings}
    scenarios = {name: remedy for name, remedy in remedies.items() if remedy is not None}
    if not scenarios:
        return Wins()
    try:
        events = _count_step_events(trace)
        if events > MAX_STEP_EVENTS:
            return Wins(problem=f"a step has {events:,} events; what a fix saves: what-if --set pattern=ID")
        forecaster = Forecaster(build_step_model(trace))
    except WindowError:
        return Wins()
    unchanged = forecaster.predict([])
    if not unchanged.is_trusted:
        error = abs(unchanged.replay_error) * 100
        return Wins(problem=f"the replay of a step is off by {error:.0f} %: critical-path says what is missing")
    found: dict[str, float] = {}
    known: dict[Scenario, float | None] = {}
    budget = MAX_REPLAYED_EDGES - len(forecaster.model.source)
    for name, scenario in scenarios.items():
        key = replace(scenario, text="")
        if key not in known:
            if known and budget < len(forecaster.model.source):
                continue
            budget -= len(forecaster.model.source)
            known[key] = _predict_share(forecaster, scenario)
        share = known[key]
        if share is not None:
            found[name] = share if trace.steps else min(share, stakes[name])
    return Wins(found, unchanged.step or "")


def rank_by_wins(findings: Sequence[Finding], wins: Wins) -> list[Finding]:
    """Set what fixes save, and sort the problems by it: of the others the time at stake counts."""
    known = [replace(finding, won=wins.shares.get(finding.id)) for finding in findings]
    return sorted(known, key=severity_sort_key)


def _predict_share(forecaster: Forecaster, scenario: Scenario) -> float | None:
    try:
        forecast = forecaster.predict([scenario])
    except ScenarioError:  # not in the step that is replayed
        return None
    return max(1 - forecast.after / forecast.before, 0.0) if forecast.before else None


def _count_step_events(trace: Trace) -> int:
    """Count the events of the step that is replayed, on all ranks. Raises WindowError."""
    ranks = [rank.trace for rank in trace.all_ranks]
    chosen = select_step(ranks[0], None)
    if chosen is None:
        return sum(len(each) for each in ranks)
    count = 0
    for each in ranks:
        step = select_step(each, chosen.number)
        if step is not None:
            inside = (each.start >= step.start) & (each.start < step.start + step.duration)
            count += int(np.count_nonzero(inside))
    return count
