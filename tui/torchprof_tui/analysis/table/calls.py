"""The calls that the profiler's table counts: which events they are, what they contain, what they launched.

`prof.key_averages()` is made from the profiler's own records and not from the file, but by rules that the file is
enough for (torch 2.11, `torch/autograd/profiler.py::_parse_kineto_results`, `profiler_util.py::EventList`):

* Operators, annotations, runtime calls and the profiler's overhead are calls on the CPU; kernels, copies, fills, waits
  of streams and the spans of annotations are calls on the GPU. Python frames are none.
* A runtime call counts on the thread of the operator that it is linked to; overhead, and a runtime call that is linked
  to none, on the thread that ran the profiler.
* On each thread a call's parent is the innermost earlier one that contains it whole; who is crossed by a later call is
  nobody's parent from then on.
* A call that is its parent's only child and has its name is folded into it, and hands it its children and its GPU work.
* The GPU work of a call is what carries its External id. Totals add that of its children.

Some things follow that surprise and are kept, for the table is to be the one that torch prints: overhead has the id of
the operator it interrupts, so the operator's GPU work counts for both; a runtime call without an operator has its
correlation for an id, which may be some operator's, whose GPU work then counts there too, its runtime calls on that
thread; where a call is folded, what its parent launched itself is dropped; where overhead crosses annotations, the self
time around them may be negative. Older traces, whose External ids are no operators', get their GPU work by containment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor, find_nearest_ancestor_or_self, sum_subtrees
from torchprof_tui.analysis.table.containment import find_innermost_at, find_parents, fold_only_children, sort_by_thread
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

STEP_PREFIX = "ProfilerStep#"
STEP_NAME = "ProfilerStep*"

_IGNORED_NAMES = frozenset(
    (
        "[memory]",
        "[OutOfMemory]",
        "profiler::_record_function_enter",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
        "aten::is_leaf",
        "aten::output_nr",
        "aten::_version",
    )
)
"""What `profiler_util.py::_filter_name` leaves out."""

_MIN_MATCH_SHARE = 0.99
"""Share of linked GPU events whose External id must be that of an operator above their launch."""

_MAX_SLOTS_PER_CALL = 16
"""Sums are looked up in a plain array while it has at most this many slots a call."""

_SPAN_PADDING = 1
"""ns by which Kineto writes the span of an annotation on the GPU wider, at both ends, than it is (output_json.cpp)."""


@dataclass(frozen=True)
class Calls:
    """m calls: first those on the CPU by thread and start, then those on the GPU in the trace's order. Times ns.

    `parent` is a place in these columns, -1 for none; a call on the GPU hangs under the innermost CPU call that its
    launch lies in, so walking up works for both (no CPU figure counts that way).
    """

    event: I32  # row of the trace
    name: I32  # into `names`: steps share one
    names: list[str]
    on_gpu: Bool
    annotation: Bool  # record_function ranges and steps, and their spans on the GPU
    start: I64
    cpu: I64  # 0 on the GPU
    self_cpu: I64
    gpu: I64
    self_gpu: I64
    parent: I32
    ordinal: I32  # in the file: how torch orders what begins and ends together
    cpu_call_count: int
    top_level_memory_records: int
    """`[memory]` records inside no call on the CPU: a row of its own in torch's table."""

    def __len__(self) -> int:
        return len(self.event)


def build_calls(trace: Trace) -> Calls:
    """The calls of a trace. A few passes over its columns: ask once and keep the answer."""
    names, code = _merge_step_names(trace.names)
    seen = np.fromiter((name not in _IGNORED_NAMES for name in trace.names), np.bool_, len(trace.names))[trace.name]
    on_cpu = np.flatnonzero(_kind_table(_cpu_kinds(trace))[trace.kind] & seen).astype(np.int32)
    on_gpu = np.flatnonzero(_kind_table(_GPU_KINDS)[trace.kind] & seen).astype(np.int32)

    main = _find_main_lane(trace)
    links = _CallLinks(trace, on_cpu, on_gpu, main)
    lane = links.lane_of(on_cpu)
    order, first = sort_by_thread(lane, trace.start[on_cpu], trace.duration[on_cpu], trace.ordinal[on_cpu])
    on_cpu = on_cpu[order]
    start, duration = trace.start[on_cpu], trace.duration[on_cpu]
    parent = find_parents(first, start, duration)
    name = code[trace.name[on_cpu]]
    own = links.self_gpu_time(on_cpu)

    kept, parent, own = fold_only_children(parent, name, own)
    on_cpu, name, duration = on_cpu[kept], name[kept], duration[kept]
    has_parent = np.flatnonzero(parent >= 0)
    # float64 sums are exact up to 2**53 ns: a hundred days.
    taken = np.bincount(parent[has_parent], weights=duration[has_parent], minlength=len(parent)).astype(np.int64)

    gpu_duration, gpu_start = np.asarray(trace.duration[on_gpu]), np.asarray(trace.start[on_gpu])
    if "baseTimeNanoseconds" in trace.header:  # earlier traces counted in µs, and widened spans otherwise
        wide = (trace.kind[on_gpu] == Kind.GPU_ANNOTATION) & (gpu_duration >= 2 * _SPAN_PADDING)
        gpu_duration = gpu_duration - 2 * _SPAN_PADDING * wide
        gpu_start = gpu_start + _SPAN_PADDING * wide
    nothing = np.zeros(len(on_gpu), np.int64)
    event = np.concatenate([on_cpu, on_gpu])
    return Calls(
        event=event,
        name=np.concatenate([name, code[trace.name[on_gpu]]]),
        names=names,
        on_gpu=np.arange(len(event)) >= len(on_cpu),
        annotation=_annotation_mask(trace, event),
        start=np.concatenate([trace.start[on_cpu], gpu_start]),
        cpu=np.concatenate([duration, nothing]),
        self_cpu=np.concatenate([duration - taken, nothing]),
        gpu=np.concatenate([sum_subtrees(parent, own), gpu_duration]),
        self_gpu=np.concatenate([own, gpu_duration]),
        parent=np.concatenate([parent, _find_launching_calls(trace, on_cpu, on_gpu)]),
        ordinal=trace.ordinal[event],
        cpu_call_count=len(on_cpu),
        top_level_memory_records=_count_top_level_memory(trace, on_cpu[parent < 0]),
    )


