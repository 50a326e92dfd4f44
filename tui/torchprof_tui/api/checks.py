"""Check a trace, or a range of it, for the Python API."""

from __future__ import annotations

from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.analysis.doctor.read_problems import Remark
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope, range_scope
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.answers.check import Check, build_check
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace


def check_range(trace: Trace, start_ns: int | None, end_ns: int | None) -> Check:
    """Check a range of a trace, by default all of it. Raises TraceError for an empty range, OSError, LookupError."""
    if start_ns is None and end_ns is None:
        return build_check(check_trace(trace, default_scope(trace)))
    first, last = trace.span
    t0, t1 = first if start_ns is None else start_ns, last if end_ns is None else end_ns
    if t1 <= t0:
        raise TraceError(f"no time between {t0} and {t1} ns; the trace goes from {first} to {last} ns")
    return build_check(check_trace(trace, range_scope(t0, t1)))


def list_remarks(trace: Trace) -> tuple[Remark, ...]:
    """List what the doctor says of a file."""
    return tuple(diagnose_trace(trace).remarks)
