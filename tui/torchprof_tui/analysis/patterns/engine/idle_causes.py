"""The causes for which a GPU is idle; `gpu_idle_causes` finds them in a trace."""

from __future__ import annotations

from enum import IntEnum


class IdleCause(IntEnum):
    """Why a GPU was idle. If two causes explain equally much of a gap, the earlier member names it."""

    PROFILER = 0
    INPUT = 1
    SYNC = 2
    COMMUNICATION = 3
    COLD_CALL = 4
    DISPATCH = 5
    LAUNCH = 6
    HOST = 7
    QUEUED = 8
    UNKNOWN = 9
    LEAD_IN = 10
    CPU_COMPUTE = 11

    @property
    def id(self) -> str:
        """The cause in JSON."""
        return _IDS[self]

    @property
    def label(self) -> str:
        return _LABELS[self]

    @property
    def explanation(self) -> str:
        return _EXPLANATIONS[self]


_IDS = {
    IdleCause.PROFILER: "profiler",
    IdleCause.INPUT: "input",
    IdleCause.SYNC: "sync",
    IdleCause.COMMUNICATION: "communication",
    IdleCause.COLD_CALL: "cold_call",
    IdleCause.DISPATCH: "dispatch",
    IdleCause.LAUNCH: "launch",
    IdleCause.HOST: "host_code",
    IdleCause.QUEUED: "queued",
    IdleCause.UNKNOWN: "unknown",
    IdleCause.LEAD_IN: "unknown_edge",
    IdleCause.CPU_COMPUTE: "cpu_compute",
}
_LABELS = {cause: name.replace("_", " ") for cause, name in _IDS.items()} | {
    IdleCause.LEAD_IN: "unknown, start of recording",
    IdleCause.CPU_COMPUTE: "CPU compute",
}
_EXPLANATIONS = {
    IdleCause.PROFILER: "profiler overhead; without the profiler there is no such gap",
    IdleCause.INPUT: "the CPU was fetching the next batch",
    IdleCause.SYNC: "the CPU was in a call that waits for the GPU",
    IdleCause.COMMUNICATION: "the CPU, or the stream, waited for a collective",
    IdleCause.COLD_CALL: "a call took over 1 ms: it loaded, created or allocated something for the first time, or "
    "compiled an op",
    IdleCause.DISPATCH: "the CPU was inside ops and runtime calls, before the next launch",
    IdleCause.LAUNCH: "the CPU was in the call that launched the next GPU work",
    IdleCause.HOST: "the CPU ran code outside any op",
    IdleCause.QUEUED: "the launch call had returned; the GPU, the driver or another stream delayed the work",
    IdleCause.UNKNOWN: "the launch of the next GPU work is unknown, or no work follows",
    IdleCause.LEAD_IN: "at the start of the recording; GPU work launched before it may still have run",
    IdleCause.CPU_COMPUTE: "the CPU was inside an op that computes on the CPU and launches nothing",
}
