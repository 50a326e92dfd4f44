"""Create the diff screen for what a user asked to compare: order, ranks and names of both sides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torchprof_tui.analysis.compare.side_choice import format_label, select_ranks
from torchprof_tui.analysis.compare.step_selection import ComparisonError
from torchprof_tui.trace.loading.resolve import SAMPLE_PREFIX
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.compare_asked import CompareAsked
from torchprof_tui.ui.common.trace_label import short_label
from torchprof_tui.ui.diff.comparison_worker import ComparedInput
from torchprof_tui.ui.diff.diff_screen import DiffScreen

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.opener import TraceOpener

RANK_OPTION = "D: NAME rank"
"""How a rank is asked for in the prompt, for the lines that say what can be compared."""


def create_diff_screen(asked: CompareAsked, other: Trace, opener: TraceOpener | None) -> DiffScreen:
    """Create the screen of the open trace and `other`; it explains itself what cannot be compared."""
    request = asked.request
    names = [asked.label, request.other or asked.label]
    wholes = [asked.trace, other]
    if request.is_other_first:
        names.reverse()
        wholes.reverse()
    problem, traces = "", (wholes[0], wholes[1])
    try:
        traces = select_ranks(wholes[0], wholes[1], request.ranks, RANK_OPTION)
    except ComparisonError as error:
        problem = str(error)
    short = [short_label(name.removeprefix(SAMPLE_PREFIX)) for name in names]
    labels = short if short[0] != short[1] or names[0] == names[1] else names
    inputs = [
        ComparedInput(trace, whole, format_label(label, whole, trace), selection)
        for trace, whole, label, selection in zip(traces, wholes, labels, request.steps, strict=True)
    ]
    if inputs[0].label == inputs[1].label:
        inputs = [replace(each, label=_add_steps(each)) for each in inputs]
    return DiffScreen(inputs[0], inputs[1], request.ranks, opener, problem)


def _add_steps(side: ComparedInput) -> str:
    """Add the steps that were asked for to a label, where the trace is the same on both sides."""
    numbers = side.selection.numbers
    if numbers is None:
        return side.label
    return f"{side.label} #{numbers[0]}" + (f"..{numbers[1]}" if numbers[1] != numbers[0] else "")
