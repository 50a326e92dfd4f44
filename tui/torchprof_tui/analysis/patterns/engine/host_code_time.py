"""Find the main thread of a program, and which code its time outside of ops belongs to: calls that recur, owners."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.dispatch import frame_names
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.host_activity import COMMUNICATION_REGEX, DATA_LOADER_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.gpu_time import cover_events
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals
from torchprof_tui.trace.core.arrays import I64, Bool, find_largest, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration, format_part
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


@record
class MainThread:
    """The lane that the program runs on, and the rows [first, last) of its events in the trace."""

    lane: int
    first: int
    last: int

    def select(self, table: EventTable) -> EventTable:
        """Select the events on it."""
        return table.select((table.row >= self.first) & (table.row < self.last))


def find_main_thread(view: ScopeView) -> MainThread | None:
    """Find the lane of the steps, else the one with most ops in the scope; None without ops."""
    trace = view.trace
    ops = view.ops.row if len(view.ops) else view.tables.ops.row
    rows = view.steps.row if len(view.steps) else ops
    if not len(ops):
        return None
    lane_number = int(np.bincount(trace.lane[rows]).argmax())
    lane = trace.lanes[lane_number]
    return MainThread(lane_number, lane.first, lane.last)


def find_main_window(view: ScopeView, main: MainThread) -> tuple[int, int]:
    """Find when the main thread worked (ns): in the steps; without any from its first op or annotation to its last."""
    t0, t1 = view.window
    if len(view.tables.steps):
        return t0, t1
    ranges = main.select(view.select_in_scope(view.tables.annotations))
    if len(ranges):
        t0, t1 = min(t0, int(ranges.start.min())), max(t1, int(ranges.end.max()))
    return max(t0, view.scope.t0), min(t1, view.scope.t1)


INPUT, COMMUNICATION, OPS, HOST_CODE, PROFILER = "input", "communication", "ops", "host_code", "profiler"


def divide_main_thread(view: ScopeView) -> dict[str, Intervals]:
    """Divide the time in which the main thread worked by what it did, {} where no op was recorded.

    The profiler's own work comes first, then loader calls, communication, ops, and code outside all of them.
    """
    main, tables = find_main_thread(view), view.tables
    t0, t1 = find_main_window(view, main) if main is not None else (0, 0)
    if main is None or t1 <= t0:
        return {}
    rest, parts = Intervals(np.array([t0]), np.array([t1])), dict[str, Intervals]()
    loading, talking = (tables.match_names(names) for names in (DATA_LOADER_REGEX, COMMUNICATION_REGEX))
    parts[PROFILER], rest = rest & tables.overhead_intervals, rest - tables.overhead_intervals
    for part, table in ((INPUT, loading), (COMMUNICATION, talking), (OPS, tables.ops)):
        times = main.select(table).intervals
        parts[part], rest = rest & times, rest - times
    return parts | {HOST_CODE: rest}


_NAME_CELLS = 40
_MAX_PIECES = 4096  # longest times between two calls that are examined
_MIN_CALLS = 2
_MIN_SHARE = 0.5  # share of the time between calls that follows the named one


def describe_repeated_call(trace: Trace, main: MainThread, host: Intervals, events: I64) -> str:
    """Describe the call after which most of the host code of these events (rows, int64[k]) runs.

    "46.2 ms after 18 calls of tolist", "" if no call (op or function) repeats. Only the events' own time counts: what
    they call directly, ops included, is left out, and so are step annotations, which are no calls.
    """
    lane = slice(main.first, main.last)
    kind = np.asarray(trace.kind[lane])
    is_caller = np.zeros(len(trace), dtype=np.bool_)
    is_caller[events] = True
    is_caller[main.first + np.flatnonzero(kind == Kind.STEP)] = True
    parent = np.asarray(trace.parent[lane])
    is_called = (parent >= 0) & is_caller[parent] & (kind != Kind.STEP)
    called = main.first + np.flatnonzero(is_called & is_in(kind, (Kind.OP, Kind.PYTHON, Kind.ANNOTATION)))
    called = called[~is_caller[called]]
    start = np.asarray(trace.start[called])
    own = (host & cover_events(trace, events)) - cover_events(trace, called)
    length = own.ends - own.starts
    longest = find_largest(length, _MAX_PIECES)
    before = start.searchsorted(own.starts[longest], side="right") - 1
    times: dict[str, list[int]] = defaultdict(list)
    for index, piece in zip(before.tolist(), length[longest].tolist(), strict=True):
        if index >= 0:
            times[shorten_call(trace.names[int(trace.name[called[index]])])].append(piece)
    name, pieces = max(times.items(), key=lambda item: sum(item[1]), default=("", []))
    if len(pieces) < _MIN_CALLS or sum(pieces) < _MIN_SHARE * own.total:
        return ""
    return f"{format_duration(sum(pieces))} after {len(pieces):,} calls of {name}"


def shorten_call(name: str) -> str:
    """Shorten a name: `<built-in function sleep>` to "sleep", a frame to file without folders, line and function."""
    frame = frame_names.parse_frame(name)
    if frame is not None:
        text = frame.text
    elif name.startswith("<built-in "):
        text = name.removeprefix("<built-in ").rstrip(">").partition(" of ")[0].rpartition(" ")[2]
    else:
        text = name.removeprefix(frame_names.MODULE_CALL_PREFIX)
    return text if len(text) <= _NAME_CELLS else text[: _NAME_CELLS - 1] + "…"


RECORD_STACKS = "record with stacks (with_stack=True) to see which code it is"
DO_LESS_PER_OP = "call ops on whole tensors, compile the model, or do less in Python per op"
MOVE_OUT = "move it out of the loop, or into another process"
CALL_LESS = "run it less often, outside the loop, or in another process"

_MODEL_REGEX = re.compile(r"nn\.Module: |.+\): (forward|backward)$|<built-in method run_backward\b")
"""Names of the Python events that run a model's forward or backward pass."""

