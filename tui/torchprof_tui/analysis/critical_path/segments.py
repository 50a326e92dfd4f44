"""Turn the edges of a critical path into segments with a kind: what the step spent its time on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from enum import IntEnum

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import DependencyGraph, EdgeKind
from torchprof_tui.analysis.critical_path.step_window import NO_EVENT
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.host_stalls import SYNC_CALL_REGEX
from torchprof_tui.trace.core.arrays import I32, I64, NONE, U8, Bool, is_in, sorted_unique
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_INSTANT_KINDS = (Kind.INSTANT, Kind.MEMORY, Kind.ASYNC)


@record
class ThreadTimeline:
    """From `time[i]` to `time[i + 1]` the innermost event is `event[i]` (-1 for none): int64[k], int32[k]."""

    time: I64
    event: I32

    def split(self, starts: I64, ends: I64) -> tuple[I64, I64, I32, I64]:
        """Split intervals by innermost event: starts, ends, events, and the interval of each piece.

        `starts`, `ends` int64[p]: not empty, none before `time[0]`.
        """
        first = self.time.searchsorted(starts, side="right") - 1
        count = self.time.searchsorted(ends, side="left") - first
        owner = np.repeat(np.arange(len(starts)), count)
        piece = np.arange(len(owner)) + np.repeat(first - np.cumsum(count) + count, count)
        until = np.append(self.time[1:], np.iinfo(np.int64).max)
        return (
            np.maximum(self.time[piece], starts[owner]),
            np.minimum(until[piece], ends[owner]),
            self.event[piece],
            owner,
        )


def build_timeline(trace: Trace, lane: int, start: int, end: int) -> ThreadTimeline:
    """Build the timeline of a thread between two times."""
    rows = slice(trace.lanes[lane].first, trace.lanes[lane].last)
    begin, duration = trace.start[rows], trace.duration[rows]
    chosen = (begin < end) & (begin + duration > start) & (duration > 0)
    chosen &= ~is_in(trace.kind[rows], _INSTANT_KINDS)
    events = (rows.start + np.flatnonzero(chosen)).astype(np.int32)
    count = len(events)
    time = np.concatenate([trace.start[events], trace.start[events] + trace.duration[events]])
    is_start = np.arange(2 * count) < count
    # Events that end at a time end before others start, inner ones first; of those that start the outer one first.
    depth = np.concatenate([np.arange(count), -np.arange(count)])
    order = np.lexsort((depth, is_start, time))
    after = np.concatenate([events, trace.parent[events]]).astype(np.int32)[order]
    time = np.maximum(time[order], start)
    return ThreadTimeline(np.append(start, time), np.append(np.int32(NO_EVENT), after).astype(np.int32))


class SegmentKind(IntEnum):
    """What a piece of the critical path is."""

    DISPATCH = 0  # inside an op
    LAUNCH = 1  # inside a call that starts GPU work
    RUNTIME = 2  # inside another runtime call
    BLOCKING = 3  # inside a call that waits for the GPU, when no GPU work holds it up
    INPUT = 4  # in the data loader
    HOST = 5  # outside ops and calls
    PROFILER = 6
    KERNEL = 7
    COPY = 8  # a memcpy or memset
    COLLECTIVE = 9
    QUEUE = 10  # GPU work that can start: launch latency, gaps of a stream
    UNATTRIBUTED = 11  # longer than such delays are: a dependency that was not recorded
    RANK = 12  # a collective, until the last rank has come to it


LABELS = {
    SegmentKind.DISPATCH: "dispatch",
    SegmentKind.LAUNCH: "launch",
    SegmentKind.RUNTIME: "runtime call",
    SegmentKind.BLOCKING: "blocking call",
    SegmentKind.INPUT: "input",
    SegmentKind.HOST: "host code",
    SegmentKind.PROFILER: "profiler",
    SegmentKind.KERNEL: "kernel",
    SegmentKind.COPY: "copy",
    SegmentKind.COLLECTIVE: "collective",
    SegmentKind.QUEUE: "GPU queue",
    SegmentKind.UNATTRIBUTED: "unattributed",
    SegmentKind.RANK: "waiting for rank",
}
"""As `describe_kind` has them: a kernel's class, or the rank that is waited for, follows its kind."""

