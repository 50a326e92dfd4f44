"""Decide the verdict on a scope: its regime, how busy the GPU was, and the one thing to do first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.gpu_idle_causes import IdleCause
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
    """Shares of `ScopeView.device_time`, 0..1. `idle` by reason sums to 1 − busy."""

    OVERHEAD_REASONS: ClassVar[tuple[int, ...]] = (int(IdleCause.DISPATCH), int(IdleCause.LAUNCH), int(IdleCause.COLD_CALL), int(IdleCause.HOST), int(IdleCause.SYNC))

    busy: float
    compute: float  # kernels and fills: no copies, no collectives
    exposed_communication: float  # collectives while nothing else computed
    idle: dict[IdleCause, float] = field(default_factory=dict)

    @property
    def overhead(self) -> float:
        return sum(self.idle.get(IdleCause(reason), 0.0) for reason in self.OVERHEAD_REASONS)

    @property
    def input(self) -> float:
        return self.idle.get(IdleCause.INPUT, 0.0)

    @property
    def communication(self) -> float:
        return self.exposed_communication + self.idle.get(IdleCause.COMMUNICATION, 0.0)

    @property
    def is_overhead_bound(self) -> bool:
        idle = sum(self.idle.values())
        low = self.busy < thresholds.GPU_BUSY_LOW.value
        return low and idle > 0 and self.overhead >= thresholds.OVERHEAD_SHARE_OF_IDLE.value * idle


def measure_shares(view: ScopeView) -> DeviceTimeShares:
    """Measure the shares of a scope; all 0 where it has no window or no GPU."""
    tables = view.tables
    device_time = view.device_time
    if device_time <= 0:
        return DeviceTimeShares(0.0, 0.0, 0.0)
    idle: dict[IdleCause, float] = {
        reason: time / device_time
        for reason, time in view.gaps.time_by_cause().items()
        if reason not in (IdleCause.PROFILER, IdleCause.UNKNOWN)
    }
    exposed = sum(intervals.total for intervals in exposed_intervals(view).values())
    return DeviceTimeShares(
        view.busy_share, view.share_of_device_time(tables.compute_intervals), exposed / device_time, idle
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """`busy`: GPU busy share 0..1, None without a GPU. `advice`: the one thing to do first, one line."""

    regime: Regime
    busy: float | None
    advice: str

    @property
    def line(self) -> str:
        """The whole verdict on one line."""
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
    IdleCause.DISPATCH: "first: the CPU's dispatch, which the GPU waits for {share} of the time",
    IdleCause.HOST: "first: the code between ops, which the GPU waits for {share} of the time",
    IdleCause.SYNC: "first: the syncs, which leave the GPU idle {share} of the time",
    IdleCause.INPUT: "first: the input pipeline, which the GPU waits for {share} of the time",
    IdleCause.COMMUNICATION: "first: the collectives, which the GPU waits for {share} of the time",
    IdleCause.QUEUED: "first: what streams wait for on each other, {share} of the time",
}


def decide_verdict(view: ScopeView, findings: Sequence[Finding] = ()) -> Verdict:
    """Decide the regime of a scope and what to do first.

    `findings` of the same scope, if any, make the advice specific, e.g. to avoid recompilations if they keep the CPU
    busy.
    """
    if missing_reason := view.missing_window_reason():
        if data_loss := view.tables.data_loss:
            missing_reason = f"cannot be told: {format_missing_reason(missing_reason, data_loss)}"
        return Verdict(
            Regime.UNKNOWN, None, reword_for_slice(missing_reason) if view.tables.is_slice else missing_reason
        )
    shares = measure_shares(view)
    regime = _decide_regime(shares)
    data_loss = view.tables.data_loss
    # Missing entries cannot make a GPU less busy, so COMPUTE stays decidable.
    if data_loss and regime is not Regime.COMPUTE and is_loss_significant(data_loss):
        return Verdict(Regime.UNKNOWN, shares.busy, f"cannot be told: {data_loss.reason}; this is {PARTIAL_INPUT_NOTE}")
    advice = _choose_advice(view, regime, shares, findings)
    return Verdict(
        regime, shares.busy, f"{advice} ({PARTIAL_INPUT_NOTE}: {data_loss.summary})" if data_loss else advice
    )


def _choose_advice(view: ScopeView, regime: Regime, shares: DeviceTimeShares, findings: Sequence[Finding]) -> str:
    """Choose the one thing to do first."""
    if regime is Regime.COMMUNICATION and (late_rank_advice := _advise_on_late_rank(view)):
        return f"first: {late_rank_advice}"
    regime_advice = _ADVICE_BY_REGIME.get(regime)
    worst_problem = _find_worst_problem(
        findings, thresholds.ADVICE_MIN_IDLE_SHARE.value if regime_advice is None else thresholds.BOUND_SHARE.value
    )
    if regime in (Regime.OVERHEAD, Regime.MIXED) and worst_problem:
        late_rank_advice = describe_late_rank(view) if worst_problem.id == STRAGGLER_ID else ""
        return f"first: {late_rank_advice or worst_problem.action}"
    return _advise_on_mix(shares) if regime_advice is None else regime_advice


def _advise_on_late_rank(view: ScopeView) -> str:
    """Describe the late rank if most of the exposed communication is waiting for it, else "".

    More overlap would not win back that time.
    """
    exposed = sum(intervals.total for intervals in exposed_intervals(view).values())
    return (
        describe_late_rank(view)
        if exposed_waiting_time(view) > thresholds.WAITING_SHARE_OF_EXPOSED.value * exposed
        else ""
    )


def _decide_regime(shares: DeviceTimeShares) -> Regime:
    lost_shares = {Regime.COMMUNICATION: shares.communication, Regime.INPUT: shares.input}
    largest = max(lost_shares, key=lambda regime: lost_shares[regime])
    if lost_shares[largest] >= thresholds.BOUND_SHARE.value and lost_shares[largest] >= shares.overhead:
        return largest
    if shares.compute >= thresholds.GPU_BUSY_HIGH.value:
        return Regime.COMPUTE
    return Regime.OVERHEAD if shares.is_overhead_bound else Regime.MIXED


_GENERAL_PATTERN_IDS = ("overhead-bound", "idle-gap")
"""Patterns that state that the GPU waits; other problems name the cause."""


def _find_worst_problem(findings: Sequence[Finding], min_share: float) -> Pattern | None:
    """Find the worst problem with a specific cause, None if none has at least `min_share` at stake."""
    problems = [
        finding
        for finding in findings
        if finding.is_problem and finding.id not in _GENERAL_PATTERN_IDS and finding.share >= min_share
    ]
    return max(problems, key=lambda finding: finding.share).pattern if problems else None


def _advise_on_mix(shares: DeviceTimeShares) -> str:
    copy_share = shares.busy - shares.compute - shares.exposed_communication
    if shares.busy and copy_share >= thresholds.COMPUTE_SHARE_OF_BUSY.value:
        return (
            f"first: the copies, which keep the GPU busy {format_percent(copy_share)} of the time with nothing "
            "computed beside"
        )
    idle_by_reason = shares.idle
    if idle_by_reason:
        reason = max(idle_by_reason, key=lambda candidate: idle_by_reason[candidate])
        if idle_by_reason[reason] >= thresholds.ADVICE_MIN_IDLE_SHARE.value:
            return _ADVICE_BY_IDLE_REASON[reason].format(share=format_percent(idle_by_reason[reason]))
    return "nothing stands out: look at the heaviest kernel"
