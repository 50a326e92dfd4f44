"""Select the part of a trace whose critical path is asked for: one step of one process, or the whole recording."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from torchprof_tui.analysis.time.step_bounds import (
    find_completion,
    find_launch_starts,
    find_step_bounds,
    follow_stream,
    list_gpu_work,
)
from torchprof_tui.trace.core.arrays import I32, I64, NONE, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.steps import Step
from torchprof_tui.trace.model.trace import Trace

NO_EVENT = -1  # in columns of events: none

_MIN_STEPS_TO_SKIP_FIRST = 3
"""From this many steps on the first one, which is often not warmed up, is never chosen by itself."""


class WindowError(ValueError):
    """There is no such step, or nothing to follow a path through. `str()` is one line for the user."""


@record
class GpuWorkColumns:
    """The GPU work of a window, m pieces by lane and start.

    `event`, `lane`, `launch` int32[m]: rows of the trace, streams, launch calls (-1 for none). `start`, `end` int64[m]:
    ns; the start is not before the window, nor before the work before it on its stream had ended (`follow_stream`).
    `launch_start`, `launch_end` int64[m]: the launch call, as `find_launch_starts` has it where none was recorded.
    `is_backlog` bool[m]: what was launched before the step; nothing of a range or of the whole recording is.
    """

    event: I32
    lane: I32
    launch: I32
    start: I64
    end: I64
    launch_start: I64
    launch_end: I64
    is_backlog: Bool

    def __len__(self) -> int:
        return len(self.event)

    @property
    def is_launched(self) -> Bool:
        """Select the work whose launch call was recorded: bool[m]."""
        return np.asarray(self.launch != NONE)

    def select(self, kept: Bool) -> GpuWorkColumns:
        """Keep some of the work: bool[m]."""
        return GpuWorkColumns(*(getattr(self, each.name)[kept] for each in fields(self)))


@record
class StepWindow:
    """A step on its CPU thread (`start` to `cpu_end`, ns), and from `begin` until its last GPU work has ended (`end`).

    `step` is None for the whole recording and for a range (`is_range`). `lane`: of the thread that runs the step.
    `backlog_end`: ns at which the last GPU work that was launched before the step has ended, 0 for none.
    """

    step: Step | None
    lane: int
    start: int
    cpu_end: int
    end: int
    work: GpuWorkColumns
    is_range: bool = False
    backlog_end: int = 0

    @property
    def begin(self) -> int:
        """When the step begins, ns: on its thread, and not before all that was launched before it has ended."""
        return max(self.start, self.backlog_end)

    @property
    def duration(self) -> int:
        """Time from where the step begins to the end of its last work, ns: what it adds to the run."""
        return self.end - self.begin


def select_step(trace: Trace, number: int | None) -> Step | None:
    """Select a step by number, by default the one of median duration; None for a trace without steps.

    Raises WindowError if there is no step of that number.
    """
    steps = trace.steps
    if number is not None:
        for step in steps:
            if step.number == number:
                return step
        known = f"steps {steps[0].number} to {steps[-1].number}" if steps else "no steps"
        raise WindowError(f"no step {number}: the trace has {known}")
    if not steps:
        return None
    start = np.array([step.start for step in steps], np.int64)
    end = np.array([step.start + step.duration for step in steps], np.int64)
    durations = np.diff(find_step_bounds(trace, start, end))
    candidates = range(len(steps) >= _MIN_STEPS_TO_SKIP_FIRST, len(steps))
    return steps[sorted(candidates, key=lambda index: durations[index])[(len(candidates) - 1) // 2]]


def select_window(trace: Trace, step: Step | None) -> StepWindow:
    """Select the window of a step, or of the whole recording. Raises WindowError if nothing was recorded in it."""
    if step is not None:
        lane, start, cpu_end = int(trace.lane[step.event]), step.start, step.start + step.duration
    else:
        lane = find_main_lane(trace)
        start, cpu_end = trace.span
    return select_window_between(trace, step, lane, start, cpu_end)


def select_window_between(trace: Trace, step: Step | None, lane: int, start: int, cpu_end: int) -> StepWindow:
    """Select the GPU work of a thread's time, ns. Raises WindowError for an empty one."""
    if cpu_end <= start:
        raise WindowError("nothing to follow: the step takes no time")
    parts: list[I32] = [np.zeros(0, np.int32)]
    for rows in list_gpu_work(trace):
        after = rows[trace.start[rows] + trace.duration[rows] > start]
        launch = trace.links.launch_of[after]
        known = np.where(launch != NONE, trace.start[launch], np.iinfo(np.int64).max)
        # A stream works in order: work without a recorded launch was launched before it began and the next launch.
        following = np.minimum.accumulate(known[::-1])[::-1]
        latest = np.where(launch != NONE, known, np.minimum(trace.start[after], following))
        parts.append(after[latest < cpu_end])
    event = np.concatenate(parts)
    launch = trace.links.launch_of[event]
    launch_start = find_launch_starts(trace, event)
    launch_end = np.where(launch != NONE, launch_start + trace.duration[launch], launch_start)
    begin, last = follow_stream(trace, event)
    begin = np.maximum(begin, start)
    is_backlog = np.full(len(event), step is not None) & (launch_start < start)
    work = GpuWorkColumns(event, trace.lane[event], launch, begin, last, launch_start, launch_end, is_backlog)
    own = (work.is_launched & (work.launch_start >= start)) | (step is None)
    end = max(cpu_end, int(work.end[own].max(initial=cpu_end)))
    work = work.select(work.start < end)
    backlog_end = int(find_completion(work.launch_start, work.end, np.array([start]))[0])
    work = replace(work, end=np.minimum(work.end, end))  # work of other steps may run on; on the path nothing does
    # Where work of before outlives the step, the step is all that it did.
    is_held = step is not None and backlog_end < end
    return StepWindow(step, lane, start, cpu_end, end, work, backlog_end=backlog_end if is_held else 0)


def find_main_lane(trace: Trace) -> int:
    """Find the thread with most launches, without GPU work the one with most recorded time."""
    threads = [number for number, lane in enumerate(trace.lanes) if lane.role is Role.THREAD and len(lane)]
    if not threads:
        raise WindowError("nothing to follow: no CPU thread was recorded")
    launches = trace.links.launch_of
    counts = np.bincount(trace.lane[launches[launches != NONE]], minlength=len(trace.lanes))
    rows = [slice(lane.first, lane.last) for lane in trace.lanes]
    return max(threads, key=lambda number: (counts[number], trace.self_duration[rows[number]].sum()))
