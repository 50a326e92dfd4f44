"""Divide the time of a scope into parts that sum to it: GPU work by class, idle time by cause, patterns inside.

Every nanosecond of a scope is counted once for each device: the GPU computes, copies or communicates, or it is idle for
one cause, or the program did not run. Inside a part the fired patterns that explain it are listed with the time that
their evidence covers, the narrowest first, and no time twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.verdict import tree_model
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, COPIES, EXPOSED, TimePart, TimeTree
from torchprof_tui.analysis.time.gpu_time import work_mask
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals
from torchprof_tui.trace.core.arrays import I64, is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind

_LABELS = {COMPUTE: "GPU computes", COPIES: "copies without compute", EXPOSED: "collectives without compute"}

_UNEXPLAINED = (IdleCause.PROFILER, IdleCause.UNKNOWN, IdleCause.LEAD_IN)
"""Idle time that no pattern of the program explains."""


def build_time_tree(view: ScopeView, findings: Sequence[Finding] = ()) -> TimeTree:
    """Divide a scope with GPU work into parts; without `findings` no patterns are listed inside."""
    tables, gaps = view.tables, view.gaps
    device_count = max(len(tables.devices), 1)
    claims = Claims(view, findings)
    exposed, copies, compute = view.exposed_intervals, list_copy_intervals(view), divide_compute(view)
    parts = [
        TimePart(COMPUTE, _LABELS[COMPUTE], int(compute.sum()), claims.divide_work(compute)),
    ]
    for part_id, times in ((COPIES, copies), (EXPOSED, exposed)):
        total = sum(part.total for part in times.values())
        parts.append(TimePart(part_id, _LABELS[part_id], total, claims.take(dict(times), of_gpu=True)))
    for cause, time in gaps.time_by_cause().items():
        is_explained = bool(claims) and cause not in _UNEXPLAINED
        idle = {
            device: view.gap_finder.find_cause_intervals(cause, device).clip(*view.window)
            if is_explained
            else NO_INTERVALS
            for device in tables.devices
        }
        parts.append(TimePart(cause.id, f"idle: {cause.label}", time, claims.take(idle, of_gpu=False)))
    total = view.scope.length * device_count
    outside = total - sum(part.time for part in parts)
    parts.append(
        TimePart(tree_model.OUTSIDE, "outside the steps" if len(view.steps) else "outside the program", outside)
    )
    parts.sort(key=tree_model.part_sort_key)
    return TimeTree(tuple(part for part in parts if part.time), total, device_count)


def divide_compute(view: ScopeView) -> I64:
    """Divide the time in which devices computed among their kernels: int64[work], ns, 0 for copies and collectives.

    Where kernels overlap, the time belongs to the one that began first, so that the sum is the union.
    """
    work, (t0, t1) = view.work, view.window
    time = np.zeros(len(work), dtype=np.int64)
    is_compute = work.kind_mask(Kind.KERNEL, Kind.MEMSET)
    for device in view.tables.devices:
        index = np.flatnonzero(is_compute & (work.device == device))
        if not len(index):
            continue
        start, end = (np.clip(times[index], t0, t1) for times in (work.events.start, work.events.end))
        reach = np.maximum.accumulate(np.concatenate([[t0], end]))[:-1]
        time[index] = np.maximum(end - np.maximum(start, reach), 0)
    return time


def list_copy_intervals(view: ScopeView) -> dict[int, Intervals]:
    """List when each device copied in the window and neither computed nor communicated."""
    tables, exposed = view.tables, view.exposed_intervals
    return {
        device: tables.busy_intervals[device].clip(*view.window)
        - tables.compute_intervals[device].clip(*view.window)
        - exposed[device]
        for device in tables.devices
    }


_ORDER = {"op-compilation": -1, "optimizer-loop": 0, "tiny-kernels": 2}
_ORDER |= dict.fromkeys(["op-loop", "python-in-step", "exposed-comm"], 1)
_ORDER |= dict.fromkeys(tree_model.UNSPECIFIC_PATTERN_IDS, 3)
"""What explains time before or after the others. Faults come before what describes their work in general, the calls
that compile hold up whatever the op's thread did meanwhile; a loop explains what its waits do not, exposed
communication what no late rank causes; patterns that do not say whose launches they count come last."""


class Claims:
    """The time that fired patterns explain, each ns given to one: to `first`, else to that of least evidence."""

    def __init__(self, view: ScopeView, findings: Sequence[Finding], first: str = "") -> None:
        self._view = view
        problems = [finding for finding in findings if finding.is_problem and finding.answer.at_stake]
        specific = [finding for finding in problems if finding.id not in tree_model.GENERAL_PATTERN_IDS]
        spans = [find_spans(view, finding) for finding in specific]
        self._spans = [replace(each, order=-2) if each.finding.id == first else each for each in spans]
        self._spans.sort(key=lambda spans: (spans.order, spans.host.total + spans.gpu.total))

    def __bool__(self) -> bool:
        return bool(self._spans)

    def take(self, remaining: dict[int, Intervals], of_gpu: bool) -> tuple[TimePart, ...]:
        """List the patterns that explain some of `remaining`, intervals by device, and take that time out of it.

        Largest first. GPU work is explained by evidence on the GPU, idle time by what the CPU did.
        """
        parts = []
        narrowest = sorted(self._spans, key=lambda spans: (spans.order, (spans.gpu if of_gpu else spans.host).total))
        for claim in narrowest:
            self._view.raise_if_cancelled()
            finding, spans, time = claim.finding, claim.gpu if of_gpu else claim.host, 0
            for device, left in remaining.items():
                explained = left & spans if len(left) and len(spans) else NO_INTERVALS
                if len(explained):
                    time += explained.total
                    remaining[device] = left - explained
            if time:
                parts.append(TimePart(finding.id, finding.pattern.title, time))
        return tuple(sorted(parts, key=lambda part: -part.time))

    def divide_work(self, time: I64) -> tuple[TimePart, ...]:
        """Divide computing by class of kernel, with the patterns in each; `time`: ns of each piece of work."""
        work = self._view.work
        pattern_of_work = np.full(len(work), -1, dtype=np.int64)
        for number, claim in enumerate(self._spans):
            self._view.raise_if_cancelled()
            is_evidence = is_in(work.events.row, claim.finding.answer.events) & (pattern_of_work < 0)
            pattern_of_work[is_evidence] = number
        by_class = np.bincount(work.kernel_class, weights=time, minlength=len(KernelClass))
        parts = []
        for number in np.argsort(-by_class, kind="stable").tolist():
            if not by_class[number]:
                continue
            of_class = work.kernel_class == number
            claimed = np.bincount(
                pattern_of_work[of_class] + 1, weights=time[of_class], minlength=len(self._spans) + 1
            )[1:]
            inside = [
                TimePart(self._spans[k].finding.id, self._spans[k].finding.pattern.title, int(claimed[k]))
                for k in np.argsort(-claimed, kind="stable").tolist()
                if claimed[k]
            ]
            kernel_class = KernelClass(number)
            parts.append(TimePart(kernel_class.label, kernel_class.label, int(by_class[number]), tuple(inside)))
        return tuple(parts)


@record
class Spans:
    """When the time of a fired pattern was lost: by its evidence on the CPU, and by that on the GPU."""

    finding: Finding
    host: Intervals
    gpu: Intervals
    order: int


def find_spans(view: ScopeView, finding: Finding) -> Spans:
    """Find when the time of a fired pattern was lost: as its answer says, else during its evidence."""
    view.raise_if_cancelled()
    evidence = view.tables.event_table(finding.answer.events)
    on_gpu = work_mask(np.asarray(view.trace.kind[evidence.row]))
    gpu, host = evidence.select(on_gpu), evidence.select(~on_gpu)
    host_spans = finding.answer.spans if finding.answer.spans is not None else host.intervals
    order = _ORDER.get(finding.id, -1 if finding.pattern.is_fault else 0)
    # Without a GPU a thread's time begins before its first op.
    window = view.window if len(view.tables.work) else (view.scope.t0, view.scope.t1)
    return Spans(finding, host_spans.clip(*window), gpu.intervals.clip(*window), order)
