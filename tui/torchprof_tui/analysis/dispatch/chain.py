"""The dispatch chain through one event: step → annotations → Python frames → ops → launch ⇢ GPU work.

Everything is decided by structure (the format's "Links"): GPU work joins its launch by correlation; what
stands above a launch is what contains it on its thread. `External id` is asked only where the launch was
not recorded, and only in traces whose ids are shown to be ops' ids by the events that do have a launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import overload

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import is_ancestor_or_self
from torchprof_tui.analysis.dispatch.autograd import find_autograd_partners
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace

MIN_EXTERNAL_ID_AGREEMENT = 0.99
"""Share of linked GPU events whose External id must name an op above their launch before ids are believed."""

MAX_HOPS = 1000
"""Of a chain that is deeper, as only broken recursion is, both ends are told."""


class HopRole(str, Enum):
    """What a hop is, in the words of the command line's contract."""

    STEP = "step"
    ANNOTATION = "annotation"
    PYTHON = "python"
    OP = "op"
    LAUNCH = "launch"
    GPU = "gpu"


_ROLE_OF_KIND = {
    Kind.STEP: HopRole.STEP,
    Kind.ANNOTATION: HopRole.ANNOTATION,
    Kind.PYTHON: HopRole.PYTHON,
    Kind.OP: HopRole.OP,
    Kind.RUNTIME: HopRole.LAUNCH,
    **dict.fromkeys(GPU_WORK, HopRole.GPU),
}


class JoinMethod(str, Enum):
    """How the GPU end of a chain was joined to its CPU end."""

    CORRELATION = "correlation"
    EXTERNAL_ID = "external id"
    NO_LAUNCH = "none"  # launched before the window, or its runtime call was not recorded
    NO_WORK = "no work"  # a CPU event beneath which nothing was launched
    NOT_DISPATCHED = "outside"  # an event that takes no part in dispatch: overhead, marks, other programs' events


_NOTES = {
    JoinMethod.EXTERNAL_ID: "The launch was not recorded; joined to its op by External id.",
    JoinMethod.NO_LAUNCH: "No launch was recorded: it was made before the window, or runtime calls were not traced.",
    JoinMethod.NO_WORK: "Nothing beneath it launched GPU work inside the window.",
    JoinMethod.NOT_DISPATCHED: "Not part of a dispatch: no launch and no GPU work belong to it.",
}


@dataclass(frozen=True, slots=True)
class Hop:
    """One event on the way down. `offset` is ns after the start of the hop above it (0 for the first)."""

    role: HopRole
    event: int
    name: str
    start: int
    duration: int
    self_duration: int
    offset: int


@dataclass(frozen=True, slots=True)
class GpuWork:
    """One piece of GPU work beneath an event. `share` is of all GPU time beneath it, 0..1."""

    event: int
    launch: int  # -1 where only the external id joins them
    duration: int
    share: float


@dataclass(frozen=True, slots=True)
class LaunchedWork(Sequence[GpuWork]):
    """All GPU work beneath an event, heaviest first; `Work` objects are made when asked for. k pieces.

    A graph launch alone may have thousands, a step a million: whoever needs many takes the columns.
    """

    events: I32
    launches: I32
    durations: I64

    def __len__(self) -> int:
        return len(self.events)

    @overload
    def __getitem__(self, place: int) -> GpuWork: ...
    @overload
    def __getitem__(self, place: slice) -> list[GpuWork]: ...
    def __getitem__(self, place: int | slice) -> GpuWork | list[GpuWork]:
        if isinstance(place, slice):
            return [self[k] for k in range(*place.indices(len(self)))]
        duration = int(self.durations[place])
        share = duration / self.total if self.total else 1 / len(self)
        return GpuWork(int(self.events[place]), int(self.launches[place]), duration, share)

    @property
    def total(self) -> int:
        """ns, overlaps counted twice."""
        return int(self.durations.sum())


