"""Build the JSON document of `what-if --json`."""

from __future__ import annotations

import math

from torchprof_tui.analysis.what_if.forecast import Forecast
from torchprof_tui.commands.common.partial_input import build_partial
from torchprof_tui.commands.what_if.records import PathRecord, ScenarioRecord, WhatIfDocument
from torchprof_tui.trace.model.trace import Trace

_NS_PER_US = 1000


def build_document(trace: Trace, forecast: Forecast, each: list[Forecast], ranks: list[int]) -> WhatIfDocument:
    """Build the document of a forecast; `each`: the forecasts of its scenarios one by one."""
    limit, bottleneck = forecast.limit, forecast.bottleneck
    return WhatIfDocument(
        step=forecast.step,
        ranks=ranks,
        duration_us=forecast.recorded / _NS_PER_US,
        replay_us=forecast.replayed / _NS_PER_US,
        replay_error=forecast.replay_error,
        trusted=forecast.is_trusted,
        before_us=forecast.before / _NS_PER_US,
        after_us=forecast.after / _NS_PER_US,
        alone_us=forecast.alone / _NS_PER_US,
        speedup=_finite(forecast.speedup),
        limit=None if limit is None else limit.value,
        bottleneck=None if bottleneck is None else bottleneck.label,
        rank=forecast.rank,
        scenarios=[
            ScenarioRecord(
                set=alone.scenarios[0].text, after_us=alone.after / _NS_PER_US, speedup=_finite(alone.speedup)
            )
            for alone in each
        ],
        path=[
            PathRecord(kind=part.label, resource=part.resource.value, us=part.time / _NS_PER_US, share=part.share)
            for part in forecast.path
        ],
        partial=build_partial(trace),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
