"""Measure the time of each layer of a model in each step, where modules or annotations name the layers.

With Python stacks torch records module calls as `nn.Module: Qwen3DecoderLayer_17`; some engines annotate layers
(`model.layers.17`). Of the names that occur with several numbers, that with most GPU time in the steps is the layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.graphs.captured_ops import get_captured_ops
from torchprof_tui.analysis.graphs.replay_join import Reason
from torchprof_tui.analysis.serving.measure_steps import assign_steps, find_launched_work
from torchprof_tui.analysis.serving.serving_steps import LayerTimes, ServingSteps
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_MODULE = re.compile(r"nn\.Module: (\w{1,200}?)_(\d{1,6})")
_ANNOTATION = re.compile(r"(?:[\w.:/ -]{0,200}[.:/ ])?(layers?)[._ ]?(\d{1,6})")


@dataclass(frozen=True, slots=True)
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
