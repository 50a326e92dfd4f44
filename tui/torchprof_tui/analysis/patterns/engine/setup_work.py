"""Find work that a program does once: libraries and kernels loaded, memory allocated, code compiled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.practices import COMPILE_WORK_REGEX
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.arrays import sorted_unique
from torchprof_tui.trace.model.event_kind import Kind

_SETUP_CALL_REGEX = (
    r"(cuda|cu|hip)(Malloc|MemAlloc|MemCreate|MemMap|HostAlloc|HostRegister|Free|MemFree|Module|Library|Kernel|Func|Link"
    r"|GetDevice|DeviceGet|CtxCreate|Init|StreamCreate|EventCreate|Get(Proc|Driver|Export)|GraphInstantiate)"
)
_SETUP_OVERHEAD_REGEX = r"(Lazy Function|Runtime Triggered Module) Loading|Resource"


@dataclass(frozen=True, slots=True)
class SetupWork:
    """What is done once. `is_known`: the trace has runtime calls, among which such work would be."""

    events: EventTable
    is_known: bool

    def misses(self, ranges: EventTable) -> bool:
        """Return whether none of it lies in `ranges`, and such work would have been recorded."""
        starts = self.events.start
        inside = [((starts >= t0) & (starts < t1)).any() for t0, t1 in zip(ranges.start, ranges.end, strict=True)]
        return self.is_known and not any(inside)


def find_setup_work(tables: TraceTables) -> SetupWork:
    """Find the calls, the profiler's records of loading, and the compilation that a warm program does not do again."""
    matches = (
        tables.match_names(_SETUP_CALL_REGEX, Kind.RUNTIME).row,
        tables.match_names(_SETUP_OVERHEAD_REGEX, Kind.OVERHEAD).row,
        tables.match_names(COMPILE_WORK_REGEX).row,
    )
    rows = sorted_unique(np.concatenate(matches))
    return SetupWork(tables.event_table(rows), bool(len(tables.calls)))