_GPU_KINDS = (*GPU_WORK, Kind.SYNC, Kind.GPU_ANNOTATION)


def _cpu_kinds(trace: Trace) -> tuple[Kind, ...]:
    """In a trace that torch did not write, whatever lies on a thread is a call."""
    kinds = (Kind.STEP, Kind.ANNOTATION, Kind.OP, Kind.RUNTIME, Kind.OVERHEAD)
    return kinds if trace.format == "kineto" else (*kinds, Kind.OTHER)


def _kind_table(kinds: Iterable[Kind]) -> Bool:
    table = np.zeros(256, np.bool_)
    table[[int(kind) for kind in kinds]] = True
    return table


def _annotation_mask(trace: Trace, events: I32) -> Bool:
    """bool[k]: by category, for torch 1.9 recorded steps as operators."""
    known = [category.lower() in ("user_annotation", "gpu_user_annotation") for category in trace.categories]
    found: Bool = np.array(known or [False], np.bool_)[trace.category[events]]
    return found


def _merge_step_names(names: list[str]) -> tuple[list[str], I32]:
    """The names with one for all steps, and for each of the trace's names its place there."""
    code = np.arange(len(names), dtype=np.int32)
    steps = [place for place, name in enumerate(names) if name.startswith(STEP_PREFIX)]
    if not steps:
        return names, code
    code[steps] = len(names)
    return [*names, STEP_NAME], code


def _find_main_lane(trace: Trace) -> int:
    """The thread that ran the profiler: the one of the steps, else the process's first, else the first lane."""
    if trace.steps:
        return int(trace.lane[trace.steps[0].event])
    threads = [k for k, lane in enumerate(trace.lanes) if lane.role is Role.THREAD and len(lane)]
    # On Linux a process's first thread has the process's number.
    first = [k for k in threads if trace.lanes[k].tid == trace.lanes[k].pid]
    return next(iter([*first, *threads]), 0)


def _find_launching_calls(trace: Trace, on_cpu: I32, on_gpu: I32) -> I32:
    """int32[g]: the place among `on_cpu` of the innermost call that each piece of GPU work was launched in, or -1."""
    launch = trace.links.launch_of[on_gpu]
    place = np.full(len(trace), -1, np.int32)
    place[on_cpu] = np.arange(len(on_cpu), dtype=np.int32)
    above: I32 = launch.copy()
    others = np.flatnonzero((above >= 0) & (place[above] < 0))  # a launch is a call itself, but for those folded
    if len(others):
        above[others] = find_nearest_ancestor(trace.parent, above[others], place >= 0)
    return np.where(above >= 0, place[above], np.int32(-1)).astype(np.int32)


def _count_top_level_memory(trace: Trace, roots: I32) -> int:
    """How many `[memory]` records lie inside no CPU call of any thread, as torch looks for them."""
    if trace.memory is None:
        return 0
    begin, end = np.sort(trace.start[roots]), np.sort(trace.start[roots] + trace.duration[roots])
    # Both ends count: what began by then, less what had ended before.
    time = trace.memory.time
    under_way = np.searchsorted(begin, time, side="right") - np.searchsorted(end, time, side="left")
    return int(np.count_nonzero(under_way == 0))


