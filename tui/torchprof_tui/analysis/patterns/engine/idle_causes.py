"""The causes for which a GPU is idle, and the shares of its time; `gpu_gaps` finds them in a trace."""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import ClassVar

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.trace.core.records import record


class IdleCause(IntEnum):
    """Why a GPU was idle. If two causes explain equally much of a gap, the earlier member names it.

    `id`: the cause in JSON. `label` and `explanation`: for a reader.
    """

    id: str
    label: str
    explanation: str

    def __new__(cls, number: int, id: str = "", explanation: str = "", label: str = "") -> IdleCause:  # noqa: A002
        cause = int.__new__(cls, number)
        cause._value_ = number
        cause.id, cause.label, cause.explanation = id, label or id.replace("_", " "), explanation
        return cause

    PROFILER = 0, "profiler", "profiler overhead; without the profiler there is no such gap"
    INPUT = 1, "input", "the CPU was fetching the next batch"
    SYNC = 2, "sync", "the CPU was in a call that waits for the GPU"
    COMMUNICATION = 3, "communication", "the CPU, or the stream, waited for a collective"
    COLD_CALL = (
        4,
        "cold_call",
        "a call took over 1 ms: it loaded, created or allocated something for the first time, or compiled an op",
    )
    DISPATCH = 5, "dispatch", "the CPU was inside ops and runtime calls, before the next launch"
    LAUNCH = 6, "launch", "the CPU was in the call that launched the next GPU work"
    HOST = 7, "host_code", "the CPU ran code outside any op"
    QUEUED = 8, "queued", "the launch call had returned; the GPU, the driver or another stream delayed the work"
    UNKNOWN = 9, "unknown", "the launch of the next GPU work is unknown, or no work follows"
    LEAD_IN = (
        10,
        "unknown_edge",
        "at the start of the recording; GPU work launched before it may still have run",
        "unknown, start of recording",
    )
    CPU_COMPUTE = (
        11,
        "cpu_compute",
        "the CPU was inside an op that computes on the CPU and launches nothing",
        "CPU compute",
    )


@record
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
