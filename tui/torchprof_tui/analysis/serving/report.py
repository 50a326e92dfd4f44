"""Report the serving steps of a trace: the steps, their sums by kind, the layers, or how to record steps."""

from __future__ import annotations

from torchprof_tui.analysis.serving.kind_summaries import summarize_kinds
from torchprof_tui.analysis.serving.layer_times import measure_layers
from torchprof_tui.analysis.serving.measure_steps import get_serving_steps
from torchprof_tui.analysis.serving.serving_steps import ServingReport
from torchprof_tui.trace.model.trace import Trace

NO_SERVING_STEPS = "no steps of a serving engine were recorded"

RECORD_SERVING_STEPS = (
    "vLLM names its steps in the traces of its own profiler: "
    """vllm serve --profiler-config '{"profiler": "torch", "torch_profiler_dir": "/tmp/traces"}' """
    "(before 0.13: VLLM_TORCH_PROFILER_DIR=/tmp/traces), then POST /start_profile and /stop_profile; "
    "SGLang names them in the traces of POST /start_profile"
)
"""How to record steps; VLLM_CUSTOM_SCOPES_FOR_PROFILING adds scopes inside a step."""


NO_STEPS_IN_RANGE = "no step of the serving engine starts in this range"


def report_serving(trace: Trace, time_range: tuple[int, int] | None = None) -> ServingReport:
    """Report the serving steps of a trace of one process. Opens the traces of the captures, where it has some.

    `time_range`: the kinds and layers are those of the steps that start in [t0, t1) ns.
    """
    steps = get_serving_steps(trace)
    if not len(steps):
        return ServingReport(steps, (), None, f"{NO_SERVING_STEPS}; {RECORD_SERVING_STEPS}")
    if time_range is None:
        return ServingReport(steps, summarize_kinds(steps), measure_layers(trace, steps), "")
    chosen = (steps.start >= time_range[0]) & (steps.start < time_range[1])
    layers = measure_layers(trace, steps) if chosen.any() else None
    if layers is not None:
        layers = layers.select_steps(chosen)
    missing = "" if chosen.any() else NO_STEPS_IN_RANGE
    return ServingReport(steps, summarize_kinds(steps, chosen), layers, missing)