_MAX_CALLEES = 2
_CALLEE_MIN_SHARE = 0.1  # share of its caller's time from which a function is named


@record
class HostOwner:
    """Frames or annotations of one name. `time`: ns of host code in them; `events`: their rows, int64[k].

    `callees`: what they called that took most of that time itself: (name, ns), largest first. `before`: the call that
    most of the time follows, in words, where they called nothing that explains it.
    """

    name: str
    time: int
    events: I64
    callees: tuple[tuple[str, int], ...] = ()
    before: str = ""

    @property
    def text(self) -> str:
        """Return the name, with its callees: "train.py(4): log (sleep 181 ms, fsync 133 ms)"."""
        details = ", ".join(f"{name} {format_duration(time)}" for name, time in self.callees) or self.before
        return f"{self.name} ({details})" if details else self.name


@record
class HostCode:
    """The host code of a scope. `time`: ns that the main thread was outside ops, loader calls and communication.

    `intervals`: that time without the ops that other threads ran meanwhile. `owners`: one name in which more than half
    of `time` was spent, else the two largest; none if nothing with a name explains enough of it.
    """

    main: MainThread | None
    time: int
    intervals: Intervals
    owners: tuple[HostOwner, ...]

    @property
    def events(self) -> I64:
        """The rows of the owners: int64[k]."""
        parts = [owner.events for owner in self.owners]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def describe_owners(self) -> str:
        """Describe where the time was spent: "504 of 573 ms of it in train.py(4): log", "" where nothing names it."""
        first, *others = self.owners or (None,)
        if first is None:
            return ""
        text = f"{format_part(first.time, self.time)} of it in {first.text}"
        return text + "".join(f", {format_duration(other.time)} in {other.text}" for other in others)

    def choose_remedy(self, view: ScopeView) -> str:
        """Choose what to do: move a named frame out of the loop, or record the stacks that would name one.

        What a model does in its forward or backward pass belongs there: it can only do less for each op.
        """
        if not len(view.tables.practices.python_frames):
            return RECORD_STACKS
        if not self.owners:
            return ""
        if self.main is not None and _is_in_model(view, self.main, self.intervals, self.events):
            return DO_LESS_PER_OP
        return MOVE_OUT if len(self.owners) == 1 and not _contains_step(view, self.owners[0].events) else CALL_LESS


