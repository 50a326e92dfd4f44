"""Measure how a scope's device time divides: busy by kind of work, idle by cause."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.time.intervals import Intervals


@dataclass(frozen=True, slots=True)
class DeviceTimeShares:
    """Shares of `ScopeView.device_time`, 0..1. `idle` by cause sums to 1 − busy."""

    OVERHEAD_CAUSES: ClassVar[tuple[IdleCause, ...]] = (
        IdleCause.DISPATCH,
        IdleCause.LAUNCH,
        IdleCause.COLD_CALL,
        IdleCause.CPU_COMPUTE,
        IdleCause.HOST,
        IdleCause.SYNC,
    )
    """What the CPU does that a program can avoid or shorten; input and communication have regimes of their own."""

    busy: float
    compute: float  # kernels and fills: no copies, no collectives
    exposed_communication: float  # collectives while nothing else computed
    idle: dict[IdleCause, float] = field(default_factory=dict)

    @property
    def overhead(self) -> float:
        return sum(self.idle.get(cause, 0.0) for cause in self.OVERHEAD_CAUSES)

    @property
    def input(self) -> float:
        return self.idle.get(IdleCause.INPUT, 0.0)

    @property
    def communication(self) -> float:
        return self.exposed_communication + self.idle.get(IdleCause.COMMUNICATION, 0.0)

    @property
    def copies(self) -> float:
        """Copies while nothing computed."""
        return max(self.busy - self.compute - self.exposed_communication, 0.0)

    @property
    def is_overhead_bound(self) -> bool:
        idle = sum(self.idle.values())
        low = self.busy < thresholds.GPU_BUSY_LOW.value
        return low and idle > 0 and self.overhead >= thresholds.OVERHEAD_SHARE_OF_IDLE.value * idle


def measure_shares(view: ScopeView) -> DeviceTimeShares:
    """Measure the shares of a scope, once; all 0 where it has no window or no GPU."""
    return view.compute_once(_measure_shares)


def _measure_shares(view: ScopeView) -> DeviceTimeShares:
    tables = view.tables
    device_time = view.device_time
    if device_time <= 0:
        return DeviceTimeShares(0.0, 0.0, 0.0)
    idle: dict[IdleCause, float] = {
        cause: time / device_time
        for cause, time in view.gaps.time_by_cause().items()
        if cause not in (IdleCause.PROFILER, IdleCause.LEAD_IN)
    }
    exposed = sum(intervals.total for intervals in exposed_intervals(view).values())
    return DeviceTimeShares(
        view.busy_share, view.share_of_device_time(tables.compute_intervals), exposed / device_time, idle
    )


def exposed_intervals(view: ScopeView) -> dict[int, Intervals]:
    """Return when a collective ran in the window while nothing else computed, by device; found once."""
    return view.compute_once(_find_exposed)


def _find_exposed(view: ScopeView) -> dict[int, Intervals]:
    t0, t1 = view.window
    tables = view.tables
    return {
        device: tables.collective_intervals[device].clip(t0, t1) - tables.compute_intervals[device].clip(t0, t1)
        for device in tables.devices
    }
