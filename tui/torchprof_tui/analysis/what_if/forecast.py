"""Predict the time of a step under scenarios, and what limits it then."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cached_property

from torchprof_tui.analysis.critical_path.critical_path import MAX_REPLAY_ERROR
from torchprof_tui.analysis.critical_path.segments import SegmentKind, describe_kind
from torchprof_tui.analysis.what_if.back_to_back import Rounds, replay_rounds, sum_path
from torchprof_tui.analysis.what_if.changes import apply_scenarios
from torchprof_tui.analysis.what_if.profiler_cost import find_unprofiled_share
from torchprof_tui.analysis.what_if.scenario import Scenario, parse_scenario
from torchprof_tui.analysis.what_if.step_model import StepModel
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration


class Resource(str, Enum):
    """What a step can be limited by."""

    CPU = "CPU dispatch"
    GPU = "GPU compute"
    COPIES = "memory copies"
    COMMUNICATION = "communication"
    INPUT = "input"
    WAITING = "waiting"


_RESOURCES = {
    SegmentKind.DISPATCH: Resource.CPU,
    SegmentKind.LAUNCH: Resource.CPU,
    SegmentKind.RUNTIME: Resource.CPU,
    SegmentKind.HOST: Resource.CPU,
    SegmentKind.PROFILER: Resource.CPU,
    SegmentKind.BLOCKING: Resource.WAITING,
    SegmentKind.INPUT: Resource.INPUT,
    SegmentKind.KERNEL: Resource.GPU,
    SegmentKind.QUEUE: Resource.GPU,
    SegmentKind.COPY: Resource.COPIES,
    SegmentKind.COLLECTIVE: Resource.COMMUNICATION,
    SegmentKind.UNATTRIBUTED: Resource.WAITING,
    SegmentKind.RANK: Resource.COMMUNICATION,
}


@record
class PathShare:
    """Time of one kind on the new critical path, ns; `share` of the path, 0..1."""

    label: str
    kind: SegmentKind
    time: int
    share: float

    @property
    def resource(self) -> Resource:
        return _RESOURCES[self.kind]


@record(slots=False)
class Forecast:
    """A step with some changes. Times in ns.

    `recorded`: the step as recorded, from where it begins (`StepWindow.begin`) until its last GPU work has ended;
    `replayed`: the same by the unchanged graph.
    `before`, `after`: from one step to the next when steps follow each other at once, unchanged and changed; `alone`:
    the changed step as `recorded`. `path`: what `after` consists of by kind, longest first.
    `rank`: number of the rank that decides, None for a trace of one process.
    """

    scenarios: tuple[Scenario, ...]
    step: str | None
    recorded: int
    replayed: int
    before: int
    after: int
    alone: int
    path: tuple[PathShare, ...]
    rank: int | None

    @property
    def replay_error(self) -> float:
        """(replayed - recorded) / recorded: 0 at best."""
        return (self.replayed - self.recorded) / self.recorded

    @property
    def is_trusted(self) -> bool:
        """Whether the replay error of the unchanged step is small enough."""
        return abs(self.replay_error) <= MAX_REPLAY_ERROR

    @property
    def speedup(self) -> float:
        """before / after; infinite where nothing is left."""
        return self.before / self.after if self.after else float("inf")

    @cached_property
    def resources(self) -> tuple[tuple[Resource, float], ...]:
        """Share of the new path by resource, largest first."""
        sums: dict[Resource, float] = {}
        for each in self.path:
            sums[each.resource] = sums.get(each.resource, 0.0) + each.share
        return tuple(sorted(sums.items(), key=lambda pair: -pair[1]))

    def describe_alone(self) -> str:
        """Describe how the changes act on one step by itself; "" where they act the same on steps in a row."""
        if not self.scenarios or not self.replayed or not self.before:
            return ""
        if abs(self.alone / self.replayed - self.after / self.before) < MIN_TOLD_DIFFERENCE:
            return ""
        times = f"{format_duration(self.replayed)} → {format_duration(self.alone)}"
        return f"one step by itself: {times}; in a row, the CPU prepares the next step while the GPU works on this one"

    @property
    def limit(self) -> Resource | None:
        """The resource with most of the new path."""
        return self.resources[0][0] if self.path else None

    @property
    def bottleneck(self) -> PathShare | None:
        """The largest kind on the new path: what to change next."""
        return self.path[0] if self.path else None


MIN_TOLD_DIFFERENCE = 0.02  # of a step: smaller differences between one step and steps in a row are not said


class Forecaster:
    """Predicts one step under one list of scenarios after the other.

    `is_unprofiled`: without the time that the profiler adds, of which only a bound is known (profiler_cost.py).
    """

    def __init__(self, model: StepModel, *, is_unprofiled: bool = False) -> None:
        self.model = model
        self._shares = tuple(find_unprofiled_share(rank) for rank in model.ranks) if is_unprofiled else ()

    def leave_out_profiler(self) -> Forecaster:
        """Return the forecaster of the same step without the time that the profiler adds."""
        return Forecaster(self.model, is_unprofiled=True)

    @cached_property
    def unchanged(self) -> Rounds:
        """The replay without changes."""
        return replay_rounds(self.model, apply_scenarios(self.model, (), self._shares)[1])

    def measure_saving(self, scenario: Scenario) -> tuple[int, int]:
        """Measure the step time without and with a scenario, ns; the latter is never longer. Raises ScenarioError."""
        before = self.unchanged.step_time
        _, delay, without = apply_scenarios(self.model, [scenario], self._shares)
        return before, min(before, replay_rounds(self.model, delay, without).step_time)

    def predict(self, scenarios: Sequence[Scenario | str]) -> Forecast:
        """Predict the step under these scenarios together. Raises ScenarioError."""
        parsed = tuple(parse_scenario(each) if isinstance(each, str) else each for each in scenarios)
        model, before = self.model, self.unchanged
        changes, delay, without = apply_scenarios(model, parsed, self._shares)
        rounds = replay_rounds(model, delay, without) if parsed else before
        window = model.ranks[0].window
        path = sum_path(model, rounds, changes)
        total = max(sum(time for _, _, time in path), 1)
        shares = [
            PathShare(describe_kind(kind, kernel_class), kind, time, time / total)
            for kind, kernel_class, time in path
            if time
        ]
        return Forecast(
            scenarios=parsed,
            step=None if window.step is None else window.step.name,
            recorded=model.duration,
            replayed=before.alone,
            before=before.step_time,
            after=rounds.step_time,
            alone=rounds.alone,
            path=tuple(sorted(shares, key=lambda each: -each.time)),
            rank=model.ranks[rounds.rank].number if len(model.ranks) > 1 else None,
        )
