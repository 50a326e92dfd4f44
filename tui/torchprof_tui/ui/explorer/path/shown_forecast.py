"""Predict the step that is shown under scenarios; read on worker threads, which import this module."""

from __future__ import annotations

import math
from dataclasses import dataclass

from textual.message import Message

from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.analysis.patterns.verdict.check_report import RemedyFinder
from torchprof_tui.analysis.what_if.forecast import Forecast, Forecaster
from torchprof_tui.analysis.what_if.scenario import ScenarioError, parse_scenario
from torchprof_tui.analysis.what_if.step_model import build_step_model
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean


@dataclass
class WhatIfRead(Message):
    """A worker has predicted a step with the scenarios of a text; None where it cannot be, for the reason in `problem`.

    `is_final`: the text was submitted, not only typed.
    """

    text: str
    forecast: ShownForecast | None
    problem: str = ""
    is_final: bool = False


SEPARATOR = ";"  # between the scenarios of a list; names of kernels contain commas


@record
class ShownForecast:
    """A forecast, and that of each of its scenarios alone. `step`: number of the step, None for the whole recording."""

    step: int | None
    forecast: Forecast
    each: tuple[Forecast, ...]

    def describe(self) -> str:
        """Describe the forecast in one line: "10.8 ms → 8.12 ms, 1.33x; then limited by GPU compute, …"."""
        forecast = self.forecast
        text = f"{format_duration(forecast.before)} → {describe_step_time(forecast)}"
        if forecast.limit is not None and forecast.bottleneck is not None:
            decides = "" if forecast.rank is None else f" on rank {forecast.rank}"
            text += f"; then limited by {forecast.limit.value}{decides}, next: {forecast.bottleneck.label}"
        if not forecast.is_trusted:
            text = f"do not trust this, the replay is off by {forecast.replay_error * 100:.1f} %: {text}"
        return text

    def list_scenarios(self) -> list[str]:
        """List what each scenario saves alone: "8.12 ms, 1.33x  class=gemm*0.5"."""
        return [f"{describe_step_time(alone)}  {clean(alone.scenarios[0].text)}" for alone in self.each]


def describe_step_time(forecast: Forecast) -> str:
    faster = f"{forecast.speedup:.2f}x" if math.isfinite(forecast.speedup) else "gone"
    return f"{format_duration(forecast.after)}, {faster}"


class ForecastReader:
    """Predicts steps of a trace; used by one worker thread at a time.

    Keeps the graph of the last step, and what was found in the trace.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._step: int | None = None
        self._forecaster: Forecaster | None = None
        self._remedies = RemedyFinder(trace)

    def read(self, step: int | None, text: str, is_final: bool) -> WhatIfRead:
        """Predict step number `step` with the scenarios of a text, or say why that cannot be."""
        try:
            scenarios = [parse_scenario(part.strip()) for part in text.split(SEPARATOR) if part.strip()]
            if self._forecaster is None or step != self._step:
                self._forecaster, self._step = Forecaster(build_step_model(self._trace, step)), step
            expanded = self._remedies.expand(scenarios)
            forecast = self._forecaster.predict(expanded)
            each = (forecast,) if len(expanded) == 1 else tuple(self._forecaster.predict([one]) for one in expanded)
        except (WindowError, ScenarioError) as error:
            return WhatIfRead(text, None, clean(str(error)), is_final)
        return WhatIfRead(text, ShownForecast(step, forecast, each), "", is_final)
