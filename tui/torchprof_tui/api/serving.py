"""Read the steps of serving engines for the Python API."""

from __future__ import annotations

from torchprof_tui.analysis.serving.report import report_serving
from torchprof_tui.analysis.serving.serving_steps import ServingReport
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace


def read_serving(trace: Trace) -> ServingReport:
    """Report the serving steps of a trace of one process. Raises TraceError where there are none."""
    report = report_serving(trace)
    if report.missing:
        raise TraceError(f"{trace.label}: {report.missing}")
    return report
