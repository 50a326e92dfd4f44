"""Load the two sides of a comparison: the trace of each, one of its ranks, and the steps that were asked for."""

from __future__ import annotations

from collections.abc import Callable

from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.side_choice import (
    RankNumbers,
    analyse_side,
    compare_ranks_of_runs,
    format_label,
    select_ranks,
)
from torchprof_tui.analysis.compare.step_selection import (
    ComparisonError,
    Selections,
    StepSelection,
    parse_step_numbers,
    split_sides,
)
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, use_captures
from torchprof_tui.commands.common.options import parse_time_range
from torchprof_tui.commands.diff.options import DiffOptions
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace


def load_comparison(options: DiffOptions, load: Callable[[str], Trace] | None = None) -> Comparison:
    """Load both sides. Raises UsageError and TraceError: one line that says which side, and what can be compared.

    `load`: what opens a side, in place of the command's own way.
    """
    selections = parse_selections(options)
    numbers = parse_ranks(options.rank)
    load = load or (lambda spec: load_specs([spec], cache=not options.no_cache).trace)
    a = _load(options.a, "A", load)
    b = a if options.b == options.a else _load(options.b, "B", load)
    try:
        traces = [
            use_captures(trace, options.capture, not options.no_cache)
            for trace in select_ranks(a, b, numbers, "--rank")
        ]
        sides = [
            analyse_side(trace, f"{name} ({spec})", format_label(spec, original, trace), selection)
            for name, spec, original, trace, selection in zip(
                ("A", "B"), (options.a, options.b), (a, b), traces, selections, strict=True
            )
        ]
    except ComparisonError as error:
        raise UsageError(str(error)) from error
    return Comparison(sides[0], sides[1], compare_ranks_of_runs(a, b, numbers, selections))


def _load(spec: str, name: str, load: Callable[[str], Trace]) -> Trace:
    try:
        return load(spec)
    except TraceError as error:
        raise TraceError(f"{name}: {error}") from error


def parse_selections(options: DiffOptions) -> Selections:
    """Parse --steps and --range. Raises UsageError."""
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


def parse_ranks(text: str | None) -> RankNumbers:
    """Parse --rank. Raises UsageError."""
    if text is None:
        return None, None
    try:
        a, b = (int(part) for part in split_sides(text))
    except ValueError:
        raise UsageError(f"--rank {text}: ranks are numbers, 0 or 0/3") from None
    return a, b