class _CallLinks:
    """Which operator each runtime call and each piece of GPU work belongs to, by External id or by containment."""

    def __init__(self, trace: Trace, on_cpu: I32, on_gpu: I32, main: int) -> None:
        self._trace = trace
        ids = trace.args.get("external_id")
        id_of: I64 = (np.zeros(len(trace)) if ids is None else ids.to_dense(len(trace), 0)).astype(np.int64)
        kind = trace.kind[on_cpu]
        is_call = kind == Kind.RUNTIME
        overhead = on_cpu[kind == Kind.OVERHEAD]
        work = on_gpu[trace.kind[on_gpu] != Kind.GPU_ANNOTATION]
        ops = on_cpu[((kind == Kind.OP) | (kind == Kind.STEP)) & (id_of[on_cpu] > 0)]
        ops = ops[~_annotation_mask(trace, ops)]
        known, op_of_id = id_of[ops], ops
        if (known[1:] < known[:-1]).any():
            order = np.argsort(known, kind="stable")
            known, op_of_id = known[order], ops[order]
        self._lane = trace.lane.copy()
        self._lane[overhead] = main
        self._uses_external_ids = self._are_operator_ids(known, op_of_id, id_of, work)
        if self._uses_external_ids:
            work = work[id_of[work] > 0]
            self._gpu_time_by_key = _SumsByKey(id_of[work], np.asarray(trace.duration[work]))
            runtime = on_cpu[is_call]
            linked_to = id_of[runtime]
            op = _lookup(known, op_of_id, linked_to)
            unlinked = runtime[linked_to <= 0]
            self._lane[unlinked] = main
            self._lane[runtime[op >= 0]] = self._assign_op_lanes(known, op_of_id, unlinked, main)[op[op >= 0]]
            interrupted = find_innermost_at(trace, ops[trace.lane[ops] == main], np.asarray(trace.start[overhead]))
            interrupted_id = np.where(interrupted >= 0, id_of[interrupted], 0)
            id_of[runtime] = 0
            id_of[unlinked] = trace.correlation[unlinked]
            id_of[overhead] = interrupted_id
            self._key = id_of
        else:
            op = find_nearest_ancestor_or_self(trace.parent, trace.kind == Kind.OP)[
                np.maximum(trace.links.launch_of[work], 0)
            ]
            good = (trace.links.launch_of[work] >= 0) & (op >= 0)
            self._gpu_time_by_key = _SumsByKey(op[good].astype(np.int64), np.asarray(trace.duration[work[good]]))
            self._key = np.arange(len(trace), dtype=np.int64)

    def _assign_op_lanes(self, known: I64, ops: I32, unlinked: I32, main: int) -> I32:
        """int32[n]: the lane that the runtime calls of each operator count on: its own, mostly.

        Where a later runtime call has the operator's id for its correlation, torch takes that one for the operator.
        """
        trace = self._trace
        lane: I32 = trace.lane.copy()
        taken = _lookup(known, ops, trace.correlation[unlinked])
        op, by = taken[taken >= 0], unlinked[taken >= 0]
        same = trace.start[by] == trace.start[op]
        later = (trace.start[by] > trace.start[op]) | (same & (trace.ordinal[by] > trace.ordinal[op]))
        lane[op[later]] = main
        return lane

    def lane_of(self, events: I32) -> I32:
        """int32[k]: the lane of the thread that a CPU call counts on."""
        lane: I32 = self._lane[events]
        return lane

    def self_gpu_time(self, events: I32) -> I64:
        """int64[k]: ns of GPU work that these CPU calls launched themselves."""
        return self._gpu_time_by_key.look_up(self._key[events])

    def _are_operator_ids(self, known: I64, ops: I32, id_of: I64, work: I32) -> bool:
        """Are External ids operators'? Judged by GPU work whose launch is known, else by torch's version."""
        trace = self._trace
        launch = trace.links.launch_of[work]
        linked = (launch >= 0) & (id_of[work] > 0)
        if not linked.any():
            return "baseTimeNanoseconds" in trace.header  # since torch 2.4
        launch = launch[linked]
        op = _lookup(known, ops, id_of[work[linked]])
        good = np.flatnonzero(op >= 0)
        op, launch = op[good], launch[good]
        begin, end = trace.start[op], trace.start[op] + trace.duration[op]
        above = (trace.lane[op] == trace.lane[launch]) & (begin <= trace.start[launch]) & (trace.start[launch] <= end)
        return bool(np.count_nonzero(above) >= _MIN_MATCH_SHARE * np.count_nonzero(linked))


class _SumsByKey:
    """Sums by key."""

    def __init__(self, keys: I64, amounts: I64) -> None:
        self._keys, inverse = np.unique(keys, return_inverse=True)
        # float64 sums are exact up to 2**53 ns: a hundred days.
        self._sums = np.bincount(inverse, weights=amounts, minlength=len(self._keys)).astype(np.int64)

    def look_up(self, keys: I64) -> I64:
        """int64[k]: the sum of each key, 0 where it has none."""
        found = np.zeros(len(keys), np.int64)
        if not len(self._keys):
            return found
        low, high = int(self._keys[0]), int(self._keys[-1])
        inside = (keys >= low) & (keys <= high)
        if high - low < _MAX_SLOTS_PER_CALL * len(keys):
            dense = np.zeros(high - low + 1, np.int64)
            dense[self._keys - low] = self._sums
            found[inside] = dense[keys[inside] - low]
            return found
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[place] == keys, self._sums[place], found)


def _lookup(known: I64, values: I32, wanted: I64) -> I32:
    """int32[k]: the value of each wanted key among the ascending `known`, -1 where it is not there."""
    if not len(known):
        return np.full(len(wanted), -1, np.int32)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where((known[place] == wanted) & (wanted > 0), values[place], -1).astype(np.int32)
