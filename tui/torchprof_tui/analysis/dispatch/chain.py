"""The dispatch chain through one event: step → annotations → Python frames → ops → launch ⇢ GPU work.

Only structure decides (the format's "Links"): GPU work joins its launch by correlation, and the ancestors of a launch
are the events that contain it on its thread. `External id` is used only where the launch was not recorded, and only
in traces whose linked events show that these ids belong to ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import cast, overload

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import is_ancestor_or_self
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I32, I64, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import SparseColumn, Trace


def find_autograd_partners(trace: Trace, path: list[int]) -> tuple[int, int]:
    """Find (the forward op whose backward pass contains this path or -1, the backward node of an op of the path or -1).

    `path`: events, outermost first. The innermost op with a partner decides; flows take precedence over sequence
    numbers. Scans each flow once and, for each op, all sequence numbers: a few ms for a million events.
    """
    links = trace.links
    rows = np.array(path, dtype=np.int32)
    forward = _find_partner_by_flow(links.backward, links.forward, rows)
    if forward < 0:
        forward = find_partner_by_sequence(trace, path, backward=True)
    if forward >= 0:
        return forward, -1
    backward = _find_partner_by_flow(links.forward, links.backward, rows)
    return -1, backward if backward >= 0 else find_partner_by_sequence(trace, path, backward=False)


def _find_partner_by_flow(near_ends: I32, far_ends: I32, rows: I32) -> int:
    """Find the far end of the innermost row's flow; the first if it has several, -1 if no row has one."""
    flows = np.flatnonzero(is_in(near_ends, rows))
    if not len(flows):
        return -1
    depth = {int(row): k for k, row in enumerate(rows)}
    return int(far_ends[max(flows.tolist(), key=lambda k: (depth[int(near_ends[k])], -k))])


def find_partner_by_sequence(trace: Trace, path: list[int], backward: bool) -> int:
    """Find the partner by sequence number of the innermost op that has one; of backward nodes if `backward`.

    An op records the number of the next node in the graph, so its enclosing ops record the same number: the op that
    created the node is the last to start. A backward node is enclosed by the engine's own call with the same number:
    the node is again the last to start. Backward events record the thread of their forward op (> 0).
    """
    numbers, threads = trace.args.get("sequence"), trace.args.get("forward_thread")
    if numbers is None or threads is None:
        return -1
    for row in reversed(path):
        number = numbers.get(row)
        if number is None or number < 0 or ((threads.get(row) or 0) > 0) != backward:
            continue
        if _SEQUENCE_ORDER not in trace.derived:
            trace.derived[_SEQUENCE_ORDER] = np.argsort(numbers.values, kind="stable")
        order = cast("I64", trace.derived[_SEQUENCE_ORDER])
        first = numbers.values.searchsorted(number, sorter=order)
        last = numbers.values.searchsorted(number, side="right", sorter=order)
        candidates = numbers.events[order[first:last]]
        is_backward = np.greater(threads.values_at(candidates, missing=0), 0)
        forwards, backwards = candidates[~is_backward].tolist(), candidates[is_backward].tolist()
        # Sequence numbers are per thread: if forward ops of several threads share one, the partner is undecidable.
        if not backwards or len({int(trace.lane[event]) for event in forwards}) != 1:
            continue
        forward, node = _find_last_started(trace, forwards), _find_last_started(trace, backwards)
        if backward or forward == row:
            return forward if backward else node
    return -1


_SEQUENCE_ORDER = "events by sequence number"


def _find_last_started(trace: Trace, events: list[int]) -> int:
    return max(events, key=lambda event: (int(trace.start[event]), event))


MIN_EXTERNAL_ID_AGREEMENT = 0.99
"""Minimum share of linked GPU events whose External id names an ancestor op of their launch, for ids to be used."""

MAX_HOPS = 1000  # a deeper chain, which only runaway recursion produces, is reduced to its two ends


class HopRole(TextEnum):
    """Role of a hop; the values are part of the command line's JSON."""

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


class JoinMethod(TextEnum):
    """How the GPU end of a chain was joined to its CPU end."""

    CORRELATION = "correlation"
    FLOW = "flow"  # an arrow of the file, on Ascend; the launch may be an op
    EXTERNAL_ID = "external id"
    NO_LAUNCH = "none"  # launched before the window, or its runtime call was not recorded
    NO_WORK = "no work"  # a CPU event that launched nothing, nor did its descendants
    NOT_DISPATCHED = "outside"  # no part of dispatch: overhead, marks, events of other programs


_NOTES = {
    JoinMethod.EXTERNAL_ID: "The launch was not recorded; the op was found by its External id.",
    JoinMethod.NO_LAUNCH: "No launch was recorded: it was before the recording, or runtime calls were not recorded.",
    JoinMethod.NO_WORK: "It launched no GPU work in the recording.",
    JoinMethod.NOT_DISPATCHED: "Not part of a dispatch chain: it has no launch and no GPU work.",
}


@record
class Hop:
    """One event of a chain. `offset`: ns after the start of the previous hop, 0 for the first."""

    role: HopRole
    event: int
    name: str
    start: int
    duration: int
    self_duration: int
    offset: int


