"""Find critical paths, and predict steps, for the Python API."""

from __future__ import annotations

from collections.abc import Sequence

from torchprof_tui.analysis.critical_path.critical_path import CriticalPath, find_critical_path
from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.analysis.patterns.verdict.wins import expand_patterns
from torchprof_tui.analysis.what_if.forecast import Forecast, Forecaster
from torchprof_tui.analysis.what_if.rank_join import build_step_model
from torchprof_tui.analysis.what_if.scenario import ScenarioError, parse_scenario
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace


def read_critical_path(trace: Trace, step: int | None) -> CriticalPath:
    """Find the critical path of a step of a trace of one process. Raises TraceError where there is no such step."""
    try:
        return find_critical_path(trace, step)
    except WindowError as error:
        raise TraceError(f"{trace.label}: {error}") from error


def predict_step(trace: Trace, scenarios: Sequence[str], step: int | None) -> Forecast:
    """Predict a step with these changes, of several ranks joined. Raises TraceError."""
    try:
        parsed = [parse_scenario(text) for text in scenarios]
        model = build_step_model(trace, step)
        return Forecaster(model).predict(expand_patterns(trace, parsed))
    except (WindowError, ScenarioError) as error:
        raise TraceError(f"{trace.label}: {error}") from error
