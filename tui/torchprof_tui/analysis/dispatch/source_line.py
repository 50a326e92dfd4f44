"""Find the line of the user's program that an event, a gap or the evidence of a pattern comes from.

Ancestors on the event's thread decide; GPU work is replaced by its launch, and a backward node by its forward op. Of
the ancestors the innermost frame that is the user's is chosen, else one of an installed package, else an annotation.

The profiler names a frame it sees being called by the line where its function begins. Of a frame that was on the stack
before, it takes the line that ran at that moment, often the call that started the recording: this line says nothing
about where the time goes. Kineto numbers these frames first, one after the other, from the outermost inwards.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

import numpy as np

from torchprof_tui.analysis.dispatch.chain import Chain, HopRole, find_partner_by_sequence
from torchprof_tui.analysis.dispatch.frame_names import (
    AUTOGRAD_ENGINE_PREFIX,
    FRAME,
    MODULE,
    MODULE_CALL_PREFIX,
    MODULE_CODE,
    AnnotationOrigin,
    Frame,
    FrameOrigin,
    build_annotation_line,
    build_frame_line,
    classify_annotation,
    parse_frame,
    parse_recorded_line,
)
from torchprof_tui.analysis.dispatch.frame_names import SourceLine as SourceLine
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.gpu_time import cover_events
from torchprof_tui.trace.core.arrays import I32, I64, Bool, find_largest, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_part
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import SparseColumn, Trace
from torchprof_tui.trace.query.navigation import innermost_at

_MAX_DEPTH = 2000  # frames that are examined on each thread, as deep as Python recurses

_NONE = np.iinfo(np.int64).min


def find_open_frames(trace: Trace) -> I64:
    """Find the rows of the frames that were open when the recording began: int64[k], by thread, then outermost first.

    On each thread these are the first Python event, if no call is recorded for it ("Python parent id" missing), and
    the events after it as long as each is numbered next and was called by the one before it. Left out are threads whose
    first event begins after another frame of the process was called: they were started during the recording.
    """
    by_process: dict[tuple[int | None, str], list[tuple[I64, int]]] = defaultdict(list)
    ids, parents = trace.args.get("python_id"), trace.args.get("python_parent")
    if ids is None:
        return np.empty(0, dtype=np.int64)
    for lane in trace.lanes:
        if lane.last <= lane.first:
            continue
        rows = lane.first + np.flatnonzero(trace.kind[lane.first : lane.last] == Kind.PYTHON)[: _MAX_DEPTH + 1]
        if not len(rows):
            continue
        number = ids.values_at(rows, _NONE)
        parent = parents.values_at(rows, _NONE) if parents is not None else np.full(len(rows), _NONE)
        is_root = parent[0] == _NONE and number[0] != _NONE
        is_next = (number[1:] == number[:-1] + 1) & (parent[1:] == number[:-1])
        depth = 1 + int(np.append(is_next, False).argmin()) if is_root else 0
        called = int(trace.start[rows[depth]]) if depth < len(rows) else np.iinfo(np.int64).max
        by_process[(lane.rank, lane.pid)].append((rows[:depth].astype(np.int64), called))
    found: list[I64] = []
    for threads in by_process.values():
        first_call = min(called for _, called in threads)
        found += [rows for rows, _ in threads if len(rows) and int(trace.start[rows[0]]) <= first_call]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def find_open_names(trace: Trace) -> frozenset[int]:
    """Find the names (indexes into `names`) of frames whose line is the one that ran when the recording began.

    They are those of `find_open_frames`, and of all code outside functions: where it is called, by an import, its line
    is 1. A call of the same function has another name, because it has another line.
    """
    names = set(sorted_unique(np.asarray(trace.name[find_open_frames(trace)])).tolist())
    for number, name in enumerate(trace.names):
        if name.endswith(f": {MODULE_CODE}") and (frame := parse_frame(name)) is not None and frame.line != 1:
            names.add(number)
    return frozenset(names)


MIN_SHARE = 0.1  # share of the events' time from which a frame that they call is named


@record
class CalledFrame:
    """A frame with its part of the time of the events that call it: `time` of `total`, ns."""

    frame: Frame
    time: int
    total: int

    @property
    def text(self) -> str:
        """Return "train.py(18): __getitem__, 371.2 of 383.9 ms"."""
        return f"{self.frame.text}, {format_part(self.time, self.total)}"


def find_called_frame(trace: Trace, events: I64, frame_of: Callable[[int], Frame | None]) -> CalledFrame | None:
    """Find the frame of the user's that these events (int64[k]) call and that takes most of their time, or None.

    Of the frames in which more than half of the time passes the innermost is chosen; without one the longest, from
    `MIN_SHARE` on. Lambdas and comprehensions belong to the function they are written in. `frame_of`: parses the name
    of a row.
    """
    total = cover_events(trace, events).total
    below = [np.empty(0, dtype=np.int64)]
    for event in events.tolist():
        lane = trace.lanes[int(trace.lane[event])]
        end = trace.start[event] + trace.duration[event]
        last = lane.first + int(trace.start[lane.first : lane.last].searchsorted(end))
        below.append(event + 1 + np.flatnonzero(trace.kind[event + 1 : last] == Kind.PYTHON))
    rows = sorted_unique(np.concatenate(below)).astype(np.int64)
    name = np.asarray(trace.name[rows])
    by_name = np.argsort(name, kind="stable")
    rows, name = rows[by_name], name[by_name]
    edges = np.append(np.flatnonzero(np.append(-1, name[:-1]) != name), len(name)).tolist() if len(rows) else []
    found: tuple[tuple[bool, int, int], CalledFrame] | None = None
    for first, last in pairwise(edges):
        frame = frame_of(int(rows[first]))
        if frame is None or frame.origin is not FrameOrigin.USER or frame.line is None or frame.function[:1] == "<":
            continue
        time = cover_events(trace, rows[first:last]).total
        # What is called takes no longer than its caller: of those above half the shortest is the innermost.
        is_most = 2 * time > total
        rank = (is_most, -time if is_most else time, int(rows[first]))
        if time >= MIN_SHARE * total and (found is None or rank > found[0]):
            found = rank, CalledFrame(frame, time, total)
    return None if found is None else found[1]


MAX_LEVELS = 2000  # ancestors that are examined, innermost first. Only runaway recursion is deeper.
MAX_SAMPLED_EVENTS = 200  # events of a finding whose lines are compared: those that take longest
MAX_ARG_READS = 16  # events of a finding whose args are read from the file, in traces that record stacks there

MAX_FRUITLESS_READS = 3
"""Ops whose args have neither stack nor modules, in turn, after which no more are read: reading takes milliseconds."""

GAP_SAMPLES = 64
"""Times at which the thread is examined in a gap. A line found at more than half of them covers about half of it."""


class _Sort(IntEnum):
    """What an event says about a line, the best first."""

    USER_FRAME = 0
    LIBRARY_FRAME = 1
    ANNOTATION = 2
    TORCH_ANNOTATION = 3
    MODULE = 4
    NOTHING = 5


_Said = tuple[_Sort, "Frame | None", str]  # the frame, or the text of an annotation or the name of a module
_FRAME_SORTS = {FrameOrigin.USER: _Sort.USER_FRAME, FrameOrigin.LIBRARY: _Sort.LIBRARY_FRAME}
_ANNOTATION_SORTS = {AnnotationOrigin.USER: _Sort.ANNOTATION, AnnotationOrigin.TORCH: _Sort.TORCH_ANNOTATION}
_SAYS_NOTHING: _Said = (_Sort.NOTHING, None, "")

MAX_KEPT_LINES = 20_000  # lines that a finder keeps: the checks of neighbouring ranges ask for those of the same events


@dataclass(slots=True)
class _Candidates:
    """What a climb through ancestors has found so far, each the innermost of its sort."""

    library: Frame | None = None
    module: str = ""
    annotation: str = ""
    torch_annotation: str = ""


class SourceLineFinder:
    """Find lines in one trace. Keeps parsed names and forward ops: use one finder for many events."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._frames: dict[int, Frame | None] = {}  # by name
        self._said: dict[int, _Said] = {}  # by name of a frame, and by ~name of an annotation

        self._forward_ops: dict[int, int] = {}  # by the outermost backward event
        self._frame_lines: dict[int, SourceLine] = {}  # by event: those that frames name
        self._choices = 0  # lines that were searched for without a user frame
        self._fruitless_reads = 0  # ops in turn whose args have no stack

    def find_line(self, event: int, read_args: bool = True) -> SourceLine | None:
        """Find the line that an event comes from, None if nothing names one.

        `read_args`: in a trace without frames, read the stack or modules in the args of the op from the file.
        """
        launch = int(self.trace.links.launch_of[event])
        event = launch if launch >= 0 else event
        if event in self._frame_lines:
            return self._frame_lines[event]
        choices = self._choices
        line = self._search_line(self._list_path(event), read_args)
        if line is not None and choices == self._choices:  # what args say is read again: reading may be given up
            if len(self._frame_lines) >= MAX_KEPT_LINES:
                self._frame_lines.clear()
            self._frame_lines[event] = line
        return line

    def _search_line(self, path: list[int], read_args: bool, into_forward: bool = True) -> SourceLine | None:
        """Find the line of a path (innermost first); with `into_forward` of a backward event that of its forward op."""
        user, found, backward = self._climb(path, into_forward)
        if user is not None:
            return build_frame_line(user, found.library)
        if backward < 0:
            return self._choose(found, path, read_args)
        line = self._find_backward_line(path[: backward + 1], read_args)
        return self._search_line(path, read_args, into_forward=False) if line is None else line

    def find_chain_line(self, chain: Chain) -> SourceLine | None:
        """Find the line that the CPU end of a chain comes from: its innermost hop that is no GPU work."""
        hop = next((hop for hop in reversed(chain.hops) if hop.role is not HopRole.GPU), None)
        return None if hop is None else self.find_line(hop.event)

    def find_gap_line(self, lane: int, start: int, end: int) -> SourceLine | None:
        """Find the line that a thread was in for most of [start, end], ns; None if nothing names one.

        The innermost user frame (by file, line and function) that covers more than half of the gap, with the innermost
        of an installed package that does; without one, the latter; else an annotation. Costs
        O(GAP_SAMPLES · (log n + depth)).
        """
        samples = np.linspace(start, end, GAP_SAMPLES, endpoint=False) + (end - start) / (2 * GAP_SAMPLES)
        events = self._find_open_events(lane, samples.astype(np.int64))
        tallies: list[dict[int, int]] = [defaultdict(int) for _ in range(4)]
        depths: dict[int, int] = {}
        for event, count in Counter(events).items():
            path = self._list_path(event) if event >= 0 else []
            seen: set[int] = set()
            for index, ancestor in enumerate(path):
                sort = self._examine(ancestor)[0]
                if sort >= _Sort.MODULE:
                    continue
                name = self.trace.name.item(ancestor)
                if name not in seen:
                    seen.add(name)
                    tallies[sort][name] += count
                    depths[name] = max(depths.get(name, 0), len(path) - index)
        lines: list[SourceLine | None] = [None] * len(tallies)
        for rank, tally in enumerate(tallies):
            covering = [name for name, count in tally.items() if 2 * count > GAP_SAMPLES]
            if covering:
                name = max(covering, key=lambda name: (depths[name], tally[name]))
                frame, text = self._frames.get(name), self.trace.names[name]
                lines[rank] = build_frame_line(frame) if rank < 2 and frame else build_annotation_line(text)
        own, library = lines[:2]
        if own is not None and library is not None:
            return replace(own, library=library.text)
        return next(filter(None, lines), None)

    def find_common_line(self, events: I32 | I64, max_events: int = MAX_SAMPLED_EVENTS) -> SourceLine | None:
        """Find the line that most of these events come from, weighted by duration; None if nothing names one.

        Of more than `max_events` the longest are examined. None as well where events that nothing names take longer
        than those of any line. `library` and `from_forward` are kept where they belong to more than half of that line's
        time. Where the line's number is unknown, the user frame that the events call for long is named instead.
        """
        rows = np.asarray(events, dtype=np.int64)
        rows = rows[(rows >= 0) & (rows < len(self.trace))]
        durations = np.maximum(self.trace.duration[rows], 1)
        longest = find_largest(durations, max_events)
        time_by_line: dict[SourceLine | None, int] = defaultdict(int)
        for number, (row, duration) in enumerate(zip(rows[longest].tolist(), durations[longest].tolist(), strict=True)):
            time_by_line[self.find_line(row, read_args=number < MAX_ARG_READS)] += duration
        unknown = time_by_line.pop(None, 0)
        times: dict[SourceLine, dict[SourceLine, int]] = {}  # by line, then by the line with its details
        for line, time in time_by_line.items():
            if line is not None:
                times.setdefault(replace(line, library="", from_forward=False), {})[line] = time
        if not times:
            return None
        common, details = max(times.items(), key=lambda item: sum(item[1].values()))
        if unknown > sum(details.values()):
            return None
        if common.kind == FRAME and common.line is None:
            # What an open frame itself is the evidence of does not lie in the frames that it calls.
            callers = rows[longest][~is_in(self.trace.name[rows[longest]], list(self.open_names))]
            called = find_called_frame(self.trace, callers, self._frame_of)
            return common if called is None else replace(build_frame_line(called.frame), text=called.text)
        total = sum(details.values())
        forward = sum(time for line, time in details.items() if line.from_forward)
        library: dict[str, int] = defaultdict(int)
        for line, time in details.items():
            library[line.library] += time
        name = max(library, key=lambda each: library[each])
        return replace(common, from_forward=2 * forward > total, library=name if 2 * library[name] > total else "")

    # -- ancestors -----------------------------------------------------------------------------------------

    def _list_path(self, event: int) -> list[int]:
        """List an event and its ancestors, innermost first, at most MAX_LEVELS."""
        parent_of = self.trace.parent.item
        path = [event]
        while len(path) < MAX_LEVELS and (event := parent_of(event)) >= 0:
            path.append(event)
        return path

    def _climb(self, path: list[int], into_forward: bool) -> tuple[Frame | None, _Candidates, int]:
        """Search a path (innermost first) for a user frame.

        Returns (the frame or None, what else was found, the index of the outermost backward event below that frame or
        -1). With `into_forward` the search ends there: what encloses the engine is the call of `backward()`.
        """
        found = _Candidates()
        backward = -1
        for index, event in enumerate(path):
            sort, frame, text = self._examine(event)
            if sort is _Sort.USER_FRAME:
                if backward >= 0 and into_forward:
                    break
                return frame, found, -1
            if sort is _Sort.LIBRARY_FRAME:
                found.library = found.library or frame
            elif sort is _Sort.MODULE:
                found.module = found.module or text
            elif sort is _Sort.ANNOTATION:
                found.annotation = found.annotation or text
            elif sort is _Sort.TORCH_ANNOTATION:
                found.torch_annotation = found.torch_annotation or text
            elif into_forward and self._is_backward[event]:
                backward = index
        return None, found, backward

    def _choose(self, found: _Candidates, path: list[int], read_args: bool) -> SourceLine | None:
        """Choose the line of a path without a user frame."""
        self._choices += 1
        if found.library is not None:
            return build_frame_line(found.library)
        from_args = self._read_recorded_line(path) if read_args and not self._has_frames else None
        if from_args is not None and from_args.kind == FRAME:
            return from_args
        if found.annotation:
            return build_annotation_line(found.annotation)
        if from_args is not None:
            return from_args
        if found.module:
            return SourceLine(MODULE, None, None, found.module, found.module)
        return build_annotation_line(found.torch_annotation) if found.torch_annotation else None

    def _find_open_events(self, lane: int, times: I64) -> list[int]:
        """Find the innermost event of a lane that is open at each time, -1 for none."""
        trace = self.trace
        first, last = trace.lanes[lane].first, trace.lanes[lane].last
        started = first + np.searchsorted(trace.start[first:last], times, side="right") - 1
        events = []
        for event, time in zip(started.tolist(), times.tolist(), strict=True):
            candidate = event if event >= first else -1
            for _ in range(MAX_LEVELS):
                if candidate < 0 or int(trace.start[candidate]) + int(trace.duration[candidate]) > time:
                    break
                candidate = int(trace.parent[candidate])
            events.append(candidate)
        return events

    # -- backward ------------------------------------------------------------------------------------------

    def _find_backward_line(self, path: list[int], read_args: bool) -> SourceLine | None:
        """Find the line of the forward op of a path that ends in the outermost backward event.

        See `find_autograd_partners`.
        """
        node = path[-1]
        if node not in self._forward_ops:
            by_flow = (self._forward_by_flow.get(event) for event in path)
            found = next((event for event in by_flow if event is not None), -1)
            self._forward_ops[node] = (
                found if found >= 0 else find_partner_by_sequence(self.trace, path[::-1], backward=True)
            )
        forward = self._forward_ops[node]
        if forward < 0:
            # Such as a gradient's accumulation, which runs while the thread of the steps is in `backward()`.
            trace = self.trace
            time = int(trace.start[node])
            for step in trace.steps_of_event(node):
                if step.start <= time < step.start + step.duration and trace.lane[step.event] != trace.lane[node]:
                    return self._search_line(self._list_path(innermost_at(trace, step.event, time)), False, False)
            return None
        line = self._search_line(self._list_path(forward), read_args, into_forward=False)
        return None if line is None else replace(line, from_forward=True)

    @cached_property
    def _forward_by_flow(self) -> SparseColumn:
        """The forward end of each backward event's first flow."""
        links = self.trace.links
        order = np.argsort(links.backward, kind="stable")
        return SparseColumn(links.backward[order], links.forward[order])

    @cached_property
    def _is_backward(self) -> Bool:
        """bool[n]: whether an event runs a node of the backward graph, or is the engine's call around one."""
        trace = self.trace
        marked = match_names(trace, lambda name: name.startswith(AUTOGRAD_ENGINE_PREFIX))
        threads = trace.args.get("forward_thread")
        if threads is not None:
            marked[threads.events[np.asarray(threads.values, dtype=np.int64) > 0]] = True
        marked[trace.links.backward] = True
        marked &= trace.kind == Kind.OP
        return marked

    # -- names ---------------------------------------------------------------------------------------------

    def _frame_of(self, event: int) -> Frame | None:
        name = int(self.trace.name[event])
        if name not in self._frames:
            frame = parse_frame(self.trace.names[name])
            self._frames[name] = replace(frame, line=None) if frame and name in self.open_names else frame
        return self._frames[name]

    @cached_property
    def open_names(self) -> frozenset[int]:
        """The names (indexes) of frames that began before the recording: no line is known of them."""
        return find_open_names(self.trace)

    def _examine(self, event: int) -> _Said:
        """Say what a frame or an annotation says about a line; each name is read once."""
        kind, name = self.trace.kind.item(event), self.trace.name.item(event)
        if kind not in (Kind.PYTHON, Kind.ANNOTATION):
            return _SAYS_NOTHING
        key = name if kind == Kind.PYTHON else ~name
        if key not in self._said:
            self._said[key] = self._read_name(event, self.trace.names[name])
        return self._said[key]

    def _read_name(self, event: int, text: str) -> _Said:
        if self.trace.kind[event] == Kind.ANNOTATION:
            return _ANNOTATION_SORTS.get(classify_annotation(text), _Sort.NOTHING), None, text
        frame = self._frame_of(event)
        if frame is not None:
            return _FRAME_SORTS.get(frame.origin, _Sort.NOTHING), frame, text
        if not text.startswith(MODULE_CALL_PREFIX):
            return _SAYS_NOTHING
        return _Sort.MODULE, None, text.removeprefix(MODULE_CALL_PREFIX)

    @cached_property
    def _has_frames(self) -> bool:
        return bool((self.trace.kind == Kind.PYTHON).any())

    # -- stacks in args --------------------------------------------------------------------------------------

    def _read_recorded_line(self, path: list[int]) -> SourceLine | None:
        """Read the line from `Call stack` or `Module Hierarchy` of the innermost op (torch before 1.13, or JIT)."""
        op = next((event for event in path if int(self.trace.kind[event]) == Kind.OP), -1)
        if op < 0 or self._fruitless_reads >= MAX_FRUITLESS_READS:
            return None
        try:
            args = self.trace.event(op).read_args()
        except (OSError, LookupError):
            args = {}
        self._fruitless_reads = 0 if "Call stack" in args or "Module Hierarchy" in args else self._fruitless_reads + 1
        return parse_recorded_line(args)
