"""The pattern of pauses of the program that no op explains: the garbage collector, if the trace names it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.host_activity import DATA_LOADER_REGEX
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, Severity, register_pattern
from torchprof_tui.analysis.patterns.engine.practices import COMPILE_WORK_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

COLLECTION_REGEX = r"Python GC|<built-in function collect>|gc\.collect|gc\.py.*collect"
"""Frames and annotations of Python's garbage collector: a call of `gc.collect()`, or what torch records of it."""


@dataclass(frozen=True, slots=True)
class HostPauses:
    """k pauses in steps, in which no thread that launches ran an op or a call, and no GPU worked.

    `step` int64[k]: index of the step; `position` int64[k]: how many outermost ops of the step ran before it;
    `is_irregular` bool[k]: whether fewer than half of the steps pause there.
    """

    start: I64
    end: I64
    step: I64
    position: I64
    is_irregular: Bool

    def __len__(self) -> int:
        return len(self.start)


def find_collections(tables: TraceTables) -> EventTable:
    """Find the runs of the garbage collector that the trace names, on launching threads."""
    frames = tables.filter_by_name(
        tables.practices.python_frames, lambda name: name.startswith("<built-in function collect>")
    )
    marks = tables.match_names(COLLECTION_REGEX)
    rows = np.sort(np.concatenate([frames.row, marks.row]), kind="stable")
    return tables.select_on_launch_lanes(tables.event_table(rows))


def find_host_pauses(tables: TraceTables) -> HostPauses:
    """Find the long pauses of all steps of the trace, without input, compilation and the profiler's own work."""
    steps = tables.steps
    empty = np.zeros(0, dtype=np.int64)
    no_pauses = HostPauses(empty, empty, empty, empty, np.zeros(0, dtype=np.bool_))
    if not len(steps):
        return no_pauses
    explained = [
        tables.launching_thread_ops,
        tables.launching_thread_calls,
        tables.overhead,
        tables.match_names(COMPILE_WORK_REGEX),
        tables.match_names(DATA_LOADER_REGEX),
        tables.work.events,
    ]
    sets = [union(table.start, table.end) for table in explained]  # far fewer than the events: ops contain others
    active = union(np.concatenate([times.starts for times in sets]), np.concatenate([times.ends for times in sets]))
    # Only gaps that are long enough to be a pause are looked at again.
    first, last = int(min(steps.start[0], tables.window[0])), int(steps.end.max())
    gap_start, gap_end = np.append(first, active.ends), np.append(active.starts, last)
    is_long = gap_end - gap_start >= int(thresholds.PAUSE_MIN.value)
    pauses = union(gap_start[is_long], gap_end[is_long]) & union(steps.start, steps.end)
    is_long = pauses.ends - pauses.starts >= int(thresholds.PAUSE_MIN.value)
    if not is_long.any():
        return no_pauses
    start, end = pauses.starts[is_long], pauses.ends[is_long]
    step = steps.index_at(start)
    outermost = np.sort(_find_outermost_starts(tables))
    position = outermost.searchsorted(start) - outermost.searchsorted(steps.start[np.maximum(step, 0)])
    _, back, count = np.unique(position, return_inverse=True, return_counts=True)
    is_irregular = count[back.reshape(-1)] < thresholds.PAUSE_STEPS_SHARE.value * len(steps)
    return HostPauses(start, end, step, position, is_irregular)


def _find_outermost_starts(tables: TraceTables) -> I64:
    """Return the starts of the ops of launching threads that lie in no other op."""
    trace = tables.trace
    ops = tables.launching_thread_ops
    parent = np.asarray(trace.parent[ops.row])
    nested = (parent >= 0) & (trace.kind[np.maximum(parent, 0)] == Kind.OP)
    starts: I64 = ops.start[~nested]
    return starts


