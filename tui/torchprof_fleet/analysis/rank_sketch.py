"""The sketch of a trace: what comparing a rank with a thousand others needs, in a few KB per step.

Times are int64 ns from the rank's first event, sizes int64 bytes. A trace without steps has one step, number -1, that
is the whole recording.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.trace.core.arrays import I32, I64

SKETCH_VERSION = 3
"""Version of the record and of its Parquet schema: a stored sketch of another version is made again."""

WHOLE_TRACE = -1
"""Number of the only step of a trace without steps."""

UNKNOWN_BYTES = -1
"""Memory peak of a trace that recorded no memory."""


@dataclass(frozen=True, slots=True)
class SketchSteps:
    """s steps. `busy`, `compute`, `exposed`, `communication` int64[s]: ns summed over the rank's GPUs.

    `busy`: the union of all GPU work; `communication`: of collectives; `exposed`: of those while nothing else computed.
    `cpu`: ns in which the main thread did not wait for the GPU, 0 where no thread was recorded.
    `idle` int64[s, c]: ns by cause, in the order of `IdleCause`. `collective_count` int64[s]: before any are left out.
    """

    number: I64
    start: I64
    end: I64
    busy: I64
    compute: I64
    communication: I64
    exposed: I64
    cpu: I64
    idle: I64
    collective_count: I64

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True, slots=True)
class SketchCollectives:
    """k collectives by step, group and order. `step`: index of the step that launched it.

    `order`: how many of its group the step launched before it, equal on all ranks of the group. `group`, `operation`:
    indexes into `texts`. Of a step with too many collectives every n-th of each group is kept, the same on all ranks.
    """

    step: I32
    group: I32
    operation: I32
    order: I32
    start: I64
    end: I64
    bytes: I64
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True)
class DurationQuantiles:
    """k pairs of a step and a name: how often it ran, ns in total, and quantiles of one run's ns."""

    step: I32
    name: I32
    count: I64
    total: I64
    median: I64
    p90: I64
    longest: I64
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True)
class RankSketch:
    """One rank. `rank` -1, `world_size` 0, `host` "" where unknown; `time_zero`: ns since the epoch of its first event.

    `groups`: the process groups that it is in: name, its position among their ranks, their size.
    `regime`: of the verdict; `causes`: the parts of its time, (cause, ns). `kernels`: by class of kernel; `ops`: by op,
    time without what it calls. `problems`: what of the recording is lost.
    """

    file: str
    rank: int
    world_size: int
    host: str
    device: str
    device_count: int
    torch_version: str
    time_zero: int
    memory_peak: int
    regime: str
    causes: tuple[tuple[str, int], ...]
    groups: tuple[tuple[str, int, int], ...]
    problems: tuple[str, ...]
    steps: SketchSteps
    collectives: SketchCollectives
    kernels: DurationQuantiles
    ops: DurationQuantiles
