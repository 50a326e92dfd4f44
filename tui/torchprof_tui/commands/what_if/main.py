"""Predict a step under scenarios: `torchprof-tui what-if`."""

from __future__ import annotations

from collections.abc import Sequence

from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.analysis.what_if.forecast import Forecast
from torchprof_tui.analysis.what_if.scenario import ScenarioError
from torchprof_tui.answers.what_if import build_what_if, forecast_step
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, select_rank
from torchprof_tui.commands.common.output import import_text, print_answer
from torchprof_tui.commands.what_if import WhatIfOptions
from torchprof_tui.trace.model.trace import Trace


def run(options: WhatIfOptions) -> int:
    trace = load_specs(options.trace, cache=not options.no_cache).trace
    predicted = predict(trace, options.set, options.step, options.rank)
    if options.json:
        print_answer(build_what_if(*predicted))
    else:
        import_text("what_if").print_forecast(*predicted)
    return 0


def predict(
    trace: Trace, sets: Sequence[str], step: int | None, rank: int | None
) -> tuple[Trace, Forecast, list[Forecast], list[int]]:
    """Predict a step: the trace that is asked about, the forecast, that of each scenario alone, and the ranks.

    Raises UsageError.
    """
    if rank is not None or trace.merged_ranks is None:
        trace, _ = select_rank(trace, rank)
    try:
        return trace, *forecast_step(trace, sets, step)
    except WindowError as error:
        raise UsageError(f"{trace.label}: {error}") from error
    except ScenarioError as error:
        raise UsageError(f"--set {error}") from error
