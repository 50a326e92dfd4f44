"""Build the profiler's table, and memory by operator, for the Python API."""

from __future__ import annotations

from torchprof_tui.analysis.serving.report import report_serving
from torchprof_tui.analysis.serving.serving_steps import ServingReport
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.sheets import explain_empty_sheet
from torchprof_tui.answers import table as answers
from torchprof_tui.answers.arguments import check_choice
from torchprof_tui.answers.table import Grouping, MemoryTable, Table, TableQuestion, build_sheet
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace

By = Grouping
__all__ = ["By", "Profile", "build_memory", "build_table"]


def build_table(profile: Profile, by: str, step: int | None, flops: bool) -> Table:
    """Build the table. Raises TraceError, NotRecordedError, OSError, LookupError."""
    check_choice("by", by, [each.value for each in GroupBy], "calls are grouped by")
    asked = TableQuestion(by=by, step=step, flops=flops)
    table: Table = answers.build_table(profile.trace, asked, build_sheet(profile, asked), rank=profile.trace.rank)
    return table


def build_memory(profile: Profile, step: int | None) -> MemoryTable:
    """Build memory by operator. Raises TraceError where it was not recorded, NotRecordedError for an unknown step."""
    trace, asked = profile.trace, TableQuestion(of="memory", step=step)
    if trace.memory is None:
        raise TraceError(f"{trace.label}: {explain_empty_sheet(trace, 'memory')}")
    table: MemoryTable = answers.build_table(trace, asked, build_sheet(profile, asked), rank=trace.rank)
    return table


def read_serving(trace: Trace) -> ServingReport:
    """Report the serving steps of a trace of one process. Raises TraceError where there are none."""
    report = report_serving(trace)
    if report.missing:
        raise TraceError(f"{trace.label}: {report.missing}")
    return report