NO_CLASS = 255
NO_RANK = -1

_LAUNCH = compile_later(r".*(Launch|Memcpy|Memset)")
_INPUT = compile_later(r"enumerate\(DataLoader\)#|.*DataLoader.*__next__")
_SYNC = compile_later(SYNC_CALL_REGEX)
_HOST_KINDS = (Kind.STEP, Kind.ANNOTATION, Kind.PYTHON, Kind.OTHER)


@record
class Segments:
    """The critical path, s segments in time order, without gaps: `end[i] == start[i + 1]`. Times in ns.

    `kind` uint8[s]: SegmentKind; `kernel_class` uint8[s]: KernelClass of kernels, else NO_CLASS; `event` int32[s]: the
    row of the trace, -1 for none. `rank` int32[s]: number of the rank that does it, of a wait for a rank of that one;
    NO_RANK in a path of one process.
    """

    start: I64
    end: I64
    kind: U8
    kernel_class: U8
    event: I32
    rank: I32

    def __len__(self) -> int:
        return len(self.start)

    def select(self, chosen: Bool | I64) -> Segments:
        """Select segments by a mask bool[s], or by indexes in a new order."""
        return Segments(*(getattr(self, each.name)[chosen] for each in fields(self)))


def build_segments(trace: Trace, graph: DependencyGraph, path: I64, host_lanes: list[int]) -> Segments:
    """Build the segments of a path. `host_lanes`: threads whose time without any event is host code."""
    start, end = graph.time[graph.source[path]], graph.time[graph.target[path]]
    path, start, end = path[end > start], start[end > start], end[end > start]
    kind = graph.edge_kind[path]
    on_cpu = is_in(kind, (EdgeKind.THREAD, EdgeKind.HAND_OVER))
    lane = np.where(kind == EdgeKind.THREAD, graph.node_lane[graph.target[path]], graph.window.lane)
    parts = [_build_gpu_parts(trace, graph, path[~on_cpu], start[~on_cpu])]
    for number in sorted_unique(lane[on_cpu]).tolist():
        chosen = on_cpu & (lane == number)
        timeline = build_timeline(trace, number, graph.window.start, graph.window.end)
        begin, until, event, _ = timeline.split(start[chosen], end[chosen])
        kinds = classify_cpu(trace, event, number in host_lanes)
        parts.append((begin, until, kinds, event))
    starts, ends, kinds, events = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((ends, starts))
    order = order[ends[order] > starts[order]]
    kinds, events = kinds[order].astype(np.uint8), events[order].astype(np.int32)
    ranks = np.full(len(order), NO_RANK, np.int32)
    classes = np.full(len(kinds), NO_CLASS, np.uint8)
    kernels = np.flatnonzero((kinds == SegmentKind.KERNEL) & (events != NO_EVENT))
    distinct, index = np.unique(trace.name[events[kernels]], return_inverse=True)
    known = [decode_kernel_name(trace.names[name]).kernel_class for name in distinct.tolist()]
    classes[kernels] = np.array(known, np.uint8)[index]
    return Segments(starts[order], ends[order], kinds, classes, events, ranks)


def begin_segments(segments: Segments, begin: int) -> Segments:
    """Leave out what lies before a time, ns."""
    chosen = segments.select(segments.end > begin)
    return replace(chosen, start=np.maximum(chosen.start, begin))


def describe_kind(kind: SegmentKind, kernel_class: int = NO_CLASS, rank: int = NO_RANK) -> str:
    """Describe a kind of time: "dispatch", "kernel: gemm", "waiting for rank 2"."""
    if kernel_class != NO_CLASS:
        return f"{LABELS[kind]}: {KernelClass(kernel_class).label}"
    return f"{LABELS[kind]} {rank}" if kind is SegmentKind.RANK else LABELS[kind]


