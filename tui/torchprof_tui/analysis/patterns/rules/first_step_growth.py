"""Find the calls in which a first step takes longer than the others."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine.event_tables import StepTable
from torchprof_tui.analysis.patterns.engine.pattern import Remedy
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_HOST_KINDS = (Kind.OP, Kind.RUNTIME, Kind.PYTHON)
_MIN_SHARE = 0.5
"""Share of a first step's extra time that one name must explain."""

_GRAPH_REMEDY = Remedy(
    "the first launch of a CUDA graph prepares it on the GPU: replay each graph once before you measure",
    "graph.replay(); torch.cuda.synchronize()",
)


def explain_growth(tables: TraceTables, steps: StepTable, excess: int) -> tuple[str, Remedy | None]:
    """Explain `excess` ns of the first step: the name whose own time grew most, and its remedy; ("", None) if none.

    Own time of ops, calls and Python frames by name: the first step's minus the median of the others.
    """
    trace = tables.trace
    events = np.flatnonzero(
        np.isin(trace.kind, _HOST_KINDS) & (trace.start >= steps.start[0]) & (trace.start < steps.end[-1])
    )
    step = steps.index_at(trace.start[events])
    events, step = events[step >= 0], step[step >= 0]
    first = np.unique(trace.name[events[step == 0]])
    known = np.isin(trace.name[events], first)
    if not known.any():
        return "", None
    events, step = events[known], step[known]
    times = np.zeros((len(steps), len(first)), np.int64)
    np.add.at(times, (step, first.searchsorted(trace.name[events])), trace.self_duration[events])
    growth = times[0] - np.median(times[1:], axis=0)
    most = int(growth.argmax())
    if not _MIN_SHARE * excess <= growth[most] <= excess:  # more than that is the profiler's own work in this name
        return "", None
    name = trace.names[int(first[most])]
    remedy = _GRAPH_REMEDY if "GraphLaunch" in name else None
    return f"{format_duration(float(growth[most]))} more in {name}", remedy
