"""Measure what each finding costs: time of the scope, each ns in one finding, and sort the findings by it.

A device's time is the path of a scope: what the GPU does, and where it is idle, what the CPU does meanwhile. Without a
GPU it is the time of the main thread. A finding costs what its own evidence takes of it, less what a narrower finding
explains. Patterns that describe a whole scope come last and keep the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, severity_sort_key
from torchprof_tui.analysis.patterns.engine.host_code_time import COMMUNICATION, OPS, PROFILER, divide_main_thread
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Finding, Pattern, Remedy, Severity
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.verdict.time_tree import Claims, divide_compute, find_spans, list_copy_intervals
from torchprof_tui.analysis.patterns.verdict.tree_model import COPIES, EXPOSED, GENERAL_PATTERN_IDS, WHOLE_SCOPE_IDS
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict, tell_costs
from torchprof_tui.analysis.patterns.verdict.waiting import LAUNCHING
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, unite
from torchprof_tui.trace.core.arrays import find_median, is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration

Path = list[dict[int, Intervals]]
"""Times in which a device is idle, copies, or communicates: for each of these, by device."""

MENTIONED_CUT = 0.05
"""Share of the steps from which the time that is left out of them is mentioned: less does not show in three digits."""


@record
class CostBase:
    """The time that costs are shares of: `time` ns, the mean of the devices, without the profiler's own.

    `steps`: how many they are, 0 for a recording without steps and for a range. `differ`: whether they take so
    different times that they are added up; else a cost is that of a step in the mean. `least`: the unit of the rank
    with the shortest, where costs are shares of each rank's own. `is_cut`: whether the profiler's time is worth a word.
    """

    time: int
    steps: int = 0
    differ: bool = False
    is_range: bool = False
    least: int | None = None
    is_cut: bool = False

    def price(self, finding: Finding) -> int:
        """Return what a finding costs of one unit, ns."""
        cost = finding.cost or 0
        return cost if self.differ or not self.steps else cost // self.steps

    @property
    def unit(self) -> int:
        """ns that a share of 1 stands for."""
        return self.time if self.differ or not self.steps else self.time // self.steps

    @property
    def label(self) -> str:
        if not self.steps:
            return "the range" if self.is_range else "the recording"
        if self.steps == 1:
            return "the step"
        return f"all {self.steps:,} steps" if self.differ else "a step"

    def describe(self) -> str:
        """Describe the base on one line: "a step: 11.2 ms, the mean of 3"."""
        text = f"{self.label}: {format_duration(self.unit)}"
        if self.least is not None and format_duration(self.least) != format_duration(self.unit):
            text = f"{self.label} of its rank: {format_duration(self.least)} to {format_duration(self.unit)}"
        text = f"{text}, the mean of {self.steps:,}" if self.steps > 1 and not self.differ else text
        return f"{text}, without the profiler's time" if self.is_cut else text


def find_base(view: ScopeView) -> CostBase:
    """Find what the costs of a scope are shares of."""
    devices = len(view.tables.devices)
    time = view.device_time // devices if devices else _list_cpu_path(view).total
    time = time if time > 0 else view.scope.length
    if not view.scope.is_whole_trace or not len(view.steps):
        return CostBase(time, is_range=not view.scope.is_whole_trace)
    tables = view.tables
    duration = np.diff(tables.step_bounds)[is_in(tables.steps.row, view.steps.row)]
    typical = find_median(duration)
    differ = bool((np.abs(duration - typical) > thresholds.STEPS_DIFFER.value * typical).any())
    is_cut = time < (1 - MENTIONED_CUT) * duration.sum()
    return CostBase(time, len(duration), differ, is_cut=bool(is_cut))


def price_findings(
    view: ScopeView, findings: Sequence[Finding], verdict: Verdict, with_cause: bool = True
) -> list[Finding]:
    """Set what each finding costs and sort them: worst first.

    `with_cause`: add the cause that the verdict names where no pattern is about it.
    """
    base = find_base(view)
    cause = _build_cause(view, verdict, base) if with_cause else None
    everything = [*findings] if cause is None else [*(each for each in findings if each.id != cause.id), cause]
    named = verdict.fault_pattern, (cause.id if cause is not None else verdict.pattern)  # both in its sentence
    is_own = verdict.cause in (IdleCause.INPUT.id, IdleCause.CPU_COMPUTE.id, EXPOSED)
    is_own |= any(finding.pattern.is_fault for finding in findings if finding.id == verdict.pattern)
    costs = measure_costs(view, everything, named, verdict.pattern if is_own else "")
    priced = [
        finding.with_cost(costs.get(finding.id, 0), base.time) if finding.is_problem else finding
        for finding in everything
    ]
    if cause is not None:  # what was seen says the same share as the verdict
        seen = tell_costs(verdict, priced).what
        priced[-1] = replace(priced[-1], answer=replace(priced[-1].answer, seen=seen))
    leading = max(reversed(named), key=lambda name: costs.get(name, 0))
    return sorted(
        (_lead(finding, verdict) if finding.id == leading else finding for finding in priced), key=severity_sort_key
    )


def _lead(finding: Finding, verdict: Verdict) -> Finding:
    """Let a finding be the one that the verdict is about, and say what to do in the same words."""
    leading = replace(finding, is_leading=True, line=finding.line or verdict.line)
    if finding.id not in GENERAL_PATTERN_IDS or finding.id == verdict.fault_pattern or not verdict.remedy:
        return leading
    return replace(leading, answer=replace(finding.answer, remedy=Remedy(verdict.remedy)))


def measure_costs(
    view: ScopeView, findings: Sequence[Finding], named: Sequence[str] = (), first: str = ""
) -> dict[str, int]:
    """Measure what each problem costs, ns by id: the mean of the devices, at most the problem's time at stake.

    Patterns that describe a whole scope or name no cause, and the verdict's cause, get their time at stake less what
    others explain of it: first those that the verdict has `named`, so that one wait is one finding; then the narrowest.
    Before all, the pattern `first` gets its own.
    """
    fired = [finding for finding in findings if finding.is_problem]
    whole_scope = WHOLE_SCOPE_IDS | (_CAUSES if len(view.tables.work) else _CPU_CAUSES).keys()
    path = _list_path(view)
    rest = [dict(part) for part in path]
    devices = max(len(path[0]), 1)
    costs = _claim_own(view, [finding for finding in fired if finding.id not in whole_scope], first, rest, devices)
    general = [finding for finding in fired if finding.id in whole_scope]
    spans = {finding.id: find_spans(view, finding).host for finding in general}
    order = {name: number for number, name in enumerate(named)}
    general.sort(key=lambda each: (order.get(each.id, 2), each.id in GENERAL_PATTERN_IDS, spans[each.id].total))
    for finding in general:
        at_stake = finding.answer.at_stake * devices
        costs[finding.id] = _claim_general(spans[finding.id], at_stake, path, rest) // devices
    return costs


def _claim_own(view: ScopeView, findings: list[Finding], first: str, rest: Path, devices: int) -> dict[str, int]:
    """Give findings what their own evidence takes, and take it out of the rest of the path: ns by id."""
    claims, found = Claims(view, findings, first), dict[str, int]()
    parts = [inside for number, part in enumerate(rest) for inside in claims.take(part, of_gpu=number > 0)]
    if len(view.tables.work):
        parts += [inside for part in claims.divide_work(divide_compute(view)) for inside in part.parts]
    for claimed in parts:
        found[claimed.id] = found.get(claimed.id, 0) + claimed.time
    at_stake = {finding.id: finding.answer.at_stake for finding in findings}
    return {name: min(time // devices, at_stake[name]) for name, time in found.items()}


def _claim_general(own: Intervals, at_stake: int, path: Path, rest: Path) -> int:
    """Give a finding of a whole scope what is left of its time, and take it out of the rest of the path: ns.

    `at_stake`: ns of all devices, of which what others explain is no longer its own.
    """
    left = _measure_within(rest, own)
    limit = at_stake - (_measure_within(path, own) - left)
    for part in rest:
        for device, times in part.items():
            taken = _take_first(times & own, limit)
            part[device], limit = times - taken, limit - taken.total
    return left - _measure_within(rest, own)


def _measure_within(path: Path, times: Intervals) -> int:
    """Measure the ns of a path that lie in these times."""
    return sum(each.measure_overlap(times) for part in path for each in part.values())


def _take_first(times: Intervals, length: int) -> Intervals:
    if length <= 0 or not len(times):
        return NO_INTERVALS
    before = np.cumsum(times.ends - times.starts) - (times.ends - times.starts)
    kept = before < length
    starts, ends = times.starts[kept], times.ends[kept]
    return Intervals(starts, np.minimum(ends, starts + (length - before[kept])))


def _list_path(view: ScopeView) -> Path:
    """List the time of each device in which it is idle, copies, or communicates; without a GPU the main thread's.

    Idle time of which nothing is known, and the profiler's, is left out.
    """
    if not len(view.tables.work):
        return [{0: _list_cpu_path(view)}]
    finder = view.gap_finder
    idle = {
        device: times.clip(*view.window) - finder.find_cause_intervals(IdleCause.UNKNOWN, device)
        for device, times in finder.known_idle_intervals.items()
    }
    return [idle, list_copy_intervals(view), view.exposed_intervals]


def _list_cpu_path(view: ScopeView) -> Intervals:
    """List the time of the main thread, without the profiler's; empty where no op was recorded."""
    return unite(times for part, times in divide_main_thread(view).items() if part != PROFILER)