def _build_gpu_parts(trace: Trace, graph: DependencyGraph, path: I64, start: I64) -> tuple[I64, I64, U8, I32]:
    """Build the segments of edges that are no CPU time; the delay of an edge comes first, then what it cannot say."""
    kind, event = graph.edge_kind[path], graph.event[path]
    known = start + np.where(is_in(kind, (EdgeKind.BEFORE, EdgeKind.EARLIER)), 0, graph.delay[path])
    usual = np.full(len(path), SegmentKind.QUEUE, np.uint8)
    usual[kind == EdgeKind.CALL] = SegmentKind.LAUNCH
    usual[is_in(kind, (EdgeKind.SYNC, EdgeKind.SYNC_BY_ORDER, EdgeKind.ROOM))] = SegmentKind.BLOCKING
    work = np.flatnonzero(kind == EdgeKind.WORK)
    event_kind = trace.kind[event[work]]
    usual[work] = SegmentKind.KERNEL
    usual[work[is_in(event_kind, (Kind.COPY, Kind.MEMSET))]] = SegmentKind.COPY
    usual[work[event_kind == Kind.COLLECTIVE]] = SegmentKind.COLLECTIVE
    rest = np.full(len(path), SegmentKind.UNATTRIBUTED, np.uint8)
    ends = graph.time[graph.target[path]]
    return (
        np.concatenate([start, known]),
        np.concatenate([known, ends]),
        np.concatenate([usual, rest]),
        np.concatenate([event, event]),
    )


def classify_cpu(trace: Trace, events: I32, is_host: bool) -> U8:
    """Classify CPU time by its innermost event: uint8[k]."""
    outside = SegmentKind.HOST if is_host else SegmentKind.UNATTRIBUTED
    result = np.full(len(events), outside, np.uint8)
    inside = np.flatnonzero(events != NONE)
    rows = events[inside]
    kinds, names = trace.kind[rows], trace.name[rows]
    found = np.full(len(rows), SegmentKind.HOST, np.uint8)
    found[kinds == Kind.OP] = SegmentKind.DISPATCH
    is_call = kinds == Kind.RUNTIME
    launches = trace.links.work_first[rows + 1] > trace.links.work_first[rows]
    found[is_call] = SegmentKind.RUNTIME
    found[is_call & (launches | match_names(trace, _LAUNCH.match, names))] = SegmentKind.LAUNCH
    found[is_call & match_names(trace, _SYNC.match, names)] = SegmentKind.BLOCKING
    found[kinds == Kind.OVERHEAD] = SegmentKind.PROFILER
    found[_is_below_input(trace, rows)] = SegmentKind.INPUT
    result[inside] = found
    return result


def _is_below_input(trace: Trace, rows: I32) -> Bool:
    """Select the events that are, or are called by, the data loader: bool[k]."""
    used = np.flatnonzero([_INPUT.match(name) is not None for name in trace.names])
    below = np.zeros(len(rows), np.bool_)
    if not len(used):
        return below
    current = rows.astype(np.int64)
    while (current != NONE).any():
        alive = current != NONE
        below[alive] |= is_in(trace.name[current[alive]], used)
        current[below] = NONE
        alive = current != NONE
        current[alive] = trace.parent[current[alive]]
    return below


WAITS = (SegmentKind.QUEUE, SegmentKind.UNATTRIBUTED, SegmentKind.RANK)
"""Segments in which no event takes the time: their event is what waits, or was waited for."""


