"""The verdict on a scope: which regime it is in, how busy the GPU was, and the one thing to do first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.gpu_gaps import IdleReason
from torchprof_tui.analysis.patterns.engine.partial_input import (
    PARTIAL_INPUT_NOTE,
    format_missing_reason,
    is_loss_significant,
    reword_for_slice,
)
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.patterns.rules.multi_gpu import (
    STRAGGLER_ID,
    describe_late_rank,
    exposed_intervals,
    exposed_waiting_time,
)


class Regime(str, Enum):
    OVERHEAD = "overhead-bound"
    COMPUTE = "compute-bound"
    INPUT = "input-bound"
    COMMUNICATION = "communication-bound"
    MIXED = "mixed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DeviceTimeShares:
    """Of the window's time without the profiler's, over all devices, 0..1. `idle` by reason sums to 1 − busy."""

    OVERHEAD_REASONS: ClassVar[tuple[int, ...]] = (int(IdleReason.LAUNCH), int(IdleReason.HOST), int(IdleReason.SYNC))

    busy: float
    compute: float  # kernels and fills: no copies, no collectives
    exposed_communication: float  # collectives while nothing else computed
    idle: dict[IdleReason, float] = field(default_factory=dict)

    @property
    def overhead(self) -> float:
        return sum(self.idle.get(IdleReason(reason), 0.0) for reason in self.OVERHEAD_REASONS)

    @property
    def input(self) -> float:
        return self.idle.get(IdleReason.INPUT, 0.0)

    @property
    def communication(self) -> float:
        return self.exposed_communication + self.idle.get(IdleReason.COMMUNICATION, 0.0)

    @property
    def is_overhead_bound(self) -> bool:
        idle = sum(self.idle.values())
        low = self.busy < limits.GPU_BUSY_LOW.value
        return low and idle > 0 and self.overhead >= limits.OVERHEAD_SHARE_OF_IDLE.value * idle


def measure_shares(view: ScopeView) -> DeviceTimeShares:
    """The shares of a scope; all 0 where it has no window or no GPU."""
    facts = view.tables
    whole = view.device_time
    if whole <= 0:
        return DeviceTimeShares(0.0, 0.0, 0.0)
    idle: dict[IdleReason, float] = {
        reason: time / whole for reason, time in view.gaps.time_by_reason().items() if reason is not IdleReason.PROFILER
    }
    exposed = sum(times.total for times in exposed_intervals(view).values())
    return DeviceTimeShares(view.busy_share, view.share_of_device_time(facts.compute_intervals), exposed / whole, idle)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`busy` 0..1, None without a GPU. `first`: the one thing to do, a line."""

    regime: Regime
    busy: float | None
    advice: str

    @property
    def line(self) -> str:
        """The whole verdict in one line."""
        if self.busy is None:
            return self.advice
        return f"{self.regime.value} · GPU busy {format_percent(self.busy)} · {self.advice}"


_ADVICE_BY_REGIME = {
    Regime.OVERHEAD: "first: fewer, larger launches (torch.compile, CUDA graphs, bigger batches)",
    Regime.COMPUTE: "first: the heaviest kernel (precision, fusion); the CPU is not in the way",
    Regime.INPUT: "first: feed it faster (DataLoader workers, prefetch, pinned memory)",
    Regime.COMMUNICATION: "first: overlap communication with compute (bucket sizes, prefetch)",
}
_ADVICE_BY_IDLE_REASON = {
    IdleReason.LAUNCH: "first: the CPU's dispatch, which the GPU waits for {share} of the time",
    IdleReason.HOST: "first: the code between ops, which the GPU waits for {share} of the time",
    IdleReason.SYNC: "first: the syncs, which leave the GPU idle {share} of the time",
    IdleReason.INPUT: "first: the input pipeline, which the GPU waits for {share} of the time",
    IdleReason.COMMUNICATION: "first: the collectives, which the GPU waits for {share} of the time",
    IdleReason.QUEUED: "first: what streams wait for on each other, {share} of the time",
}


