"""What a check found (`CheckReport`), and parts that several outputs share: the times of its scope, ranks."""

from __future__ import annotations

from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.launch_owners import LargestGap, select_long_gaps
from torchprof_tui.analysis.patterns.verdict.check_report import CheckReport
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.ui.common.number_format import format_share

__all__ = ["CheckReport", "format_number_ranges", "format_rank_prefix", "format_scope_times"]


def format_scope_times(scope: Scope) -> str:
    """Format when a scope begins and ends, with the digits that tell both apart; "" for the whole trace."""
    if scope.is_whole_trace:
        return ""
    step = 10 ** max(len(str(scope.length)) - 3, 0)
    return f"{format_time(scope.t0, step, scope.t1)} to {format_time(scope.t1, step)}"


def format_number_ranges(numbers: list[int]) -> str:
    """Format ascending numbers as ranges: `0-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def format_rank_prefix(numbers: list[int]) -> str:
    """Format the ranks that a verdict is about: `ranks 0-3: `, "" for all."""
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {format_number_ranges(numbers)}: " if numbers else ""


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
