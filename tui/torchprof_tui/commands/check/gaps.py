"""Describe the largest gaps of a check for text and Markdown."""

from __future__ import annotations

from torchprof_tui.analysis.patterns.engine.largest_gaps import LargestGap, select_long_gaps
from torchprof_tui.commands.check.report import CheckReport
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.ui.common.number_format import format_share

SHOWN_GAPS = 3
"""Gaps that a reader is shown, if they are long enough; JSON has all of a report."""


def select_shown_gaps(report: CheckReport) -> list[LargestGap]:
    """Select the gaps that are shown to a reader, longest first."""
    return select_long_gaps(report.gaps, report.scope.length, SHOWN_GAPS)


def describe_gap_times(report: CheckReport, gap: LargestGap) -> tuple[str, str, str]:
    """Describe when a gap began, how long it took and its share of the scope."""
    step = 10 ** max(len(str(gap.duration)) - 3, 0)
    share = gap.duration / report.scope.length if report.scope.length else 0.0
    return format_time(gap.start, step), format_duration(gap.duration), format_share(share)


def describe_device(report: CheckReport, gap: LargestGap) -> str:
    """Describe which GPU was idle, "" where the trace has one only. As recorded: `clean` it."""
    if gap.rank is not None:
        return f"rank {gap.rank}"
    devices = {each.device for each in report.gaps}
    return f"GPU {gap.device}" if len(devices) > 1 else ""


def describe_gap_line(gap: LargestGap) -> str:
    """Describe the line of a gap, "" if none is known. As recorded: `clean` it."""
    return "" if gap.line is None else gap.line.text