@register_pattern(
    "The garbage collector stops the program",
    meaning="Python searches its objects for reference cycles, and launches nothing during that time",
    action="freeze long-lived objects, and collect between epochs instead of between launches",
    code="gc.collect(); gc.freeze(); gc.disable()  # then gc.collect() where a pause does no harm",
    decided="Runs of the collector that the trace names (a frame or an annotation), longer than the limit. "
    "Undetermined: pauses of the launching thread without any op, while the GPU is idle, at another place in "
    "each step; they look like the collector, but the trace does not name it.",
    thresholds=(thresholds.GC_MIN, thresholds.PAUSE_MIN, thresholds.PAUSE_STEPS_SHARE),
    severity=Severity.PROBLEM,
    needs=(ScopeView.missing_ops_reason,),
)
def gc_pause(view: ScopeView) -> Answer:
    tables = view.tables
    runs = view.select_in_scope(tables.compute_once(find_collections))
    runs = runs.select(runs.duration >= int(thresholds.GC_MIN.value))
    if len(runs):
        return _describe_collections(view, runs)
    pauses = tables.compute_once(find_host_pauses)
    seen = np.flatnonzero(view.overlap_mask(pauses.start, pauses.end)) if len(pauses) else np.zeros(0, dtype=np.int64)
    irregular = seen[pauses.is_irregular[seen]] if len(seen) else seen
    if not len(seen):
        return Answer.absent()
    longest = format_duration(int((pauses.end - pauses.start)[seen].max()))
    pause_text = format_count(len(seen), "pause")
    if not len(irregular):
        if len(tables.steps) > 2:
            return Answer.absent(
                f"{pause_text} of up to {longest}, at the same op in each step: caused by the program's code"
            )
        return Answer.cannot_tell(
            f"{pause_text} of up to {longest}; fewer than three steps are too few to see what recurs"
        )
    if len(tables.steps) <= 2:
        return Answer.cannot_tell(
            f"{pause_text} of up to {longest}; fewer than three steps are too few to see what recurs"
        )
    frames = tables.practices.python_frames
    if len(frames):
        irregular = irregular[~_has_own_frames(frames, pauses.start[irregular], pauses.end[irregular])]
        if not len(irregular):
            return Answer.absent(f"{pause_text} of up to {longest}, in functions that the stacks name")
        longest = format_duration(int((pauses.end - pauses.start)[irregular].max()))
    likely = "plain Python, " if len(frames) else ""
    missing = "" if len(frames) else " with stacks, or"
    return Answer.cannot_tell(
        f"{format_count(len(irregular), 'pause')} of up to {longest} without any op, not at the same place in each "
        f"step: looks like {likely}the garbage collector or another process; record{missing} the collector's runs "
        "(experimental_config: record_python_gc_info=True)"
    )


def _has_own_frames(frames: EventTable, start: I64, end: I64) -> Bool:
    """Return whether calls that began in a pause took more than half of it: a collection makes none. bool[k]."""
    order = np.argsort(frames.start, kind="stable")
    frame_start, frame_end = frames.start[order], frames.end[order]
    has_own = np.zeros(len(start), dtype=np.bool_)
    for index, (t0, t1) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        inside = slice(*frame_start.searchsorted([t0, t1]).tolist())
        covered = union(frame_start[inside], np.minimum(frame_end[inside], t1)).total
        has_own[index] = 2 * covered > t1 - t0
    return has_own


def _describe_collections(view: ScopeView, runs: EventTable) -> Answer:
    """Describe named collections; at stake is their time without GPU work."""
    idle = union(runs.start, runs.end)
    for device in view.tables.devices:
        idle = idle - view.tables.busy_intervals(device)
    at_stake = view.clip(idle).total
    time = view.covered_time(runs)
    return Answer.fired(
        f"{format_count(len(runs), 'collection')}, {format_duration(time)} together, the longest "
        f"{format_duration(int(runs.duration.max()))}; the GPU was idle for {format_duration(at_stake)} of it",
        runs.row,
        at_stake,
        _choose_collection_remedy(view, runs),
    )


def _choose_collection_remedy(view: ScopeView, runs: EventTable) -> Remedy | None:
    """Choose the remedy by the caller: a call in the code can be moved, an automatic run must be prevented."""
    is_called = all("collect" in view.tables.name(int(row)) for row in runs.row)
    if not is_called:
        return None
    return Remedy(
        "the program calls gc.collect() itself: remove it from the loop, or call it between epochs",
        "if step == last_step: gc.collect()",
    )
