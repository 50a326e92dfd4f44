"""What a check found (`CheckReport`), and parts that several outputs share: the times of its scope, ranks."""

from __future__ import annotations

from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.verdict.check_report import CheckReport
from torchprof_tui.trace.core.time_format import format_time

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
