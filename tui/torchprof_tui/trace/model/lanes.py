"""Describe the lanes of a trace: their role, events and rows."""

from __future__ import annotations

from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum


class Role(TextEnum):
    """Role of a lane. The value is stored in the cache and shown by `info`; `Lane.kind` is the coarser public term."""

    THREAD = "thread"
    STREAM = "stream"
    GPU_ANNOTATIONS = "gpu annotations"
    SYNC = "sync"
    ASYNC = "async"
    COUNTER = "counter"
    PROFILER = "profiler"
    RANK = "rank"


@record
class Lane:
    """A thread, a stream or a counter. Its events are rows `first:last` of the columns (empty for counters)."""

    role: Role
    pid: str
    tid: str
    label: str  # "CPU 431 python3", "stream 7"; unprintable characters are replaced when it is drawn
    group: str  # the heading above it: "CPU", "GPU 0 NVIDIA H200", process name
    first: int
    last: int
    rows: int  # nested rows, at least 1
    row_base: int  # index of its first row in the trace: `row_base + row[event]` is a row of the whole trace
    device: int | None = None  # for GPU lanes
    rank: int | None = None
    merged_lanes: int = 0  # number of lanes merged into this one, because the file has too many

    @property
    def kind(self) -> str:
        return LANE_KIND[self.role]

    def __len__(self) -> int:
        return self.last - self.first


SPANS, MARKS = "spans", "marks"
"""Tids of the profiler's two lanes beside its overhead, under the pid "profiler"."""

LANE_KIND = {
    Role.THREAD: "cpu",
    Role.STREAM: "gpu",
    Role.GPU_ANNOTATIONS: "gpu",
    Role.SYNC: "gpu",
    Role.ASYNC: "async",
    Role.COUNTER: "counter",
    Role.PROFILER: "profiler",
    Role.RANK: "rank",
}
"""`kind` in `info --json`. The header lane of a rank has no events."""
