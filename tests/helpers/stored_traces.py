"""Store traces in folders, as the worker does."""

from __future__ import annotations

from pathlib import Path

from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.storage.trace_store import TraceWriter


def save_trace(trace: Trace, folder: Path) -> None:
    """Write a trace into an existing folder."""
    with TraceWriter(folder) as writer:
        writer.finish(trace)
