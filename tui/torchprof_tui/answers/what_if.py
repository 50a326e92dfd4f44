"""The answer of `what-if`: how long a step would take with some changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from torchprof_tui.analysis.patterns.verdict.check_report import RemedyFinder
from torchprof_tui.analysis.what_if.forecast import Forecast, Forecaster
from torchprof_tui.analysis.what_if.scenario import parse_scenario
from torchprof_tui.analysis.what_if.step_model import build_step_model
from torchprof_tui.answers.losses import Problem, build_losses
from torchprof_tui.answers.record import Answer, Record, about, fill
from torchprof_tui.trace.model.trace import Trace


class ScenarioStep(Record, frozen=True, kw_only=True):
    """One change by itself."""

    set: Annotated[str, about("as given")]
    predicted_us: Annotated[float, about("step time with this change alone")]
    speedup: Annotated[float | None, about("before_us / predicted_us; null where nothing is left")]


class PathPart(Record, frozen=True, kw_only=True):
    """Time of one kind on the new critical path."""

    kind: Annotated[str, about('dispatch, launch, host code, "kernel: gemm", collective, GPU queue, …')]
    resource: Annotated[str, about("CPU dispatch, GPU compute, memory copies, communication, input or waiting")]
    us: Annotated[float, about("on the path")]
    share: Annotated[float, about("of the path")]


class NextBottleneck(Record, frozen=True, kw_only=True):
    """The part with most of the new critical path."""

    kind: Annotated[str, about("its resource: CPU dispatch, GPU compute, communication, …")]
    name: Annotated[str, about('as in `path`: dispatch, "kernel: gemm", …')]
    share: Annotated[float, about("of the path")]


class WhatIf(Answer, frozen=True, kw_only=True, tag="torchprof-tui/what-if/3"):
    """How long a step would take with some changes."""

    step: Annotated[str | None, about("name of the step; null: the whole recording")]
    ranks: Annotated[list[int], about("ranks that were replayed together; [] for a trace without a rank")]
    recorded_us: Annotated[
        float,
        about(
            "the recorded step: from when all that was launched before has ended until its last GPU work has; as "
            "duration_us of critical-path"
        ),
    ]
    replay_us: Annotated[float, about("the same, as the unchanged dependency graph predicts it")]
    replay_error: Annotated[float, about("(replay_us - recorded_us) / recorded_us")]
    trusted: Annotated[bool, about("whether the error is at most 5 %")]
    before_us: Annotated[float, about("step time, unchanged: from one step to the next in a loop of such steps")]
    predicted_us: Annotated[float, about("step time with all changes")]
    alone_us: Annotated[float, about("the changed step, as recorded_us")]
    speedup: Annotated[float | None, about("before_us / predicted_us; null where nothing is left")]
    limit: Annotated[str | None, about("the resource with most of the new critical path")]
    next: Annotated[NextBottleneck | None, about("what to change next; null where nothing is left")]
    rank: Annotated[int | None, about("the rank that decides the new step time; null for one process")]
    scenarios: Annotated[list[ScenarioStep], about("each change by itself")]
    path: Annotated[list[PathPart], about("the new critical path by kind, longest first")]
    partial: Annotated[list[Problem], about("what was lost of the whole trace; [] for nothing")]


def forecast_step(
    trace: Trace, scenarios: Sequence[str], step: int | None
) -> tuple[Forecast, list[Forecast], list[int]]:
    """Predict a step with these changes: together, each alone; and the ranks. Raises WindowError, ScenarioError."""
    parsed = [parse_scenario(text) for text in scenarios]
    model = build_step_model(trace, step)
    parsed = RemedyFinder(trace).expand(parsed)
    forecaster = Forecaster(model)
    alone = [forecaster.predict([scenario]) for scenario in parsed]
    return forecaster.predict(parsed), alone, [rank.number for rank in model.ranks if rank.number is not None]


def build_what_if(trace: Trace, forecast: Forecast, each: list[Forecast], ranks: list[int]) -> WhatIf:
    """Build the answer of a forecast; `each`: the forecasts of its scenarios one by one."""
    limit, bottleneck = forecast.limit, forecast.bottleneck
    return fill(
        WhatIf,
        forecast,
        ranks=ranks,
        replay_us=forecast.replayed / 1000,
        trusted=forecast.is_trusted,
        predicted_us=forecast.after / 1000,
        speedup=_finite(forecast.speedup),
        limit=None if limit is None else limit.value,
        next=None
        if bottleneck is None
        else NextBottleneck(kind=bottleneck.resource.value, name=bottleneck.label, share=bottleneck.share),
        scenarios=[
            ScenarioStep(set=alone.scenarios[0].text, predicted_us=alone.after / 1000, speedup=_finite(alone.speedup))
            for alone in each
        ],
        path=[
            PathPart(kind=part.label, resource=part.resource.value, us=part.time / 1000, share=part.share)
            for part in forecast.path
        ],
        partial=build_losses(trace),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