def find_host_code(view: ScopeView) -> HostCode:
    """Find the host code of a scope, and the frames or annotations that own it.

    The owner is the deepest frame of the user's own code (or an annotation of theirs) in which, with all that it
    calls, more than half of the time was spent. Where that is only the frame of the loop, or there is none, each ns
    belongs to the innermost such frame, and the two that have most are named.
    """
    main = find_main_thread(view)
    if main is None:
        return HostCode(None, 0, NO_INTERVALS, ())
    host = divide_main_thread(view).get(HOST_CODE, NO_INTERVALS)
    time = host.total
    host = host - view.tables.ops.intervals  # not what another thread's ops are waited for
    return HostCode(main, time, host, _find_owners(view, main, host, time))


def _find_owners(view: ScopeView, main: MainThread, host: Intervals, time: int) -> tuple[HostOwner, ...]:
    trace = view.trace
    kind = np.asarray(trace.kind[main.first : main.last])
    rows = main.first + np.flatnonzero(is_in(kind, (Kind.PYTHON, Kind.ANNOTATION, Kind.STEP)))
    if not len(rows) or not host.total:
        return ()
    start = np.asarray(trace.start[rows])
    covered = host.measure_within(start, start + trace.duration[rows])
    rows, covered = rows[covered > 0], covered[covered > 0]
    own, parent = covered.copy(), np.asarray(trace.parent[rows])
    is_child = is_in(parent, rows)
    np.subtract.at(own, np.searchsorted(rows, parent[is_child]), covered[is_child])
    own = np.maximum(own, 0)
    is_own = _user_mask(view, rows)
    nearest = view.tables.innermost_ancestor(rows, view.tables.mark_rows(rows[is_own]))
    owner = np.where(is_own | (nearest < 0), rows, nearest).astype(np.int64)
    own[is_in(owner, np.concatenate([view.tables.steps.row, view.tables.match_names(DATA_LOADER_REGEX).row]))] = 0
    name = np.asarray(trace.name[rows])
    covering = _find_covering_name(view, host, rows[owner == rows], time)
    own_by_name = np.bincount(np.asarray(trace.name[owner]), weights=own)
    if covering >= 0:
        events = rows[name == covering].astype(np.int64)
        if not _contains_step(view, events) or 2 * own_by_name[covering] > time:
            spent = host.measure_overlap(cover_events(trace, events))
            owner_found = _build_owner(view, covering, spent, events, rows, own)
            if not owner_found.callees:
                owner_found = replace(owner_found, before=describe_repeated_call(view.trace, main, host, events))
            return (owner_found,)
    largest = np.argsort(-own_by_name, kind="stable")[:2]
    largest = largest[own_by_name[largest] > 0]
    if own_by_name[largest].sum() < thresholds.HOST_OWNER_SHARE.value * time:
        return ()
    if 2 * own_by_name[largest[0]] > time or own_by_name[largest[-1]] < _CALLEE_MIN_SHARE * time:
        largest = largest[:1]
    owner = owner[own > 0]
    return tuple(
        _build_owner(view, each, int(own_by_name[each]), sorted_unique(owner[trace.name[owner] == each]))
        for each in largest.tolist()
    )


