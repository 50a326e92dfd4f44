"""Explain why a table has no rows, and what to do about it."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace

_KINDS_BY_TABLE = {
    "kernels": (Kind.KERNEL, Kind.COLLECTIVE),
    "copies": (Kind.COPY, Kind.MEMSET),
    "collectives": (Kind.COLLECTIVE,),
}

_RECORD_GPU = "to record it: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], on a machine with a GPU"

_REASONS = {
    "kernels": "no kernels were recorded",
    "copies": "no copies or fills were recorded: no data moved between CPU and GPU",
    "collectives": "no collectives were recorded: this process did not communicate with other GPUs",
    "memory": "no memory was recorded; to record it: profile_memory=True",
    "repetitions": "no repetition was found in the order of the kernels (of the ops, without a GPU)",
    "arrivals": "no collective was matched across ranks",
}
"""Table → why it is empty, where the trace has GPU work."""


def list_tables_with_rows(trace: Trace) -> list[str]:
    """List the tables of kernels, copies, collectives and memory that are not empty for the whole trace."""
    present = set(np.flatnonzero(np.bincount(trace.kind, minlength=len(Kind))).tolist())
    tables = [table for table, kinds in _KINDS_BY_TABLE.items() if present.intersection(map(int, kinds))]
    return [*tables, "memory"] if trace.memory is not None else tables


def explain_empty_sheet(trace: Trace, table: str, is_restricted: bool = False) -> str:
    """Explain in one sentence why a table ("kernels", "memory", "calls" …) has no rows.

    `is_restricted`: it counts only a part of the trace, a step or a range.
    """
    if is_restricted and (table in list_tables_with_rows(trace) or table == "calls"):
        return f"no {'copies or fills' if table == 'copies' else table} in this part of the trace"
    if table in _KINDS_BY_TABLE and not np.isin(trace.kind, [int(kind) for kind in GPU_WORK]).any():
        return f"no GPU work was recorded; {_RECORD_GPU}"
    return _REASONS.get(table, "no calls were recorded")


def explain_missing_records(trace: Trace, table: str, is_restricted: bool = False) -> str:
    """Explain why an empty table cannot answer, "" where it does: none were there, and they would have been recorded.

    `is_restricted` as above.
    """
    if table == "memory":
        is_missing = trace.memory is None
    elif table in _KINDS_BY_TABLE:
        is_missing = not np.isin(trace.kind, [int(kind) for kind in GPU_WORK]).any()
    else:
        is_missing = not is_restricted
    return explain_empty_sheet(trace, table, is_restricted) if is_missing else ""