_CAUSES = {
    IdleCause.INPUT.id: ("The GPU waits for input", IdleCause.INPUT.explanation),
    IdleCause.SYNC.id: ("The CPU waits for the GPU", IdleCause.SYNC.explanation),
    IdleCause.COLD_CALL.id: ("Calls load or allocate", IdleCause.COLD_CALL.explanation),
    IdleCause.DISPATCH.id: ("The GPU waits for the CPU to launch", IdleCause.DISPATCH.explanation),
    "host-code": ("", ""),
    IdleCause.CPU_COMPUTE.id: ("The GPU waits for work on the CPU", IdleCause.CPU_COMPUTE.explanation),
    IdleCause.QUEUED.id: ("Launched work does not start", IdleCause.QUEUED.explanation),
    EXPOSED: ("Communication is not hidden", "a collective runs, or is waited for, while no kernel computes"),
    COPIES: ("Copies are not hidden", "copies run while no kernel computes"),
}
"""What is said of a cause of lost time that no pattern is about: its title and its meaning, or the pattern to add."""

_CPU_CAUSES = {
    OPS: ("Ops take the CPU's time", "the program computes on the CPU, most of the time in ops"),
    COMMUNICATION: ("Communication takes the CPU's time", "the program sends, receives, or waits for other processes"),
}
"""The same without a GPU."""


