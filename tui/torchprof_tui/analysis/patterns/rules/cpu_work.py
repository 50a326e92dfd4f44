"""The pattern of ops that compute on the CPU while the GPU waits: creation of tensors, set-up, preparation."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Remedy,
    Severity,
    find_event_places,
    register_pattern,
)
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, union
from torchprof_tui.trace.core.arrays import find_largest
from torchprof_tui.trace.core.time_format import format_duration

CREATING_OP = re.compile(
    r"aten::(rand|randn|randint|randperm|normal|uniform|log_normal|bernoulli|exponential|random|trunc_normal|zeros?|ones?"
    r"|full|fill|arange|linspace|eye|tril|triu)(_like|_)?$"
)
"""Ops that create values from nothing, which any device can do itself."""

_MAX_NAMED = 2


@dataclass(frozen=True, slots=True)
class CpuWork:
    """What ops computed on the CPU in a scope while a GPU was idle.

    `ops`: the outermost of them. `idle`: ns of idle time, all devices. `text`: the longest ops by name and time.
    `is_setup`: most of it lies before the first GPU work. `is_creation`: most of it creates values.
    """

    ops: EventTable
    idle: int
    text: str
    is_setup: bool
    is_creation: bool

    @property
    def remedy(self) -> Remedy:
        create = "create these tensors on the GPU (device=…), not on the CPU" if self.is_creation else ""
        if self.is_setup:
            action = "set-up was recorded: start the profiler after it"
            return Remedy(f"{action}; if start-up matters, {create}" if create else action)
        if create:
            return Remedy(create, "x = torch.randn(shape, device=device)  # instead of torch.randn(shape).to(device)")
        return Remedy("move these ops to the GPU, or into the workers of the data loader")


def measure_cpu_work(view: ScopeView) -> CpuWork:
    """Measure the ops that compute on the CPU; computed once for a view through `compute_once`."""
    found = view.select_in_scope(view.gap_finder.host.cpu_ops)
    is_found = np.zeros(len(view.trace), dtype=np.bool_)
    is_found[found.row] = True
    ops = found.select(find_nearest_ancestor(view.trace.parent, found.row, is_found) < 0)
    idle = int(view.gaps.time[:, IdleCause.CPU_COMPUTE].sum())
    if not len(ops):
        return CpuWork(ops, idle, "", is_setup=False, is_creation=False)
    time = np.bincount(ops.name, weights=view.time_in_scope(ops))
    largest = [int(name) for name in find_largest(time, _MAX_NAMED) if time[name]]
    text = ", ".join(f"{view.trace.names[name]} {format_duration(float(time[name]))}" for name in largest)
    total = float(time.sum())
    first_work = int(view.tables.work.events.start.min())
    creating = sum(
        float(time[name]) for name in np.flatnonzero(time).tolist() if CREATING_OP.match(view.trace.names[name])
    )
    before = union(ops.start, ops.end).measure_between(view.scope.t0, max(first_work, view.scope.t0))
    return CpuWork(ops, idle, text, 2 * before > total, 2 * creating > total)


@register_pattern(
    "The GPU waits for ops that compute on the CPU",
    meaning="an op that launches nothing computes on the CPU: random numbers, weights or inputs that are created there "
    "and copied later, or preparation that no worker does",
    action="create tensors on the GPU, or prepare them in the workers of the data loader",
    code="x = torch.randn(shape, device=device)  # instead of torch.randn(shape).to(device)",
    decided="GPU idle time during ops of a launching thread that are longer than the limit, launch nothing and make no "
    "runtime call, without those in the data loader.",
    thresholds=(thresholds.CPU_OP_MIN, thresholds.CPU_WORK_SHARE),
    severity=Severity.PROBLEM,
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_calls_reason),
)
def cpu_work(view: ScopeView) -> Answer:
    work = view.compute_once(measure_cpu_work)
    idle = work.idle // len(view.tables.devices)
    share = work.idle / view.device_time if view.device_time > 0 else 0.0
    if not len(work.ops) or share < thresholds.CPU_WORK_SHARE.value:
        return Answer.absent(f"{format_percent(share)} of the time" if idle else "")
    spans = NO_INTERVALS
    for device in view.tables.devices:
        spans = spans | view.gap_finder.list_cause_intervals(view.gaps, IdleCause.CPU_COMPUTE, device)
    return Answer.fired(
        f"{work.text}; the GPU was idle {format_duration(idle)} meanwhile, {format_percent(share)} of "
        f"{view.window_label}",
        np.sort(work.ops.row),
        idle,
        work.remedy,
        spans=spans,
        places=find_event_places(view.trace, work.ops.row, view.time_in_scope(work.ops)),
    )
