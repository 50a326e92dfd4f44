"""Choose what is compared of two traces: a rank of each, its steps, and how each side is called."""

from __future__ import annotations

from collections.abc import Sequence

from torchprof_tui.analysis.compare.comparison import Comparison, RankChange, compare_ranks, require_torch_trace
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis, are_ranks_of_one_run
from torchprof_tui.analysis.compare.step_selection import ComparisonError, StepSelection
from torchprof_tui.trace.model.trace import Trace

RankNumbers = tuple[int | None, int | None]  # the ranks of A and of B that were asked for, None for none


def select_ranks(a: Trace, b: Trace, numbers: RankNumbers, option: str = "rank") -> tuple[Trace, Trace]:
    """Select a rank of each side; without numbers the first rank that both have. Raises ComparisonError.

    `option`: how a user writes a rank, for the errors ("--rank" on the command line).
    """
    known = [list_ranks(trace) for trace in (a, b)]
    if numbers == (None, None):
        if bool(known[0]) != bool(known[1]):
            run, single = ("A", "B") if known[0] else ("B", "A")
            listed = ", ".join(map(str, known[0] or known[1]))
            raise ComparisonError(
                f"{run} holds the ranks {listed} and {single} is a single trace: choose one rank with {option} N"
            )
        common = [number for number in known[0] if number in known[1]]
        if known[0] and not common:
            raise ComparisonError(
                f"no common rank: A holds {', '.join(map(str, known[0]))}, B {', '.join(map(str, known[1]))}; "
                f"choose with {option} N/M"
            )
        numbers = (common[0], common[0]) if common else (None, None)
    if not known[0] and not known[1] and numbers != (None, None):
        raise ComparisonError(f"{option}: both are single traces; leave it out to compare them")
    return _select_rank(a, numbers[0], "A", option), _select_rank(b, numbers[1], "B", option)


def list_ranks(trace: Trace) -> list[int]:
    """List the numbers of the ranks of a run; none for a single trace."""
    return [] if trace.merged_ranks is None else [rank.number for rank in trace.merged_ranks.all]


def _select_rank(trace: Trace, number: int | None, name: str, option: str) -> Trace:
    """Select one rank of a run; a single trace is its own. Raises ComparisonError."""
    if trace.merged_ranks is None or number is None:
        return trace
    rank = trace.merged_ranks.find_rank(number)
    if rank is None:
        known = ", ".join(map(str, list_ranks(trace)))
        raise ComparisonError(f"{option}: {name} has no rank {number}, it holds {known}")
    return rank.trace


def format_label(spec: str, original: Trace, chosen: Trace) -> str:
    """Format how a side is called: as the user named it, with the rank that was chosen of several."""
    ranks = [] if original.merged_ranks is None else original.merged_ranks.all
    number = next((rank.number for rank in ranks if rank.trace is chosen), None)
    return spec if number is None else f"{spec} rank {number}"


def compare_runs(
    wholes: tuple[Trace, Trace],
    specs: tuple[str, str],
    traces: Sequence[Trace],
    numbers: RankNumbers,
    selections: tuple[StepSelection, StepSelection],
) -> Comparison:
    """Compare the chosen ranks `traces` of two runs, called as the user named the runs. Raises ComparisonError."""
    a, b = (
        analyse_side(trace, f"{name} ({spec})", format_label(spec, whole, trace), selection)
        for name, spec, whole, trace, selection in zip(("A", "B"), specs, wholes, traces, selections, strict=True)
    )
    return Comparison(*match_steps(a, b), compare_ranks_of_runs(*wholes, numbers, selections))


def analyse_side(trace: Trace, name: str, label: str, selection: StepSelection) -> SideAnalysis:
    """Choose the compared steps of a side. Raises ComparisonError with `name` ("A (trace.json)") before the reason."""
    try:
        require_torch_trace(trace)
        return SideAnalysis(trace, label, selection)
    except ComparisonError as error:
        raise ComparisonError(f"{name}: {error}") from error


def match_steps(a: SideAnalysis, b: SideAnalysis) -> tuple[SideAnalysis, SideAnalysis]:
    """Keep the steps that two ranks of one run have in common, so that each is compared with itself on the other."""
    common = {step.number for step in a.side.steps} & {step.number for step in b.side.steps}
    if not common or not are_ranks_of_one_run(a.trace, b.trace):
        return a, b
    return a.keep_steps(common), b.keep_steps(common)


def compare_ranks_of_runs(
    a: Trace, b: Trace, numbers: RankNumbers, selections: tuple[StepSelection, StepSelection]
) -> list[RankChange]:
    """Compare the ranks of two runs, where no rank was chosen: the first one stands for the run."""
    if a is b or numbers != (None, None) or a.merged_ranks is None or b.merged_ranks is None:
        return []
    traces = [{rank.number: rank.trace for rank in ranks.all} for ranks in (a.merged_ranks, b.merged_ranks)]
    try:
        return compare_ranks(traces[0], traces[1], selections)
    except ComparisonError:  # a rank without the steps that the compared ones have
        return []
