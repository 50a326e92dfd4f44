"""Compare two traces for the Python API."""

from __future__ import annotations

from typing import Literal, get_args

from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.side_choice import (
    RankNumbers,
    analyse_side,
    compare_ranks_of_runs,
    format_label,
    match_steps,
    select_ranks,
)
from torchprof_tui.analysis.compare.step_selection import StepSelection
from torchprof_tui.answers.arguments import check_choice
from torchprof_tui.answers.diff import Diff, build_diff
from torchprof_tui.trace.model.trace import Trace

By = Literal["op", "module", "kernel", "class", "cause"]
StepNumbers = tuple[int, int] | None  # numbers of the first and the last step, None for the steady ones


def compare_traces(a: Trace, b: Trace, ranks: RankNumbers, steps: tuple[StepNumbers, StepNumbers], by: By) -> Diff:
    """Compare two traces. Raises ComparisonError, TraceError, OSError, LookupError."""
    check_choice("by", by, get_args(By), "rows are matched by")
    traces = select_ranks(a, b, ranks)
    selections = StepSelection(numbers=steps[0]), StepSelection(numbers=steps[1])
    sides = [
        analyse_side(trace, f"{name} ({original.label})", format_label(original.label, original, trace), selection)
        for name, original, trace, selection in zip(("A", "B"), (a, b), traces, selections, strict=True)
    ]
    return build_diff(Comparison(*match_steps(sides[0], sides[1]), compare_ranks_of_runs(a, b, ranks, selections)), by)
