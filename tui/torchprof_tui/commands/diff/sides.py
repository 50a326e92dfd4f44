"""Load the two sides of a comparison: the trace of each, one of its ranks, and the steps that were asked for."""

from __future__ import annotations

import argparse

from torchprof_tui.analysis.compare.comparison import Comparison, require_torch_trace
from torchprof_tui.analysis.compare.comparison_error import ComparisonError
from torchprof_tui.analysis.compare.rank_changes import RankChange, compare_ranks
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.compare.step_selection import StepSelection, parse_step_numbers
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.commands.common.time_range import parse_time_range
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace


def load_comparison(options: argparse.Namespace) -> Comparison:
    """Load both sides. Raises UsageError and TraceError: one line that says which side, and what can be compared."""
    selections = _parse_selections(options)
    ranks = _parse_ranks(options.rank)
    a = _load(options.a, "A", not options.no_cache)
    b = a if options.b == options.a else _load(options.b, "B", not options.no_cache)
    traces = _select_ranks(a, b, ranks)
    sides = [
        _analyse(trace, f"{name} ({spec})", _format_label(spec, original, trace), selection)
        for name, spec, original, trace, selection in zip(
            ("A", "B"), (options.a, options.b), (a, b), traces, selections, strict=True
        )
    ]
    return Comparison(sides[0], sides[1], _compare_ranks(a, b, ranks, selections))


def _compare_ranks(
    a: Trace, b: Trace, numbers: tuple[int | None, int | None], selections: tuple[StepSelection, StepSelection]
) -> list[RankChange]:
    """Compare the ranks of two runs, where no rank was chosen: the first one stands for the run."""
    if a is b or numbers != (None, None) or a.merged_ranks is None or b.merged_ranks is None:
        return []
    traces = [{rank.number: rank.trace for rank in ranks.all} for ranks in (a.merged_ranks, b.merged_ranks)]
    try:
        return compare_ranks(traces[0], traces[1], selections)
    except ComparisonError:  # a rank without the steps that the compared ones have
        return []


def _analyse(trace: Trace, name: str, label: str, selection: StepSelection) -> SideAnalysis:
    try:
        require_torch_trace(trace)
        return SideAnalysis(trace, label, selection)
    except ComparisonError as error:
        raise UsageError(f"{name}: {error}") from error


def _format_label(spec: str, original: Trace, chosen: Trace) -> str:
    """Format how a side is called: as the user named it, with the rank that was chosen of several."""
    ranks = [] if original.merged_ranks is None else original.merged_ranks.all
    number = next((rank.number for rank in ranks if rank.trace is chosen), None)
    return spec if number is None else f"{spec} rank {number}"


def _load(spec: str, name: str, cache: bool) -> Trace:
    try:
        return load_specs([spec], cache=cache).trace
    except TraceError as error:
        raise TraceError(f"{name}: {error}") from error


def split_sides(text: str) -> tuple[str, str]:
    """Split "3..7/8..12" into what is for A and for B; without a slash both get the same."""
    first, slash, second = text.partition("/")
    return first, second if slash else first


def _parse_selections(options: argparse.Namespace) -> tuple[StepSelection, StepSelection]:
    if options.steps is not None:
        try:
            a, b = map(parse_step_numbers, split_sides(options.steps))
        except ComparisonError as error:
            raise UsageError(f"--steps {options.steps}: {error}") from error
        return StepSelection(numbers=a), StepSelection(numbers=b)
    if options.range is not None:
        times = [parse_time_range(part.replace("..", ":", 1)) for part in split_sides(options.range)]
        return StepSelection(time_range=times[0]), StepSelection(time_range=times[1])
    return StepSelection(), StepSelection()


def _parse_ranks(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    try:
        a, b = (int(part) for part in split_sides(text))
    except ValueError:
        raise UsageError(f"--rank {text}: ranks are numbers, 0 or 0/3") from None
    return a, b


def _select_ranks(a: Trace, b: Trace, numbers: tuple[int | None, int | None]) -> tuple[Trace, Trace]:
    """Select a rank of each side; without --rank the first rank that both have. Raises UsageError."""
    known = [_list_ranks(trace) for trace in (a, b)]
    if numbers == (None, None):
        if bool(known[0]) != bool(known[1]):
            run, single = ("A", "B") if known[0] else ("B", "A")
            listed = ", ".join(map(str, known[0] or known[1]))
            raise UsageError(
                f"{run} holds the ranks {listed} and {single} is a single trace: choose one rank with --rank N"
            )
        common = [number for number in known[0] if number in known[1]]
        if known[0] and not common:
            raise UsageError(
                f"no common rank: A holds {', '.join(map(str, known[0]))}, B {', '.join(map(str, known[1]))}; "
                "choose with --rank N/M"
            )
        numbers = (common[0], common[0]) if common else (None, None)
    if not known[0] and not known[1] and numbers != (None, None):
        raise UsageError("--rank: both are single traces; leave it out to compare them")
    return _select_rank(a, numbers[0], "A"), _select_rank(b, numbers[1], "B")


def _list_ranks(trace: Trace) -> list[int]:
    return [] if trace.merged_ranks is None else [rank.number for rank in trace.merged_ranks.all]


def _select_rank(trace: Trace, number: int | None, name: str) -> Trace:
    """Select one rank of a run; a single trace is its own. Raises UsageError."""
    if trace.merged_ranks is None or number is None:
        return trace
    rank = trace.merged_ranks.find_rank(number)
    if rank is None:
        raise UsageError(f"--rank: {name} has no rank {number}, it holds {', '.join(map(str, _list_ranks(trace)))}")
    return rank.trace
