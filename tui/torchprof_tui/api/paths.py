"""Find critical paths for the Python API."""

from __future__ import annotations

from torchprof_tui.analysis.critical_path.critical_path import CriticalPath, find_critical_path
from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace


def read_critical_path(trace: Trace, step: int | None) -> CriticalPath:
    """Find the critical path of a step of a trace of one process. Raises TraceError where there is no such step."""
    try:
        return find_critical_path(trace, step)
    except WindowError as error:
        raise TraceError(f"{trace.label}: {error}") from error