@record
class PathRows:
    """The time of a path on each row, as intervals that neither overlap nor touch, by row and start.

    `first` int64[rows + 1]: of each row's intervals in `start`, `end` int64[n], ns.
    """

    first: I64
    start: I64
    end: I64

    def select_cells(self, rows: Sequence[int], left: I64, right: I64) -> Bool:
        """Select the cells in which the path has any time on one of these rows: bool[W].

        Cell k is `left[k]` up to, but not including, `right[k]`: int64[W] ns.
        """
        found = np.zeros(len(left), np.bool_)
        for row in rows:
            chosen = slice(self.first[row], self.first[row + 1])
            begun = self.start[chosen].searchsorted(right, side="left")
            over = self.end[chosen].searchsorted(left, side="right")
            found |= begun > over
        return found

    def sum_inside(self, row: int, start: int, end: int) -> int:
        """Sum the time of the path on a row between two times, ns."""
        chosen = slice(self.first[row], self.first[row + 1])
        inside = np.minimum(self.end[chosen], end) - np.maximum(self.start[chosen], start)
        return int(np.maximum(inside, 0).sum())


def find_path_rows(trace: Trace, segments: Segments, row_base: I64, row_count: int) -> PathRows:
    """Find where a path lies. `row_base` int64[lanes]: the first row of each lane of `trace`, of `row_count` rows."""
    chosen = np.flatnonzero((segments.event != NONE) & ~is_in(segments.kind, WAITS))
    event = segments.event[chosen].astype(np.int64)
    start = np.maximum(segments.start[chosen], trace.start[event])
    end = np.minimum(segments.end[chosen], trace.start[event] + trace.duration[event])
    kept = end > start
    found = _add_parents(trace, event[kept], start[kept], end[kept])
    event, start, end = (np.concatenate([column, *columns]) for column, *columns in zip(*found, strict=True))
    row, start, end = _join_pieces(row_base[trace.lane[event]] + trace.row[event], start, end)
    return PathRows(row.searchsorted(np.arange(row_count + 1), side="left").astype(np.int64), start, end)


def _add_parents(trace: Trace, event: I64, start: I64, end: I64) -> list[tuple[I64, I64, I64]]:
    """Add the same times of the events around each piece: events, starts, ends, in parts.

    From the innermost row outwards: most pieces continue the one before inside the same parent and become one there, so
    that a row has about as many pieces as events, however deep the stacks are.
    """
    found = [(event[:0], start[:0], end[:0])]
    depth = trace.row[event].astype(np.int64)
    order = np.argsort(depth, kind="stable")
    own = depth[order].searchsorted(np.arange(int(depth.max(initial=-1)) + 2))
    outer = found[0]
    for row in range(len(own) - 2, -1, -1):
        chosen = order[own[row] : own[row + 1]]
        is_here = trace.row[outer[0]] == row
        here = [
            np.concatenate([column[chosen], other[is_here]])
            for column, other in zip((event, start, end), outer, strict=True)
        ]
        pieces = _join_pieces(*here)
        found.append(pieces)
        parent = trace.parent[pieces[0]].astype(np.int64)
        inside = parent != NONE
        added = parent[inside], pieces[1][inside], pieces[2][inside]
        event_left, start_left, end_left = (
            np.concatenate([old[~is_here], new]) for old, new in zip(outer, added, strict=True)
        )
        outer = event_left, start_left, end_left
    return found


def _join_pieces(event: I64, start: I64, end: I64) -> tuple[I64, I64, I64]:
    """Sort pieces by start, and join those of one event that touch."""
    order = np.lexsort((start, event))
    event, start, end = event[order], start[order], end[order]
    is_new = np.ones(len(event), np.bool_)
    is_new[1:] = (event[1:] != event[:-1]) | (start[1:] > end[:-1])
    index = np.flatnonzero(is_new)
    last = np.append(index[1:], len(event))[: len(index)] - 1
    return event[index], start[index], end[last]


def list_longest(segments: Segments, count: int) -> I32:
    """List the longest segments, longest first: int32[k] indexes."""
    return np.argsort(segments.start - segments.end, kind="stable")[:count].astype(np.int32)
