"""Report the serving steps of a trace: the steps, their sums by kind, the layers, or how to record steps.

With Python stacks torch records module calls as `nn.Module: Qwen3DecoderLayer_17`; some engines annotate layers
(`model.layers.17`). Of the names that occur with several numbers, that with most GPU time in the steps is the layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from torchprof_tui.analysis.graphs.captured_ops import get_captured_ops
from torchprof_tui.analysis.graphs.replay_join import Reason
from torchprof_tui.analysis.serving.measure_steps import assign_steps, find_launched_work, get_serving_steps
from torchprof_tui.analysis.serving.serving_steps import (
    KindSummary,
    LayerTimes,
    NotGraphed,
    ServingReport,
    ServingSteps,
)
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.steps import UNKNOWN, StepKind
from torchprof_tui.trace.model.trace import Trace


def summarize_kinds(steps: ServingSteps, chosen: Bool | None = None) -> tuple[KindSummary, ...]:
    """Summarise each kind that occurs, of all steps or the chosen ones (bool[s])."""
    included = np.ones(len(steps), np.bool_) if chosen is None else chosen
    masks = ((kind, steps.kind_mask(kind) & included) for kind in StepKind)
    return tuple(_summarize(steps, kind, np.flatnonzero(mask)) for kind, mask in masks if mask.any())


def _summarize(steps: ServingSteps, kind: StepKind, rows: I64) -> KindSummary:
    counted = rows[steps.tokens[rows] > 0]
    tokens = int(steps.tokens[counted].sum())
    step_time = steps.step_time[rows]
    per_token = steps.time_per_token[counted]
    kernels, graph_kernels = int(steps.kernels[rows].sum()), int(steps.graph_kernels[rows].sum())
    gap = steps.gap[rows][steps.gap[rows] != UNKNOWN]
    gap_idle = steps.gap_idle[rows][steps.gap_idle[rows] != UNKNOWN]
    outside = (steps.kernels - steps.graph_kernels)[rows]
    counts = np.bincount(steps.not_graphed[rows], weights=outside, minlength=len(NotGraphed)).astype(np.int64)
    found = [(reason, int(counts[reason])) for reason in NotGraphed if counts[reason]]
    return KindSummary(
        kind=kind,
        steps=len(rows),
        counted=len(counted),
        step_p50=_quantile(step_time, 50) or 0.0,
        step_p95=_quantile(step_time, 95) or 0.0,
        step_sum=int(step_time.sum()),
        lead_in=int(steps.lead_in[rows].sum()),
        batch=_known_median(steps.batch[rows]),
        kv_length=_known_median(steps.kv_length[rows]),
        tokens=tokens if len(counted) else None,
        token_p50=_quantile(per_token, 50),
        token_p95=_quantile(per_token, 95),
        tokens_per_second=_rate(tokens, int(steps.step_time[counted].sum())),
        tokens_per_second_with_pauses=_rate(tokens, int((steps.step_time + steps.pause)[counted].sum())),
        kernels=kernels,
        kernels_per_token=int(steps.kernels[counted].sum()) / tokens if tokens else None,
        cpu_time=int(steps.cpu_time[rows].sum()),
        cpu_per_token=int(steps.cpu_time[counted].sum()) / tokens if tokens else None,
        gpu_time=int(steps.gpu_time[rows].sum()),
        graph_share=graph_kernels / kernels if kernels else None,
        not_graphed=tuple(sorted(found, key=lambda item: -item[1])),
        gap_p50=_quantile(gap, 50),
        gap_p95=_quantile(gap, 95),
        gap_sum=int(gap.sum()),
        gap_idle=int(gap_idle.sum()) if len(gap_idle) else None,
    )


def _quantile(values: I64 | F64, percent: float) -> float | None:
    """Return a percentile, between two values interpolated linearly; None of none."""
    return float(np.percentile(values, percent)) if len(values) else None


def _known_median(values: I64) -> float | None:
    return _quantile(values[values != UNKNOWN], 50)


def _rate(count: int, time: int) -> float | None:
    return count * 1e9 / time if count and time else None


_MODULE = re.compile(r"nn\.Module: (\w{1,200}?)_(\d{1,6})")
_ANNOTATION = re.compile(r"(?:[\w.:/ -]{0,200}[.:/ ])?(layers?)[._ ]?(\d{1,6})")


@record
class _NamedCalls:
    """The calls of modules, or annotations, of one name with several numbers: rows ascending, and the numbers."""

    rows: I64
    number: I32


def measure_layers(trace: Trace, steps: ServingSteps) -> LayerTimes | None:
    """Measure the layers in each step; None where nothing names several.

    The kernels of a replayed graph belong to the layer in which they were captured, where a trace of the capture is
    known. Opens the traces of the captures.
    """
    if not len(steps):
        return None
    rows, step = find_launched_work(trace, steps.start, steps.end, steps.lane)
    duration = np.asarray(trace.duration[rows])
    pieces = [(trace, np.arange(len(rows)), trace.links.launch_of[rows]), *_list_captured(trace, rows)]
    layer_of_name: dict[str, I32] = {}
    captured_names: set[str] = set()
    for source, index, call in pieces:
        for name, named in _find_named_calls(source).items():
            layer = layer_of_name.setdefault(name, np.full(len(rows), -1, np.int32))
            found = _layer_at(source, named, call)
            layer[index[found >= 0]] = found[found >= 0]
            if source is not trace and (found >= 0).any():
                captured_names.add(name)
    best = max(layer_of_name, key=lambda name: int(duration[layer_of_name[name] >= 0].sum()), default=None)
    if best is None:
        return None
    own = _find_named_calls(trace).get(best, _NamedCalls(np.empty(0, np.int64), np.empty(0, np.int32)))
    layer = layer_of_name[best]
    times = _sum_times(trace, steps, own, (step[layer >= 0], layer[layer >= 0], duration[layer >= 0]))
    return None if not len(times[0]) else LayerTimes(best, *times, is_captured=best in captured_names)


def _list_captured(trace: Trace, rows: I64) -> Iterator[tuple[Trace, I64, I32]]:
    """List what was captured for replayed work: (trace of the capture, index into `rows`, its call there)."""
    ops = get_captured_ops(trace)
    if ops is None:
        return
    known = np.flatnonzero(
        (ops.join.reason == Reason.MATCHED) & (ops.join.capture >= 0) & (ops.join.capture < len(ops.captures))
    )
    index = rows.searchsorted(ops.replays.work[known])
    is_here = rows[np.minimum(index, len(rows) - 1)] == ops.replays.work[known] if len(rows) else index < 0
    known, index = known[is_here], index[is_here]
    for number, capture in enumerate(ops.captures):
        chosen = ops.join.capture[known] == number
        if chosen.any():
            yield capture, index[chosen], ops.join.launch[known[chosen]]


def _find_named_calls(trace: Trace) -> dict[str, _NamedCalls]:
    """Find the calls whose name ends in a number, by the rest of the name; without names that have one number only."""
    calls = np.flatnonzero((trace.kind == Kind.PYTHON) | (trace.kind == Kind.ANNOTATION))
    used, inverse = np.unique(trace.name[calls], return_inverse=True)
    group = np.full(len(used), -1, np.int32)
    number = np.full(len(used), -1, np.int32)
    names: dict[str, int] = {}
    for index, name in enumerate(used.tolist()):
        text = trace.names[name]
        match = _MODULE.fullmatch(text) or _ANNOTATION.fullmatch(text)
        if match is not None:
            group[index] = names.setdefault(match[1], len(names))
            number[index] = int(match[2])
    found = {}
    of_call = group[inverse.reshape(-1)]
    for name, own_group in names.items():
        if np.count_nonzero(group == own_group) > 1:
            chosen = np.flatnonzero(of_call == own_group)
            found[name] = _NamedCalls(calls[chosen], number[inverse.reshape(-1)[chosen]])
    return found


def _layer_at(trace: Trace, named: _NamedCalls, calls: I32 | I64) -> I32:
    """Return the number of the named call that each call was made in: int32[k], -1 for none.

    Rows are sorted by lane, then start: the named call with the greatest row before a call is the last to start.
    """
    index = np.maximum(named.rows.searchsorted(calls, side="right") - 1, 0)
    row = named.rows[index]
    end = trace.start[row] + np.maximum(trace.duration[row], 1)
    is_inside = (row <= calls) & (trace.lane[row] == trace.lane[calls]) & (trace.start[calls] < end)
    return np.where(is_inside, named.number[index], -1).astype(np.int32)


def _sum_times(
    trace: Trace, steps: ServingSteps, own: _NamedCalls, work: tuple[I64, I32, I64]
) -> tuple[I32, I32, I64, I64]:
    """Sum the GPU work (step, layer, ns) and the calls of the layers: (step, layer, GPU time, CPU time), [k] each."""
    step, layer, duration = work
    call_step = assign_steps(
        steps.start, steps.end, steps.lane, np.asarray(trace.lane[own.rows]), np.asarray(trace.start[own.rows])
    )
    in_step = call_step >= 0
    keys = np.concatenate([step, call_step[in_step]]) << 32 | np.concatenate([layer, own.number[in_step]])
    used, inverse = np.unique(keys, return_inverse=True)
    inverse = inverse.reshape(-1)
    gpu_time, cpu_time = np.zeros(len(used), np.int64), np.zeros(len(used), np.int64)
    np.add.at(gpu_time, inverse[: len(step)], duration)
    np.add.at(cpu_time, inverse[len(step) :], trace.duration[own.rows[in_step]])
    return (used >> 32).astype(np.int32), (used & 0xFFFFFFFF).astype(np.int32), gpu_time, cpu_time


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