def _user_mask(view: ScopeView, rows: I64) -> Bool:
    """Return which rows are frames of the user's own files, or annotations that the user wrote: bool[k]."""
    trace = view.trace
    names = sorted_unique(np.asarray(trace.name[rows]))
    is_own = np.array([_is_user_name(trace.names[name]) for name in names.tolist()], dtype=np.bool_)
    mask: Bool = is_own[names.searchsorted(trace.name[rows])] & (np.asarray(trace.kind[rows]) != Kind.STEP)
    loader = view.tables.match_names(DATA_LOADER_REGEX).row
    return mask & ~is_in(rows, loader)


def _is_user_name(name: str) -> bool:
    frame = frame_names.parse_frame(name)
    if frame is not None:
        return frame.origin is frame_names.FrameOrigin.USER
    is_other_frame = name.startswith(("<built-in ", "nn.Module: "))
    return not is_other_frame and frame_names.classify_annotation(name) is frame_names.AnnotationOrigin.USER


def _find_covering_name(view: ScopeView, host: Intervals, rows: I64, time: int) -> int:
    """Find the name of the deepest of these rows that more than half of the time is spent beneath; -1 for none.

    What is called by another takes no longer, so the deepest takes least; of equal ones, it begins last.
    """
    trace = view.trace
    names = np.asarray(trace.name[rows])[_user_mask(view, rows)] if len(rows) else rows
    found, least = -1, (time + 1, 0)
    for name in sorted_unique(names).tolist():
        of_name = rows[np.asarray(trace.name[rows]) == name]
        spent = host.measure_overlap(cover_events(trace, of_name))
        if 2 * spent > time and (spent, -int(of_name[0])) < least:
            found, least = name, (spent, -int(of_name[0]))
    return found


def _contains_step(view: ScopeView, events: I64) -> bool:
    """Return whether one of these events contains a whole step: it is the code of the loop, or calls it."""
    steps, trace = view.tables.steps, view.trace
    start = np.asarray(trace.start[events])
    after = steps.start.searchsorted(start)
    after, end = after[after < len(steps)], (start + trace.duration[events])[after < len(steps)]
    return bool((steps.end[after] <= end).any())


def _build_owner(
    view: ScopeView, name: int, time: int, events: I64, rows: I64 | None = None, own: I64 | None = None
) -> HostOwner:
    """Build an owner; with `rows` and their `own` time (ns), name what it calls that takes long."""
    trace = view.trace
    callees: tuple[tuple[str, int], ...] = ()
    if rows is not None and own is not None:
        mask = view.tables.mark_rows(events)
        is_below = (view.tables.innermost_ancestor(rows, mask) >= 0) & ~mask[rows]
        is_below &= np.asarray(trace.kind[rows]) != Kind.STEP  # a step is no place in the program
        by_name = np.bincount(np.asarray(trace.name[rows])[is_below], weights=own[is_below], minlength=1)
        largest = np.argsort(-by_name, kind="stable")[:_MAX_CALLEES].tolist()
        callees = tuple(
            (shorten_call(trace.names[callee]), int(by_name[callee]))
            for callee in largest
            if by_name[callee] >= _CALLEE_MIN_SHARE * time
        )
    label = shorten_call(trace.names[name])
    if name in view.tables.line_finder.open_names and (frame := frame_names.parse_frame(trace.names[name])) is not None:
        label = replace(frame, line=None).text  # it began before the recording: its line is not known
    return HostOwner(label, time, events.astype(np.int64), callees)


def _is_in_model(view: ScopeView, main: MainThread, host: Intervals, events: I64) -> bool:
    """Return whether most of the host code in these events lies in a model's forward or backward pass."""
    trace = view.trace
    lane = slice(main.first, main.last)
    is_model = match_names(trace, _MODEL_REGEX.match)[lane] & (trace.kind[lane] == Kind.PYTHON)
    model = main.first + np.flatnonzero(is_model)
    of_owner = host & cover_events(trace, events)
    return 2 * of_owner.measure_overlap(cover_events(trace, model)) > of_owner.total
