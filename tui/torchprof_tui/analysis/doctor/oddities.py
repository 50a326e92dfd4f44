"""What is valid and still not as one expects: each counted, with an event that shows it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchprof_tui.analysis.doctor.remark import Remark, Section
from torchprof_tui.analysis.time.gpu_time import work_mask
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I32, I64, Array
from torchprof_tui.trace.core.problems import excerpt
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

MIN_EMPTY_SHARE = 0.5
"""A stretch without any event that takes more than this of the trace: most of the screen would be empty."""


_NESTED, _SERIAL = 1, 2
_OVERLAP_RULES = {Role.THREAD: _NESTED, Role.GPU_ANNOTATIONS: _NESTED, Role.STREAM: _SERIAL}
"""Lanes on which an overlap is odd: what is asynchronous, or waits, overlaps by its nature."""


def find_oddities(trace: Trace) -> Iterator[Remark]:
    if not len(trace):
        return
    yield from _find_overlaps(trace)
    yield from _find_early_kernels(trace)
    yield from _find_work_without_launch(trace)
    yield from _find_launches_without_work(trace)
    yield from _find_work_without_duration(trace)
    yield from _find_profiler_overhead(trace)
    yield from _find_empty_stretch(trace)


def _build_remarks(
    kind: str, trace: Trace, events: Array, meaning: str, action: str = "", more: str = ""
) -> Iterator[Remark]:
    if len(events):
        event = int(events[0])
        whose = f"{trace.ranks.rank_of_event(event).label}: " if trace.ranks is not None else ""
        example = f"{whose}{excerpt(trace.event(event).name)} at {format_time(int(trace.start[event]))}{more}"
        yield Remark(Section.ODD, kind, len(events), meaning, example, action, event)


def _find_overlaps(trace: Trace) -> Iterator[Remark]:
    """An event that is not in the row below its parent found that row taken by one that overlaps it."""
    parent = trace.parent
    inside = parent >= 0
    expected = np.where(inside, trace.row[np.maximum(parent, 0)] + 1, 0)
    spilled = np.flatnonzero(trace.row != expected)
    odd = [
        0 if lane.merged_lanes else _OVERLAP_RULES.get(lane.role, 0) for lane in trace.lanes
    ]  # 0 also: we overlapped them
    role = np.array(odd, np.int8)[trace.lane[spilled]]
    yield from _build_remarks(
        "overlap",
        trace,
        spilled[role == _NESTED],
        "events that overlap a neighbour without lying inside it, drawn in a further row",
        "usual for steps that cross Python frames, and in traces whose times are rounded",
    )
    yield from _build_remarks(
        "kernels at once",
        trace,
        spilled[role == _SERIAL],
        "GPU work of one stream that overlaps other work of it, drawn in a further row",
        "usual in CUDA graphs and for programmatic dependent launches",
    )


def _find_early_kernels(trace: Trace) -> Iterator[Remark]:
    launch_of: I32 = trace.links.launch_of
    work = np.flatnonzero(launch_of >= 0)
    ahead = trace.start[launch_of[work]] - trace.start[work]
    early = work[ahead > 0]
    more = ""
    if len(early):
        early = early[np.argsort(-ahead[ahead > 0], kind="stable")]
        more = f", {format_duration(int(ahead.max()))} before its launch"
    yield from _build_remarks(
        "kernel before its launch",
        trace,
        early,
        "GPU work that begins before the call that launched it does: the two clocks are not quite aligned",
        "do not read queue delays as short as this",
        more,
    )


def _find_work_without_launch(trace: Trace) -> Iterator[Remark]:
    orphans = np.flatnonzero(work_mask(trace.kind) & (trace.links.launch_of < 0))
    yield from _build_remarks(
        "GPU work without launch",
        trace,
        orphans,
        "no runtime call has its correlation: launched before the window, or runtime calls were not recorded",
        "a warm-up step before the active ones keeps such work out",
    )


def _find_launches_without_work(trace: Trace) -> Iterator[Remark]:
    """Which calls launch is not told by a list of names, but by what calls of that name did elsewhere in the trace."""
    links = trace.links
    has_work = np.diff(links.work_first) > 0
    launching = np.unique(trace.name[has_work])
    calls: I64 = np.flatnonzero((trace.kind == Kind.RUNTIME) & ~has_work & (trace.correlation > 0))
    idle = calls[np.isin(trace.name[calls], launching)]
    yield from _build_remarks(
        "launch without GPU work",
        trace,
        idle,
        "calls that launch elsewhere in this trace, and started nothing that was recorded",
        "usual at the window's end: the GPU got there after the profiler had stopped",
    )


def _find_work_without_duration(trace: Trace) -> Iterator[Remark]:
    none = np.flatnonzero(work_mask(trace.kind) & (trace.duration == 0))
    yield from _build_remarks(
        "GPU work of 0 ns",
        trace,
        none,
        "kernels or copies that took no time at all: their end was not recorded, or clamped by the writer",
    )


def _find_profiler_overhead(trace: Trace) -> Iterator[Remark]:
    own = np.flatnonzero(trace.kind == Kind.OVERHEAD)
    own = own[np.argsort(-trace.duration[own], kind="stable")]
    covered = union(trace.start[own], trace.start[own] + trace.duration[own]).total
    longest = f", {format_duration(int(trace.duration[own[0]]))}" if len(own) else ""
    yield from _build_remarks(
        "profiler overhead",
        trace,
        own,
        f"{format_duration(covered)} in all that the profiler itself took: your program alone does not take it",
        "leave it out when you compare; warm-up steps take most of it before the window",
        longest,
    )


def _find_empty_stretch(trace: Trace) -> Iterator[Remark]:
    """The longest time in which nothing at all is recorded."""
    low, high = trace.span
    order = np.argsort(trace.start, kind="stable")
    start = trace.start[order]
    reached = np.maximum.accumulate(trace.start[order] + trace.duration[order])
    gaps = start[1:] - reached[:-1]
    if not len(gaps) or high <= low:
        return
    widest = int(gaps.argmax())
    if gaps[widest] > MIN_EMPTY_SHARE * (high - low):
        yield from _build_remarks(
            "empty stretch",
            trace,
            order[widest + 1 : widest + 2],
            f"{format_duration(int(gaps[widest]))} without a single event, most of the trace",
            "f fits what is selected; g goes to a time",
        )
