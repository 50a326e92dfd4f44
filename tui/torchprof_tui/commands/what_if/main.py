"""Predict a step under scenarios: `torchprof-tui what-if`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.analysis.what_if.forecast import Forecast
from torchprof_tui.analysis.what_if.scenario import ScenarioError
from torchprof_tui.answers.what_if import build_what_if, forecast_step
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, select_rank
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.commands.what_if import WhatIfOptions
from torchprof_tui.program.terminal_progress import show_work
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.number_format import format_share


def run(options: WhatIfOptions) -> int:
    trace = load_specs(options.trace, cache=not options.no_cache).trace
    with show_work("replaying the step"):
        predicted = predict(trace, options.set, options.step, options.rank)
    if options.json:
        print_answer(build_what_if(*predicted))
    else:
        print_forecast(*predicted)
    return 0


def predict(
    trace: Trace, sets: Sequence[str], step: int | None, rank: int | None
) -> tuple[Trace, Forecast, list[Forecast], list[int]]:
    """Predict a step: its trace, the forecast, that of each scenario alone, the ranks. Raises UsageError."""
    if rank is not None or trace.merged_ranks is None:
        trace, _ = select_rank(trace, rank)
    try:
        return trace, *forecast_step(trace, sets, step)
    except WindowError as error:
        raise UsageError(f"{trace.label}: {error}") from error
    except ScenarioError as error:
        raise UsageError(f"--set {error}") from error


def print_forecast(trace: Trace, forecast: Forecast, each: list[Forecast], ranks: list[int]) -> None:
    """Print the replay of the unchanged step, the step times before and after, and what limits the step then."""
    console = create_console()
    console.print(clean(trace.label))
    name = "the whole recording" if forecast.step is None else clean(forecast.step)
    text = f"{name}: {format_duration(forecast.recorded)}"
    if len(ranks) > 1:
        text += f" on {len(ranks)} ranks"
    text += f"; replay of the unchanged graph: {format_duration(forecast.replayed)}"
    text += f", error {forecast.replay_error * 100:.1f} %"
    if not forecast.is_trusted:
        text += ": dependencies are missing, do not trust what follows; `critical-path` says which"
    console.print(text)
    console.print()
    table = ConsoleTable("Step time", ">time", ">faster", "with")
    table.add_cells(format_duration(forecast.before), "", "nothing changed")
    if len(each) > 1:
        for alone in each:
            table.add_cells(format_duration(alone.after), _format_speedup(alone), clean(alone.scenarios[0].text))
    if each:
        changes = " and ".join(clean(scenario.text) for scenario in forecast.scenarios)
        table.add_cells(format_duration(forecast.after), _format_speedup(forecast), changes)
    console.print(table)
    if by_itself := forecast.describe_alone():
        console.print(by_itself)
    console.print()
    limit, bottleneck = forecast.limit, forecast.bottleneck
    if limit is None or bottleneck is None:
        console.print("Nothing is left of the step.")
        return
    decides = "" if forecast.rank is None else f" on rank {forecast.rank}"
    console.print(f"Then limited by {limit.value}{decides}; the next bottleneck: {bottleneck.label}")
    if not each:
        console.print("Change something: --set 'class=gemm*0.5', --set sync=0, --set launch=graph; see --help")
    console.print()
    table = ConsoleTable("New critical path", ">share", ">time", "kind")
    for part in forecast.path:
        table.add_cells(format_share(part.share), format_duration(part.time), part.label)
    console.print(table)


def _format_speedup(forecast: Forecast) -> str:
    return f"{forecast.speedup:.2f}x" if math.isfinite(forecast.speedup) else "gone"
