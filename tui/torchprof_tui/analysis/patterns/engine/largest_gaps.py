"""List the longest stretches in which a GPU was idle: cause, the line and the ops around each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from torchprof_tui.analysis.dispatch.source_line import SourceLine
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.gpu_gaps import Gaps
from torchprof_tui.analysis.patterns.engine.host_activity import ACTIVITY_CAUSES
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.practices import COMPILE_WORK_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.arrays import find_largest
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_NAME_CELLS = 40
_OP_KINDS = (int(Kind.OP), int(Kind.RUNTIME))


def describe_launch_place(tables: TraceTables, next_event: int) -> str:
    """Describe between which ops the thread was before it launched `next_event`: the outermost before and after.

    Such as "between aten::to and aten::linear". As recorded: `clean` it. `next_event`: a row, -1 for none.
    """
    trace = tables.trace
    launch = int(trace.links.launch_of[next_event]) if next_event >= 0 else -1
    if launch < 0:
        return "after the last launch"
    after = _find_outermost(trace, launch)
    after_name = tables.short_name(after, _NAME_CELLS)
    activity, lane = tables.ops_and_calls, trace.lanes[int(trace.lane[launch])]
    first, last = activity.row.searchsorted([lane.first, lane.last]).tolist()
    before = first + int(activity.start[first:last].searchsorted(int(trace.start[after]))) - 1
    if before < first:
        return f"before {after_name}"
    before_name = tables.short_name(_find_outermost(trace, int(activity.row[before])), _NAME_CELLS)
    return f"between {before_name} and {after_name}"


def _find_outermost(trace: Trace, row: int) -> int:
    outermost = ancestor = row
    while ancestor >= 0:
        if int(trace.kind[ancestor]) in _OP_KINDS:
            outermost = ancestor
        ancestor = int(trace.parent[ancestor])
    return outermost


MAX_GAPS = 50  # gaps whose line is looked up at most: each takes some milliseconds in a trace with deep stacks
_CAUSES_ON_THREAD = {IdleCause.HOST, *ACTIVITY_CAUSES} - {IdleCause.COLD_CALL}
"""Causes that the thread explains by what it did during the gap; the others by its next launch."""


@record
class LargestGap:
    """A long gap of one GPU. Times ns; texts as recorded: `clean` them.

    `cause`: the one that explains most of it. `time_by_cause`: its pieces, largest first; they sum to `duration`.
    `next_event`: the work that ended it, -1 for none, with its name. `place`: the ops around it ("between aten::to and
    aten::linear"). `line`: where the launching thread was, None if nothing names it. `is_compiling`: torch.compile's
    work covers most of it. `rank`: None for a single rank.
    """

    start: int
    duration: int
    device: int
    cause: IdleCause
    time_by_cause: dict[IdleCause, int]
    next_event: int
    next_name: str
    place: str
    line: SourceLine | None
    is_compiling: bool = False
    rank: int | None = None

    @property
    def label(self) -> str:
        """The cause in words: "compiling" where torch.compile's work explains what the CPU did."""
        return "compiling" if self.is_compiling else self.cause.label


def list_largest_gaps(view: ScopeView, count: int) -> list[LargestGap]:
    """List the `count` longest gaps of a scope over all its devices, at most MAX_GAPS, longest first.

    Left out are the profiler's own gaps and those of which it is not known whether the GPU was idle.
    """
    return [gap for _, gap in list_largest_gaps_of_ranks([view], count)]


def list_largest_gaps_of_ranks(views: Sequence[ScopeView], count: int) -> list[tuple[int, LargestGap]]:
    """List the `count` longest gaps of several ranks, each with the index of its rank's view; else as above."""
    candidates = [
        (int(view.gaps.duration[index]), number, index)
        for number, view in enumerate(views)
        for index in _find_longest(view.gaps, min(count, MAX_GAPS))
    ]
    longest = sorted(candidates, key=lambda candidate: -candidate[0])[: min(count, MAX_GAPS)]
    return [(number, _describe_gap(views[number], views[number].gaps, index)) for _, number, index in longest]


def _find_longest(gaps: Gaps, count: int) -> list[int]:
    cause = gaps.cause
    is_edge = (cause == IdleCause.LEAD_IN) | ((cause == IdleCause.UNKNOWN) & (gaps.next_event < 0))
    chosen = np.flatnonzero(~is_edge & (cause != IdleCause.PROFILER))
    largest: list[int] = chosen[find_largest(gaps.duration[chosen], count)].tolist()
    return largest


def select_long_gaps(gaps: Iterable[LargestGap], scope_length: int, count: int) -> list[LargestGap]:
    """Select the first `count` gaps of a list that are long enough to be worth a line in a scope."""
    min_length = thresholds.SIGNIFICANT_SHARE.value * scope_length
    return [gap for gap in gaps if gap.duration >= min_length][:count]


def _describe_gap(view: ScopeView, gaps: Gaps, index: int) -> LargestGap:
    tables = view.tables
    time = gaps.time[index]
    order = np.argsort(-time, kind="stable").tolist()
    next_event = int(gaps.next_event[index])
    start, end = int(gaps.start[index]), int(gaps.end[index])
    is_compiling = False
    if order[0] in (IdleCause.HOST, IdleCause.DISPATCH):  # which the CPU's own work explains
        is_compiling = 2 * tables.match_names(COMPILE_WORK_REGEX).intervals.clip(start, end).total > end - start
    return LargestGap(
        start,
        end - start,
        int(gaps.device[index]),
        IdleCause(order[0]),
        {IdleCause(cause): int(time[cause]) for cause in order if time[cause]},
        next_event,
        tables.short_name(next_event) if next_event >= 0 else "",
        describe_launch_place(tables, next_event),
        find_gap_line(view, index),
        is_compiling,
    )


def find_gap_line(view: ScopeView, index: int) -> SourceLine | None:
    """Find the line in which the launching thread was during a gap, else the line of the launch that ended it."""
    finder, trace, gaps = view.tables.line_finder, view.trace, view.gaps
    next_event = int(gaps.next_event[index])
    launch = int(trace.links.launch_of[next_event]) if next_event >= 0 else -1
    if launch < 0:
        return None
    if IdleCause(int(gaps.time[index].argmax())) in _CAUSES_ON_THREAD:
        # After the call that launched the next work the thread goes on: it explains no more of the gap.
        start, end = int(gaps.start[index]), min(int(gaps.call_end[index]), int(gaps.end[index]))
        line = finder.find_gap_line(int(trace.lane[launch]), start, end) if end > start else None
        if line is not None:
            return line
    return finder.find_line(next_event)
