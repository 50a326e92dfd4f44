"""The verdict on a scope: which regime it is in, how busy the GPU was, and the one thing to do first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.gpu_gaps import Idle
from torchprof_tui.analysis.patterns.engine.partial_input import (
    OF_WHAT_WAS_READ,
    of_a_slice,
    proves_little,
    why,
)
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Pattern
from torchprof_tui.analysis.patterns.engine.scope_view import View, percent
from torchprof_tui.analysis.patterns.rules.multi_gpu import (
    STRAGGLER,
    exposed_times,
    exposed_waiting,
    late_rank,
)


class Regime(str, Enum):
    OVERHEAD = "overhead-bound"
    COMPUTE = "compute-bound"
    INPUT = "input-bound"
    COMMUNICATION = "communication-bound"
    MIXED = "mixed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the window's time without the profiler's, over all devices, 0..1. `idle` by reason sums to 1 − busy."""

    OVERHEAD: ClassVar[tuple[int, ...]] = (int(Idle.LAUNCH), int(Idle.HOST), int(Idle.SYNC))

    busy: float
    kernels: float  # kernels and fills: no copies, no collectives
    exposed: float  # collectives while nothing else computed
    idle: dict[Idle, float] = field(default_factory=dict)

    @property
    def overhead(self) -> float:
        return sum(self.idle.get(Idle(reason), 0.0) for reason in self.OVERHEAD)

    @property
    def input(self) -> float:
        return self.idle.get(Idle.INPUT, 0.0)

    @property
    def communication(self) -> float:
        return self.exposed + self.idle.get(Idle.COMMUNICATION, 0.0)

    @property
    def overhead_bound(self) -> bool:
        idle = sum(self.idle.values())
        low = self.busy < limits.GPU_BUSY_LOW.value
        return low and idle > 0 and self.overhead >= limits.OVERHEAD_OF_IDLE.value * idle


def measure(view: View) -> Shares:
    """The shares of a scope; all 0 where it has no window or no GPU."""
    facts = view.facts
    whole = view.device_time
    if whole <= 0:
        return Shares(0.0, 0.0, 0.0)
    idle: dict[Idle, float] = {
        reason: time / whole for reason, time in view.gaps.by_reason().items() if reason is not Idle.PROFILER
    }
    exposed = sum(times.total for times in exposed_times(view).values())
    return Shares(view.busy, view.share_on(facts.kernel_time), exposed / whole, idle)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`busy` 0..1, None without a GPU. `first`: the one thing to do, a line."""

    regime: Regime
    busy: float | None
    first: str

    @property
    def line(self) -> str:
        """The whole verdict in one line."""
        if self.busy is None:
            return self.first
        return f"{self.regime.value} · GPU busy {percent(self.busy)} · {self.first}"


_FIRST = {
    Regime.OVERHEAD: "first: fewer, larger launches (torch.compile, CUDA graphs, bigger batches)",
    Regime.COMPUTE: "first: the heaviest kernel (precision, fusion); the CPU is not in the way",
    Regime.INPUT: "first: feed it faster (DataLoader workers, prefetch, pinned memory)",
    Regime.COMMUNICATION: "first: overlap communication with compute (bucket sizes, prefetch)",
}
_OF_IDLE = {
    Idle.LAUNCH: "first: the CPU's dispatch, which the GPU waits for {share} of the time",
    Idle.HOST: "first: the code between ops, which the GPU waits for {share} of the time",
    Idle.SYNC: "first: the syncs, which leave the GPU idle {share} of the time",
    Idle.INPUT: "first: the input pipeline, which the GPU waits for {share} of the time",
    Idle.COMMUNICATION: "first: the collectives, which the GPU waits for {share} of the time",
    Idle.QUEUED: "first: what streams wait for on each other, {share} of the time",
}


def verdict(view: View, findings: Sequence[Finding] = ()) -> Verdict:
    """The regime of a scope. `findings` (of the same scope), where there are any, make the advice specific: to
    recompile less, say, where that is what keeps the CPU."""
    if missing := view.missing_window():
        if lost := view.facts.losses:
            missing = f"cannot be told: {why(missing, lost)}"
        return Verdict(Regime.UNKNOWN, None, of_a_slice(missing) if view.facts.sliced else missing)
    shares = measure(view)
    regime = _regime(shares)
    lost = view.facts.losses
    if lost and regime is not Regime.COMPUTE and proves_little(lost):  # what is missing cannot make a GPU less busy
        return Verdict(Regime.UNKNOWN, shares.busy, f"cannot be told: {lost.reason}; this is {OF_WHAT_WAS_READ}")
    first = _first(view, regime, shares, findings)
    return Verdict(regime, shares.busy, f"{first} ({OF_WHAT_WAS_READ}: {lost.counted})" if lost else first)


def _first(view: View, regime: Regime, shares: Shares, findings: Sequence[Finding]) -> str:
    """The one thing to do first."""
    if regime is Regime.COMMUNICATION and (late := _waits_for(view)):
        return f"first: {late}"
    first = _FIRST.get(regime)
    specific = _specific(findings, limits.ADVICE_IDLE.value if first is None else limits.BOUND_SHARE.value)
    if regime in (Regime.OVERHEAD, Regime.MIXED) and specific:
        return f"first: {late_rank(view) or specific.action if specific.id == STRAGGLER else specific.action}"
    return _in_a_mix(shares) if first is None else first


def _waits_for(view: View) -> str:
    """Whom to look at, where most of the exposed communication is waiting for a late rank: no overlap wins that."""
    exposed = sum(times.total for times in exposed_times(view).values())
    return late_rank(view) if exposed_waiting(view) > limits.WAITING_OF_EXPOSED.value * exposed else ""


def _regime(shares: Shares) -> Regime:
    lost = {Regime.COMMUNICATION: shares.communication, Regime.INPUT: shares.input}
    worst = max(lost, key=lambda regime: lost[regime])
    if lost[worst] >= limits.BOUND_SHARE.value and lost[worst] >= shares.overhead:
        return worst
    if shares.kernels >= limits.GPU_BUSY_HIGH.value:
        return Regime.COMPUTE
    return Regime.OVERHEAD if shares.overhead_bound else Regime.MIXED


_GENERAL = ("overhead-bound", "idle-gap")
"""They say that the GPU waits; any other problem says for what."""


def _specific(findings: Sequence[Finding], least: float) -> Pattern | None:
    """The worst problem that has a cause of its own, None where none has so much at stake."""
    problems = [found for found in findings if found.is_problem and found.id not in _GENERAL and found.share >= least]
    return max(problems, key=lambda found: found.share).pattern if problems else None


def _in_a_mix(shares: Shares) -> str:
    copies = shares.busy - shares.kernels - shares.exposed
    if shares.busy and copies >= limits.COMPUTE_OF_BUSY.value:
        return f"first: the copies, which keep the GPU busy {percent(copies)} of the time with nothing computed beside"
    causes = shares.idle
    if causes:
        reason = max(causes, key=lambda one: causes[one])
        if causes[reason] >= limits.ADVICE_IDLE.value:
            return _OF_IDLE[reason].format(share=percent(causes[reason]))
    return "nothing stands out: look at the heaviest kernel"