def _build_cause(view: ScopeView, verdict: Verdict, base: CostBase) -> Finding | None:
    """Build a finding of the cause that the verdict names; None where a pattern is about it, or nothing is lost."""
    name = "host-code" if verdict.cause == IdleCause.HOST.id else verdict.cause
    diagnosis = verdict.diagnosis
    has_gpu, has_calls = len(view.tables.work) > 0, len(view.tables.calls) > 0
    causes = _CAUSES if has_gpu else {} if has_calls else _CPU_CAUSES  # without the GPU's work nothing is known of it
    if diagnosis is None or verdict.pattern or name not in causes or not verdict.remedy:
        return None
    times = _list_lost_times(view, verdict.cause) if has_gpu else [divide_main_thread(view)[name]]
    spans = unite(times).clip(*(view.window if has_gpu else (view.scope.t0, view.scope.t1)))
    title, meaning = causes[name]
    pattern = (PATTERNS.get(name) if has_gpu else None) or Pattern(
        name, title, meaning, verdict.remedy, "No pattern is about it: the largest cause.",
        lambda _: Answer.absent(), severity=Severity.PROBLEM,
    )  # fmt: skip
    events = diagnosis.events if len(diagnosis.events) else view.representative_events()
    # Of launching, a pause is a part, although the two compete for the sentence.
    is_launching = verdict.cause == IdleCause.DISPATCH.id
    lost = spans.total if is_launching else int(diagnosis.share * base.time)
    answer = Answer.fired(verdict.what, np.sort(events), lost, Remedy(verdict.remedy), spans=spans)
    return Finding(pattern, answer, 0.0, verdict.line)


def _list_lost_times(view: ScopeView, cause_id: str) -> list[Intervals]:
    """List when GPUs wait for a cause, or copy or communicate with nothing beside it."""
    path = _list_path(view)
    if cause_id in (EXPOSED, COPIES):
        return list(path[1 if cause_id == COPIES else 2].values())
    cause = next(cause for cause in IdleCause if cause.id == cause_id)
    wanted = LAUNCHING if cause is IdleCause.DISPATCH else (cause,)
    return [view.gap_finder.find_cause_intervals(each, device) for device in path[0] for each in wanted]