@record
class GpuWork:
    """One GPU event launched by an event. `share`: of all GPU time launched by that event, 0..1."""

    event: int
    launch: int  # -1 if joined by External id only
    duration: int
    share: float


@record
class LaunchedWork(Sequence[GpuWork]):
    """All GPU work launched by an event and its descendants, longest first: k events. `GpuWork` is created on access.

    A graph launch may have thousands of events and a step a million: use the columns to process many.
    """

    events: I32
    launches: I32
    durations: I64

    def __len__(self) -> int:
        return len(self.events)

    @overload
    def __getitem__(self, index: int) -> GpuWork: ...
    @overload
    def __getitem__(self, index: slice) -> list[GpuWork]: ...
    def __getitem__(self, index: int | slice) -> GpuWork | list[GpuWork]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        duration = int(self.durations[index])
        share = duration / self.total if self.total else 1 / len(self)
        return GpuWork(int(self.events[index]), int(self.launches[index]), duration, share)

    @property
    def total(self) -> int:
        """Sum of the durations, ns; overlapping work counts twice."""
        return int(self.durations.sum())


NO_LAUNCHED_WORK = LaunchedWork(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))


@record
class Chain:
    """The chain through `event`, outermost hop first; times in ns.

    `work`: all GPU work launched by the selected event, longest first; the chain descends to the longest (for selected
    GPU work, to that event itself).
    `launch_latency`: GPU start − call start. `queue_delay`: GPU start − call end, negative if the GPU started before
    the call returned. `held_up`: the part of the queue delay in which earlier work on the stream was running;
    `held_up_by`: the event of that work which ended last, -1 for none.
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
        """int32[k]: all events of the chain, ascending, to highlight on the lanes."""
        hops = np.array([hop.event for hop in self.hops], dtype=np.int32)
        launches = self.work.launches[self.work.launches >= 0]
        return sorted_unique(np.concatenate([hops, self.work.events, launches]))


class ChainFinder:
    """Find chains in one trace. The index of External ids over all events is computed once, on first use."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def find_chain(self, event: int) -> Chain:
        """Find the chain through one event (a row of the trace). Raises IndexError outside the trace."""
        trace = self.trace
        if not 0 <= event < len(trace):
            raise IndexError(event)
        kind = Kind(int(trace.kind[event]))
        if kind in GPU_WORK:
            rows = np.array([event], dtype=np.int32)
            work = LaunchedWork(rows, trace.links.launch_of[rows], trace.duration[rows])
        else:
            work = find_launched_work(trace, event)
        join_method, innermost = self._find_cpu_end(event, kind, work)
        path = [] if innermost < 0 else _prepend_step(trace, [*reversed(list_ancestors(trace, innermost)), innermost])
        if work:
            path.append(work[0].event)
        elif innermost < 0:
            path.append(event)
        latency, delay, held_up, held_up_by = _measure_queueing(trace, work[0]) if work else (None, None, 0, -1)
        has_nothing_to_join = join_method is JoinMethod.NO_WORK and not trace.links.gpu_events
        note = "" if has_nothing_to_join else _NOTES.get(join_method, "")
        if len(path) > MAX_HOPS:
            half = MAX_HOPS // 2
            note = f"{len(path) - 2 * half:,} calls in the middle are not shown. {note}".rstrip()
            path = path[:half] + path[-half:]
        forward, backward = find_autograd_partners(trace, path)
        return Chain(
            event=event,
            hops=_build_hops(trace, path),
            join_method=join_method,
            work=work,
            launch_latency=latency,
            queue_delay=delay,
            held_up=held_up,
            held_up_by=held_up_by,
            forward_op=forward,
            backward_node=backward,
            note=note,
        )

    def _find_cpu_end(self, event: int, kind: Kind, work: LaunchedWork) -> tuple[JoinMethod, int]:
        """Find (how the CPU and GPU ends join, the innermost CPU event of the chain or -1)."""
        if kind in GPU_WORK:
            launch = work[0].launch
            if launch >= 0:
                return self._find_join_method(event), launch
            op = self.find_op_by_external_id(event)
            return (JoinMethod.EXTERNAL_ID, op) if op >= 0 else (JoinMethod.NO_LAUNCH, -1)
        if work:
            return self._find_join_method(work[0].event), work[0].launch
        return (JoinMethod.NO_WORK if kind in _ROLE_OF_KIND else JoinMethod.NOT_DISPATCHED), event

    def _find_join_method(self, work: int) -> JoinMethod:
        """Find how GPU work was joined to its launch: without a correlation only by a flow."""
        return JoinMethod.FLOW if int(self.trace.correlation[work]) in (-1, 0) else JoinMethod.CORRELATION

    def find_op_by_external_id(self, event: int) -> int:
        """Find the op with the External id of a GPU event; -1 if there is none or this trace's ids are not ops' ids."""
        ids = self.trace.args.get("external_id")
        external_id = ids.get(event) if ids is not None else None
        if external_id is None or self._ops_by_external_id is None:
            return -1
        op = self._ops_by_external_id.get(external_id)
        return -1 if op is None else int(op)

    @cached_property
    def _ops_by_external_id(self) -> SparseColumn | None:
        """The op of each External id; None unless the ids are shown to be ops' ids.

        In traces of torch 1.1x to 2.3 the External id of a launch is its correlation. Ids are therefore used only if
        the GPU events that have a launch carry the id of an ancestor op of that launch.
        """
        trace = self.trace
        ids = trace.args.get("external_id")
        if ids is None:
            return None
        kinds = trace.kind[ids.events]
        on_op = kinds == Kind.OP
        order = np.argsort(ids.values[on_op], kind="stable")
        ops = SparseColumn(ids.values[on_op][order].astype(np.int64), ids.events[on_op][order])
        on_work = is_in(kinds, [int(kind) for kind in GPU_WORK])
        launches = trace.links.launch_of[ids.events[on_work]]
        linked = launches >= 0
        matching_ops = ops.values_at(ids.values[on_work][linked].astype(np.int64)).astype(np.int32)
        agrees = is_ancestor_or_self(trace.parent, matching_ops, launches[linked])
        return ops if len(agrees) and agrees.mean() >= MIN_EXTERNAL_ID_AGREEMENT else None


