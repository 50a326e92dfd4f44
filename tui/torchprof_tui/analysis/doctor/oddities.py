"""Find valid but unexpected data: each oddity is counted and shown by one event."""

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
"""Share of the trace above which a stretch without events is reported: it leaves most of the screen empty."""


_NESTED, _SERIAL = 1, 2
_OVERLAP_RULES = {Role.THREAD: _NESTED, Role.GPU_ANNOTATIONS: _NESTED, Role.STREAM: _SERIAL}
"""Lanes on which an overlap is odd. Asynchronous events and waits may overlap."""


def find_oddities(trace: Trace) -> Iterator[Remark]:
    """Find all oddities of a trace; see the functions below for each."""
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
    kind: str, trace: Trace, events: Array, meaning: str, action: str = "", suffix: str = ""
) -> Iterator[Remark]:
    """Yield one remark on `events`, with the first as example followed by `suffix`; nothing if there are none."""
    if len(events):
        event = int(events[0])
        owner = trace.rank_of_event(event).label_prefix(": ")
        example = f"{owner}{excerpt(trace.event(event).name)} at {format_time(int(trace.start[event]))}{suffix}"
        yield Remark(Section.ODD, kind, len(events), meaning, example, action, event)


def _find_overlaps(trace: Trace) -> Iterator[Remark]:
    """Find overlaps: events that are not in the row below their parent, because an overlapping event occupies it."""
    parent = trace.parent
    inside = parent >= 0
    expected = np.where(inside, trace.row[np.maximum(parent, 0)] + 1, 0)
    spilled = np.flatnonzero(trace.row != expected)
    # Lanes merged by this program overlap by construction and have no rule.
    rules = [0 if lane.merged_lanes else _OVERLAP_RULES.get(lane.role, 0) for lane in trace.lanes]
    rule = np.array(rules, np.int8)[trace.lane[spilled]]
    yield from _build_remarks(
        "overlap",
        trace,
        spilled[rule == _NESTED],
        "events that partly overlap another one, drawn in a further row",
        "normal for steps that cross Python frames, and in traces with rounded times",
    )
    yield from _build_remarks(
        "kernels at once",
        trace,
        spilled[rule == _SERIAL],
        "GPU work that overlaps other work of the same stream, drawn in a further row",
        "normal in CUDA graphs and for programmatic dependent launches",
    )


def _find_early_kernels(trace: Trace) -> Iterator[Remark]:
    """Find GPU work that starts before its launch, the earliest relative to its launch first."""
    launch_of: I32 = trace.links.launch_of
    work = np.flatnonzero(launch_of >= 0)
    ahead = trace.start[launch_of[work]] - trace.start[work]
    early = work[ahead > 0]
    suffix = ""
    if len(early):
        early = early[np.argsort(-ahead[ahead > 0], kind="stable")]
        suffix = f", {format_duration(int(ahead.max()))} before its launch"
    yield from _build_remarks(
        "kernel before its launch",
        trace,
        early,
        "GPU work that starts before the call that launched it: the two clocks are not exactly aligned",
        "do not trust queue delays as short as this",
        suffix,
    )


def _find_work_without_launch(trace: Trace) -> Iterator[Remark]:
    orphans = np.flatnonzero(work_mask(trace.kind) & (trace.links.launch_of < 0))
    yield from _build_remarks(
        "GPU work without launch",
        trace,
        orphans,
        "no runtime call has its correlation: it was launched before the recording, or runtime calls were not recorded",
        "a warm-up step before the active steps avoids it",
    )


def _find_launches_without_work(trace: Trace) -> Iterator[Remark]:
    """Find runtime calls without GPU work, among the names that launch GPU work elsewhere in the trace."""
    links = trace.links
    has_work = np.diff(links.work_first) > 0
    launching = np.unique(trace.name[has_work])
    calls: I64 = np.flatnonzero((trace.kind == Kind.RUNTIME) & ~has_work & (trace.correlation > 0))
    idle = calls[np.isin(trace.name[calls], launching)]
    yield from _build_remarks(
        "launch without GPU work",
        trace,
        idle,
        "launching calls whose GPU work was not recorded",
        "normal at the end: the GPU runs the work after the profiler has stopped",
    )


def _find_work_without_duration(trace: Trace) -> Iterator[Remark]:
    instant = np.flatnonzero(work_mask(trace.kind) & (trace.duration == 0))
    yield from _build_remarks(
        "GPU work of 0 ns",
        trace,
        instant,
        "kernels or copies with a duration of 0: their end was not recorded, or was cut off by the writer",
    )


def _find_profiler_overhead(trace: Trace) -> Iterator[Remark]:
    overhead = np.flatnonzero(trace.kind == Kind.OVERHEAD)
    overhead = overhead[np.argsort(-trace.duration[overhead], kind="stable")]
    covered = union(trace.start[overhead], trace.start[overhead] + trace.duration[overhead]).total
    longest = f", {format_duration(int(trace.duration[overhead[0]]))}" if len(overhead) else ""
    yield from _build_remarks(
        "profiler overhead",
        trace,
        overhead,
        f"{format_duration(covered)} of work of the profiler itself, which your program alone does not do",
        "leave it out of comparisons; with warm-up steps, most of it happens before the recording",
        longest,
    )


def _find_empty_stretch(trace: Trace) -> Iterator[Remark]:
    """Find the longest stretch without events, if it takes more than MIN_EMPTY_SHARE of the trace."""
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
            "f fits the selection to the screen; g goes to a time",
        )