def decide_verdict(view: ScopeView, findings: Sequence[Finding] = ()) -> Verdict:
    """The regime of a scope. `findings` (of the same scope), where there are any, make the advice specific: to
    recompile less, say, where that is what keeps the CPU."""
    if missing := view.missing_window_reason():
        if lost := view.tables.data_loss:
            missing = f"cannot be told: {format_missing_reason(missing, lost)}"
        return Verdict(Regime.UNKNOWN, None, reword_for_slice(missing) if view.tables.is_slice else missing)
    shares = measure_shares(view)
    regime = _decide_regime(shares)
    lost = view.tables.data_loss
    if (
        lost and regime is not Regime.COMPUTE and is_loss_significant(lost)
    ):  # what is missing cannot make a GPU less busy
        return Verdict(Regime.UNKNOWN, shares.busy, f"cannot be told: {lost.reason}; this is {PARTIAL_INPUT_NOTE}")
    first = _choose_advice(view, regime, shares, findings)
    return Verdict(regime, shares.busy, f"{first} ({PARTIAL_INPUT_NOTE}: {lost.summary})" if lost else first)


def _choose_advice(view: ScopeView, regime: Regime, shares: DeviceTimeShares, findings: Sequence[Finding]) -> str:
    """The one thing to do first."""
    if regime is Regime.COMMUNICATION and (late := _advise_on_late_rank(view)):
        return f"first: {late}"
    first = _ADVICE_BY_REGIME.get(regime)
    specific = _find_worst_problem(
        findings, limits.ADVICE_MIN_IDLE_SHARE.value if first is None else limits.BOUND_SHARE.value
    )
    if regime in (Regime.OVERHEAD, Regime.MIXED) and specific:
        return (
            f"first: {describe_late_rank(view) or specific.action if specific.id == STRAGGLER_ID else specific.action}"
        )
    return _advise_on_mix(shares) if first is None else first


def _advise_on_late_rank(view: ScopeView) -> str:
    """Whom to look at, where most of the exposed communication is waiting for a late rank: no overlap wins that."""
    exposed = sum(times.total for times in exposed_intervals(view).values())
    return (
        describe_late_rank(view) if exposed_waiting_time(view) > limits.WAITING_SHARE_OF_EXPOSED.value * exposed else ""
    )


def _decide_regime(shares: DeviceTimeShares) -> Regime:
    lost = {Regime.COMMUNICATION: shares.communication, Regime.INPUT: shares.input}
    worst = max(lost, key=lambda regime: lost[regime])
    if lost[worst] >= limits.BOUND_SHARE.value and lost[worst] >= shares.overhead:
        return worst
    if shares.compute >= limits.GPU_BUSY_HIGH.value:
        return Regime.COMPUTE
    return Regime.OVERHEAD if shares.is_overhead_bound else Regime.MIXED


_GENERAL_PATTERN_IDS = ("overhead-bound", "idle-gap")
"""They say that the GPU waits; any other problem says for what."""


def _find_worst_problem(findings: Sequence[Finding], least: float) -> Pattern | None:
    """The worst problem that has a cause of its own, None where none has so much at stake."""
    problems = [
        found
        for found in findings
        if found.is_problem and found.id not in _GENERAL_PATTERN_IDS and found.share >= least
    ]
    return max(problems, key=lambda found: found.share).pattern if problems else None


def _advise_on_mix(shares: DeviceTimeShares) -> str:
    copies = shares.busy - shares.compute - shares.exposed_communication
    if shares.busy and copies >= limits.COMPUTE_SHARE_OF_BUSY.value:
        return f"first: the copies, which keep the GPU busy {format_percent(copies)} of the time with nothing computed beside"
    causes = shares.idle
    if causes:
        reason = max(causes, key=lambda one: causes[one])
        if causes[reason] >= limits.ADVICE_MIN_IDLE_SHARE.value:
            return _ADVICE_BY_IDLE_REASON[reason].format(share=format_percent(causes[reason]))
    return "nothing stands out: look at the heaviest kernel"