NO_LAUNCHED_WORK = LaunchedWork(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Chain:
    """The chain through `event`, outermost hop first; times in ns.

    `work` is all GPU work beneath the selected event, heaviest first; the chain descends to the heaviest
    (for a selected piece of GPU work: to that piece).
    `launch_latency` is call start → GPU start; `queue_delay` GPU start − call end (negative where the GPU
    began before the call had returned); `held_up` is how much of the queue delay earlier work on the stream was
    running, and `held_up_by` the piece of it that ended last (-1 for none).
    """

    event: int
    hops: tuple[Hop, ...]
    join_method: JoinMethod
    work: LaunchedWork
    launch_latency: int | None
    queue_delay: int | None
    held_up: int
    held_up_by: int
    forward_op: int  # the forward op that this chain is the backward of, -1 for none
    backward_node: int  # the first backward node of the selected op, -1 for none
    note: str  # one sentence where something is missing, else ""

    @property
    def events(self) -> I32:
        """All events that belong to it, to be lit on the lanes."""
        hops = np.array([hop.event for hop in self.hops], dtype=np.int32)
        launches = self.work.launches[self.work.launches >= 0]
        return np.unique(np.concatenate([hops, self.work.events, launches]))


class ChainFinder:
    """Answers chains over one trace; what it must look up over all events is computed once, when first asked."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def find_chain(self, event: int) -> Chain:
        """The chain through one event (a row of the trace); raises IndexError outside it."""
        trace = self.trace
        if not 0 <= event < len(trace):
            raise IndexError(event)
        kind = Kind(int(trace.kind[event]))
        if kind in GPU_WORK:
            rows = np.array([event], dtype=np.int32)
            work = LaunchedWork(rows, trace.links.launch_of[rows], trace.duration[rows])
        else:
            work = find_launched_work(trace, event)
        origin, inner = self._find_cpu_end(event, kind, work)
        path = [] if inner < 0 else _prepend_step(trace, [*reversed(list_ancestors(trace, inner)), inner])
        if work:
            path.append(work[0].event)
        elif inner < 0:
            path.append(event)
        latency, delay, held_up, held_up_by = _measure_queueing(trace, work[0]) if work else (None, None, 0, -1)
        note = _NOTES.get(origin, "")
        if len(path) > MAX_HOPS:
            half = MAX_HOPS // 2
            note = f"{len(path) - 2 * half:,} calls in the middle are left out. {note}".rstrip()
            path = path[:half] + path[-half:]
        forward, backward = find_autograd_partners(trace, path)
        return Chain(
            event, _build_hops(trace, path), origin, work, latency, delay, held_up, held_up_by, forward, backward, note
        )

    def _find_cpu_end(self, event: int, kind: Kind, work: LaunchedWork) -> tuple[JoinMethod, int]:
        """(how the two ends join, the innermost CPU event of the chain or -1)."""
        if kind in GPU_WORK:
            launch = work[0].launch
            if launch >= 0:
                return JoinMethod.CORRELATION, launch
            op = self.find_op_by_external_id(event)
            return (JoinMethod.EXTERNAL_ID, op) if op >= 0 else (JoinMethod.NO_LAUNCH, -1)
        if work:
            return JoinMethod.CORRELATION, work[0].launch
        return (JoinMethod.NO_WORK if kind in _ROLE_OF_KIND else JoinMethod.NOT_DISPATCHED), event

    def find_op_by_external_id(self, event: int) -> int:
        """The op whose External id a piece of GPU work carries, where this trace's ids are proven; else -1."""
        ids = self.trace.args.get("external_id")
        wanted = ids.get(event) if ids is not None else None
        if wanted is None or self._ops_by_external_id is None:
            return -1
        known, ops = self._ops_by_external_id
        place = int(np.searchsorted(known, wanted))
        return int(ops[place]) if place < len(known) and known[place] == wanted else -1

    @cached_property
    def _ops_by_external_id(self) -> tuple[I64, I32] | None:
        """(External ids ascending, the op that has each), None where the ids are not proven to be ops' ids.

        In traces of torch 1.1x to 2.3 a launch's External id is its correlation. So the ids are believed only
        where the GPU events that do have a launch carry the id of an op above that launch.
        """
        trace = self.trace
        ids = trace.args.get("external_id")
        if ids is None:
            return None
        kinds = trace.kind[ids.events]
        of_op = kinds == Kind.OP
        order = np.argsort(ids.values[of_op], kind="stable")
        known: I64 = ids.values[of_op][order].astype(np.int64)
        ops: I32 = ids.events[of_op][order]
        if not len(known):
            return None
        of_work = np.isin(kinds, [int(kind) for kind in GPU_WORK])
        launches = trace.links.launch_of[ids.events[of_work]]
        linked = launches >= 0
        wanted = ids.values[of_work][linked]
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        named = np.where(known[place] == wanted, ops[place], -1)
        agree = is_ancestor_or_self(trace.parent, named, launches[linked])
        return (known, ops) if len(agree) and agree.mean() >= MIN_EXTERNAL_ID_AGREEMENT else None


def find_chain(trace: Trace, event: int) -> Chain:
    """`Dispatch(trace).chain(event)`, for those who ask once."""
    return ChainFinder(trace).find_chain(event)


def list_ancestors(trace: Trace, event: int) -> list[int]:
    """Parents of an event on its lane, innermost first."""
    found = []
    parent = int(trace.parent[event])
    while parent >= 0:
        found.append(parent)
        parent = int(trace.parent[parent])
    return found


def find_launched_work(trace: Trace, event: int) -> LaunchedWork:
    """All GPU work launched by an event or anything it contains, heaviest first, earlier first among equals."""
    links = trace.links
    launches = find_launches(trace, event)
    if not len(launches):
        return NO_LAUNCHED_WORK
    first, last = links.work_first[launches], links.work_first[launches + 1]
    count = last - first
    # The places in `work_order` of each launch's run, one behind the other.
    places = np.repeat(first - np.concatenate([[0], np.cumsum(count)[:-1]]), count) + np.arange(count.sum())
    events = links.work_order[places]
    durations = trace.duration[events]
    order = np.lexsort((events, trace.start[events], -durations))
    return LaunchedWork(events[order], np.repeat(launches, count)[order], durations[order])


def find_launches(trace: Trace, event: int) -> I32:
    """Launches among `event` and its descendants, in time order.

    A lane is sorted by start, longest first, so descendants lie in one run of rows behind their ancestor;
    those in the run that merely cross it are left out by asking for their ancestors.
    """
    lane = trace.lanes[int(trace.lane[event])]
    end = int(trace.start[event]) + max(int(trace.duration[event]), 1)  # as nesting has it: nothing is empty
    last = lane.first + int(np.searchsorted(trace.start[lane.first : lane.last], end, side="left"))
    first_of = trace.links.work_first[event : max(last, event + 1) + 1]
    rows: I32 = (event + np.flatnonzero(np.diff(first_of))).astype(np.int32)
    return rows[is_ancestor_or_self(trace.parent, np.full(len(rows), event), rows)]


def _prepend_step(trace: Trace, path: list[int]) -> list[int]:
    """`path` with its ProfilerStep on top where the thread itself has none (autograd's threads never do)."""
    if any(trace.kind[event] == Kind.STEP for event in path):
        return path
    start = int(trace.start[path[0]])
    for step in trace.steps_of_event(path[0]):
        if step.start <= start < step.start + step.duration:
            return [step.event, *path]
    return path


def _measure_queueing(trace: Trace, work: GpuWork) -> tuple[int | None, int | None, int, int]:
    """(launch latency, queue delay, ns of the delay that earlier work on the stream was running, its last piece)."""
    if work.launch < 0:
        return None, None, 0, -1
    call_start = int(trace.start[work.launch])
    call_end = call_start + int(trace.duration[work.launch])
    start = int(trace.start[work.event])
    held_up, held_up_by = _find_blocking_work(trace, work.event, call_end, start)
    return start - call_start, start - call_end, held_up, held_up_by


def _find_blocking_work(trace: Trace, event: int, since: int, until: int) -> tuple[int, int]:
    """(ns between the two times in which earlier work ran on the event's stream, the piece that ended last or -1)."""
    lane = trace.lanes[int(trace.lane[event])]
    if until <= since:
        return 0, -1
    starts = trace.start[lane.first : event]
    ends = starts + trace.duration[lane.first : event]
    late = np.flatnonzero((ends > since) & (starts < until))
    if not len(late):
        return 0, -1
    held_up = union(starts[late], ends[late]).measure_between(since, until)
    last = int(late[np.argmax(np.minimum(ends[late], until))])
    return held_up, lane.first + last if held_up else -1


def _build_hops(trace: Trace, path: list[int]) -> tuple[Hop, ...]:
    hops: list[Hop] = []
    for event in path:
        start = int(trace.start[event])
        hops.append(
            Hop(
                _ROLE_OF_KIND.get(Kind(int(trace.kind[event])), HopRole.OP),
                event,
                trace.names[trace.name[event]],
                start,
                int(trace.duration[event]),
                int(trace.self_duration[event]),
                start - hops[-1].start if hops else 0,
            )
        )
    return tuple(hops)
