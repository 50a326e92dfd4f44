"""Find when each step was complete: its own end on the CPU, and the end of the GPU work that it launched."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.arrays import I64


def find_step_bounds(tables: TraceTables) -> I64:
    """Return the bounds of the steps: int64[s + 1], ns, ascending; step i takes from bound i to bound i + 1.

    A step is complete when its CPU thread and all work that it launched have ended. The CPU may run ahead of the GPU by
    several steps: its own times would leave out what the program waits for in the end. Between two bounds lies what one
    step adds to the run, and the bounds leave no time between steps uncounted.
    """
    steps = tables.steps
    if not len(steps):
        return np.empty(0, dtype=np.int64)
    complete = steps.end.astype(np.int64)
    step = tables.launch_step
    is_launched = step >= 0
    np.maximum.at(complete, step[is_launched], tables.work.events.end[is_launched])
    bounds: I64 = np.maximum.accumulate(np.concatenate([steps.start[:1], complete]))
    return bounds