def find_chain(trace: Trace, event: int) -> Chain:
    """Find one chain. For several chains of a trace use one `ChainFinder`, which caches the index of External ids."""
    return ChainFinder(trace).find_chain(event)


def list_ancestors(trace: Trace, event: int) -> list[int]:
    """List the ancestors of an event on its lane, innermost first."""
    ancestors = []
    parent = int(trace.parent[event])
    while parent >= 0:
        ancestors.append(parent)
        parent = int(trace.parent[parent])
    return ancestors


def find_launched_work(trace: Trace, event: int) -> LaunchedWork:
    """Find all GPU work launched by an event and its descendants, longest first, then by start."""
    links = trace.links
    launches = find_launches(trace, event)
    if not len(launches):
        return NO_LAUNCHED_WORK
    first, last = links.work_first[launches], links.work_first[launches + 1]
    count = last - first
    # Indices into `work_order`: the range of each launch, concatenated.
    indices = np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)
    events = links.work_order[indices]
    durations = trace.duration[events]
    order = np.lexsort((events, trace.start[events], -durations))
    return LaunchedWork(events[order], np.repeat(launches, count)[order], durations[order])


def find_launches(trace: Trace, event: int) -> I32:
    """Find the launches among `event` and its descendants, in time order.

    A lane is sorted by start, longest first, so descendants lie in one range of rows after their ancestor. Events in
    that range which only overlap the ancestor are excluded by their own ancestors.
    """
    lane = trace.lanes[int(trace.lane[event])]
    end = int(trace.start[event]) + max(int(trace.duration[event]), 1)  # as in nesting, an event takes at least 1 ns
    last = lane.first + int(np.searchsorted(trace.start[lane.first : lane.last], end, side="left"))
    first_of = trace.links.work_first[event : max(last, event + 1) + 1]
    rows: I32 = (event + np.flatnonzero(np.diff(first_of))).astype(np.int32)
    return rows[is_ancestor_or_self(trace.parent, np.full(len(rows), event), rows)]


def _prepend_step(trace: Trace, path: list[int]) -> list[int]:
    """Prepend the step to a path on a thread without steps, such as autograd's threads."""
    if any(trace.kind[event] == Kind.STEP for event in path):
        return path
    start = int(trace.start[path[0]])
    for step in trace.steps_of_event(path[0]):
        if step.start <= start < step.start + step.duration:
            return path if step.event in path else [step.event, *path]
    return path


def _measure_queueing(trace: Trace, work: GpuWork) -> tuple[int | None, int | None, int, int]:
    """Measure (launch latency, queue delay, ns of it in which earlier work ran on the stream, the last such event)."""
    if work.launch < 0:
        return None, None, 0, -1
    call_start, start = int(trace.start[work.launch]), int(trace.start[work.event])
    call_end = call_start + int(trace.duration[work.launch])
    held_up, held_up_by = 0, -1
    if start > call_end:
        first = trace.lanes[int(trace.lane[work.event])].first
        starts = trace.start[first : work.event]
        ends = starts + trace.duration[first : work.event]
        blocking = np.flatnonzero((ends > call_end) & (starts < start))
        held_up = union(starts[blocking], ends[blocking]).measure_between(call_end, start)
        if held_up:
            held_up_by = first + int(blocking[np.argmax(np.minimum(ends[blocking], start))])
    return start - call_start, start - call_end, held_up, held_up_by


def _build_hops(trace: Trace, path: list[int]) -> tuple[Hop, ...]:
    starts = [int(trace.start[event]) for event in path]
    return tuple(
        Hop(
            _ROLE_OF_KIND.get(Kind(int(trace.kind[event])), HopRole.OP),
            event,
            trace.names[trace.name[event]],
            start,
            int(trace.duration[event]),
            int(trace.self_duration[event]),
            start - previous,
        )
        for event, start, previous in zip(path, starts, [*starts[:1], *starts], strict=False)
    )
