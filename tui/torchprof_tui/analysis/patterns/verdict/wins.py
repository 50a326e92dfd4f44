"""Predict what a fix saves at most: replay a step without the launches, kernels and waits of its finding.

The step of median duration stands for the trace, or all of them where they differ. A saving is claimed only where other
ways to measure it come to the same: what the finding costs, the replay without the profiler's time, and the median step
where steps differ. The work is bounded, so that a check of a large trace takes no second longer: large steps are left
out, and of many problems those that cost most are replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

import numpy as np

from torchprof_tui.analysis.critical_path.step_window import WindowError, select_step
from torchprof_tui.analysis.kernel.footprint import find_device
from torchprof_tui.analysis.kernel.memory_transfer import find_pcie_bandwidth
from torchprof_tui.analysis.kernel.names.copies import is_host_copy, is_pinned
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.checker import severity_sort_key
from torchprof_tui.analysis.patterns.engine.event_tables import transfer_sizes
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.verdict.costs import CostBase
from torchprof_tui.analysis.patterns.verdict.forecast_errors import read_forecast_errors
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.what_if.forecast import Forecast, Forecaster
from torchprof_tui.analysis.what_if.scenario import Scenario, ScenarioError, ScenarioKind, parse_scenario
from torchprof_tui.analysis.what_if.step_model import build_step_model
from torchprof_tui.trace.core.arrays import I64, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

MAX_STEP_EVENTS = 400_000  # events of the replayed steps, on all ranks, up to which their graphs are built

MAX_REPLAYED_EDGES = 150_000
"""Edges that are replayed for all predictions together: one takes 3 to 4 µs, in three rounds."""

PINNED_SHARE_OF_LINK = 0.88  # of the bandwidth of PCI Express: 55 GB/s of 63 in tests/fixtures/faults, H100

SAME = 0.10  # largest difference of two shares of a step that are taken for the same saving
MOST_ABOVE_COST = 0.05
"""By which a replay may save more than the finding costs: a larger excess says that the cost leaves something out."""

_REMEDIES = {
    "overhead-bound": "launch=graph",
    "tiny-kernels": "launch=graph",
    "decode-without-graphs": "launch=graph",
    "memory-bound-elementwise": "compile",
    "sync-in-step": "sync=0",
    "token-sync": "sync=0",
    "trailing-sync": "sync=0",
    "pageable-copy": "sync=0",
    "input-starved": "dataloader=0",
    "optimizer-loop": "optimizer=fused",
    "exposed-comm": "collectives=overlapped",
    "straggler": "late-rank=0",
}
"""id -> the scenario that its remedy comes to, of its own events."""

_OWN_LAUNCHES = frozenset(("tiny-kernels", "memory-bound-elementwise", "sync-in-step", "token-sync", "pageable-copy"))
"""Patterns whose evidence is what the remedy changes. That of the others stands for the step: its launches, its loader,
its optimizer, its collectives."""

_GONE_EVENTS = frozenset(("hidden-copy", "copy-before-gemm", "layout-conversion", "autocast-casts", "gqa-expand-copy"))
_GONE_EVENTS |= {"kv-cache-cat", "graph-input-copies", "buffer-request", "alloc-in-step"}
"""Patterns whose evidence would be gone."""


def find_remedy(trace: Trace, finding: Finding) -> Scenario | None:
    """Find the scenario that mends a finding; None where none describes it."""
    remedy, events = _REMEDIES.get(finding.id), finding.answer.events
    if finding.answer.removed is not None:
        events = finding.answer.removed
    if finding.id == "pageable-copy":  # pinning also frees the thread from the small copies beside the large ones
        events = np.flatnonzero(is_in(trace.name, sorted_unique(trace.name[events]))).astype(np.int64)
    text = f"pattern={finding.id}"
    if remedy is not None:
        rows = _add_launches(trace, events).tobytes() if finding.id in _OWN_LAUNCHES else b""
        left = _estimate_pinned_share(trace, finding.answer.events) if finding.id == "pageable-copy" else 1.0
        return replace(parse_scenario(remedy), text=text, rows=rows, copies_left=left)
    gaps = finding.answer.removed_gaps
    pairs = () if gaps is None else tuple((first, last) for first, last in gaps.tolist())
    if (finding.id in _GONE_EVENTS or finding.pattern.is_fault) and (len(events) or pairs):
        rows = _add_launches(trace, events).tobytes()
        return Scenario(text, ScenarioKind.EVENT, factor=0.0, rows=rows, gaps=pairs)
    return None


def _estimate_pinned_share(trace: Trace, copies: I64) -> float:
    """Estimate what is left of the time of pageable copies once they are pinned, 0..1; 1 where a size is not known.

    By the rate of the trace's pinned copies, else by that of the link, which the slot may not reach.
    """
    size, device = transfer_sizes(trace, copies), find_device(trace, int(copies[0])) if len(copies) else None
    if not len(copies) or (size < 0).any():
        return 1.0
    pinned = np.flatnonzero(match_names(trace, lambda name: is_pinned(name) and is_host_copy(name)))
    pinned_size = transfer_sizes(trace, pinned)
    pinned, pinned_size = (each[pinned_size > thresholds.PAGEABLE_MIN.value] for each in (pinned, pinned_size))
    rate = PINNED_SHARE_OF_LINK * (find_pcie_bandwidth(device.name if device else "") or 0.0)
    if len(pinned):
        rate = float(pinned_size.sum()) / max(int(trace.duration[pinned].sum()), 1)
    time = int(trace.duration[copies].sum())
    return min(float(size.sum()) / rate / time, 1.0) if rate and time else 1.0


def _add_launches(trace: Trace, events: I64) -> I64:
    """Add to events, of those on the GPU, the ops that launched them, else the launch calls: rows, int64[k]."""
    calls = trace.links.launch_of[events]
    calls = sorted_unique(calls[calls >= 0]).astype(np.int64)
    parent = trace.parent[calls].astype(np.int64)
    in_op = (parent >= 0) & (trace.kind[np.maximum(parent, 0)] == Kind.OP)
    return sorted_unique(np.concatenate([events, np.where(in_op, parent, calls)])).astype(np.int64)


@record
class Wins:
    """What fixes save at most: `shares` of what costs are shares of, 0..1, by pattern id. `steps`: those replayed.

    `doubtful`: ids of those that are not claimed, since something else comes to another number. `problem`: why nothing
    could be predicted, else empty.
    """

    shares: dict[str, float] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    problem: str = ""
    doubtful: frozenset[str] = frozenset()


def predict_wins(trace: Trace, findings: Sequence[Finding], base: CostBase) -> Wins:
    """Predict what mending each significant problem saves; findings worst first, rows of this trace.

    A fix saves at most what the finding costs. No forecast is made by patterns whose forecasts were no better than none
    in programs that were measured.
    """
    scenarios = _find_scenarios(trace, findings)
    if not scenarios or (trace.steps and not base.steps):
        return Wins()
    try:
        numbers = _choose_steps(trace, base)
        events = sum(_count_step_events(trace, number) for number in numbers)
        if events > MAX_STEP_EVENTS:
            return Wins(problem=f"a step has {events:,} events; what a fix saves: what-if --set pattern=ID")
        forecasters = [Forecaster(build_step_model(trace, number)) for number in numbers]
    except WindowError:
        return Wins()
    unchanged = [forecaster.predict([]) for forecaster in forecasters]
    problem = _find_problem(forecasters, unchanged)
    if problem:
        return Wins(problem=problem)
    costs = {finding.id: finding.share for finding in findings}
    saved = dict(_replay_all(forecasters, scenarios))
    likely = {name: scenarios[name] for name, saving in saved.items() if saving.is_like(costs[name], scenarios[name])}
    unprofiled = [forecaster.leave_out_profiler() for forecaster in forecasters] if likely else []
    sure = {name for name, other in _replay_all(unprofiled, likely) if abs(other.share - saved[name].share) <= SAME}
    sure -= {name for name, error in read_forecast_errors().items() if error.is_rough}
    shares = {name: min(saving.share, costs[name]) for name, saving in saved.items()}
    steps = tuple(each.step for each in unchanged if each.step)
    return Wins(shares, steps, doubtful=frozenset(shares) - sure)


def _find_scenarios(trace: Trace, findings: Sequence[Finding]) -> dict[str, Scenario]:
    """Find what is to be replayed for the significant problems, by pattern id."""
    withdrawn = {name for name, error in read_forecast_errors().items() if error.is_withdrawn}
    if trace.merged_ranks is None:
        withdrawn.add("exposed-comm")  # what the other ranks would do meanwhile is not recorded
    significant = [finding for finding in findings if finding.is_significant and finding.id not in withdrawn]
    found = {finding.id: find_remedy(trace, finding) for finding in significant}
    return {name: remedy for name, remedy in found.items() if remedy is not None}


def _find_problem(forecasters: Sequence[Forecaster], unchanged: Sequence[Forecast]) -> str:
    """Say why the replay of these steps forecasts nothing; empty where it can be trusted."""
    works = [rank.window.work for forecaster in forecasters for rank in forecaster.model.ranks]
    if any(map(len, works)) and not any(work.is_launched.any() for work in works):
        return "no GPU work has a recorded launch, so that a replay does not know what waits for what"
    if all(each.is_trusted for each in unchanged):
        return ""
    error = max(abs(each.replay_error) for each in unchanged) * 100
    return f"the replay of a step is off by {error:.0f} %: critical-path says what is missing"


def _choose_steps(trace: Trace, base: CostBase) -> list[int | None]:
    """Choose the numbers of the steps to replay: the median one, or all where they differ and are few enough."""
    if not base.differ or base.steps < 2:
        return [None]
    numbers: list[int | None] = [step.number for step in trace.all_ranks[0].trace.steps]
    return numbers if sum(_count_step_events(trace, number) for number in numbers) <= MAX_STEP_EVENTS else [None]


@record
class Saving:
    """What a scenario saves of the replayed steps together, and of the median one of them: 0..1."""

    share: float
    of_median: float

    def is_like(self, cost: float, scenario: Scenario) -> bool:
        """Whether it fits what the finding costs, of which only a remedy leaves a part, and the steps agree."""
        least = cost - SAME if scenario.kind is ScenarioKind.EVENT else 0.0
        return least <= self.share <= cost + MOST_ABOVE_COST and abs(self.of_median - self.share) <= SAME


def _replay_all(forecasters: Sequence[Forecaster], scenarios: dict[str, Scenario]) -> Iterator[tuple[str, Saving]]:
    """Replay each scenario in all steps, as long as the number of edges allows: the ids and what is saved."""
    edges = sum(len(forecaster.model.source) for forecaster in forecasters)
    known: dict[Scenario, Saving | None] = {}
    budget = MAX_REPLAYED_EDGES - edges
    for name, scenario in scenarios.items():
        key = replace(scenario, text="")
        if key not in known:
            if known and budget < edges:
                continue
            budget -= edges
            known[key] = _measure_saving(forecasters, scenario)
        saving = known[key]
        if saving is not None:
            yield name, saving


def rank_by_wins(findings: Sequence[Finding], wins: Wins) -> list[Finding]:
    """Set what fixes save, and sort again: a problem whose fix saves next to nothing is none."""
    won = (
        replace(finding, won=wins.shares.get(finding.id), is_won_doubtful=finding.id in wins.doubtful)
        for finding in findings
    )
    return sorted(won, key=severity_sort_key)


def _measure_saving(forecasters: Sequence[Forecaster], scenario: Scenario) -> Saving | None:
    """Measure what a scenario saves of these steps; None where it changes none of them."""
    times = []
    is_changed = False
    for forecaster in forecasters:
        before = forecaster.unchanged.step_time
        times.append((before, before))
        try:
            times[-1] = forecaster.measure_saving(scenario)
            is_changed = True
        except ScenarioError:  # not in this step
            pass
    before, after = (sum(column) for column in zip(*times, strict=True))
    if not is_changed or not before:
        return None
    median, left = sorted(times)[len(times) // 2]
    return Saving(1 - after / before, 1 - left / median if median else 0.0)


def _count_step_events(trace: Trace, number: int | None) -> int:
    """Count the events of a step that is replayed, by default of the median one, on all ranks. Raises WindowError."""
    ranks = [rank.trace for rank in trace.all_ranks]
    chosen = select_step(ranks[0], number)
    if chosen is None:
        return sum(len(each) for each in ranks)
    count = 0
    for each in ranks:
        step = select_step(each, chosen.number)
        if step is not None:
            inside = (each.start >= step.start) & (each.start < step.start + step.duration)
            count += int(np.count_nonzero(inside))
    return count
