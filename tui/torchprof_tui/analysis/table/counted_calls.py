"""Select the calls that the profiler's table counts, with their containment and the GPU work that they launched.

`prof.key_averages()` is made from the profiler's own records, not from the file, but by rules for which the file has
enough data (torch 2.11, `torch/autograd/profiler.py::_parse_kineto_results`, `profiler_util.py::EventList`):

* Operators, annotations, runtime calls and the profiler's overhead are calls on the CPU; kernels, copies, fills, waits
  of streams and the spans of annotations are calls on the GPU. Python frames are not counted.
* A runtime call counts on the thread of the operator that it is linked to; overhead, and a runtime call without an
  operator, on the thread that ran the profiler.
* On each thread a call's parent is the innermost earlier one that contains it whole. A call that a later one crosses
  contains no further calls.
* A call that is its parent's only child and has its name is folded into it: the parent gets its children and GPU work.
* The GPU work of a call is that with its External id. Totals add that of its children.

Some consequences are surprising and are kept, because the table must equal the one that torch prints. Overhead has the
id of the operator that it interrupts, so the operator's GPU work counts for both. A runtime call without an operator
has its correlation as its id; if that is also some operator's id, the operator's GPU work counts for the call as well,
and the operator's runtime calls count on the call's thread. Where a call is folded, the GPU work that its parent
launched itself is dropped. Where overhead crosses annotations, the self time around them may be negative. Older traces,
whose External ids are not operators', get their GPU work by containment.

Vectorised.

`parent` arrays are int32[n], -1 at the top; a parent precedes its children.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import (
    find_nearest_ancestor,
    find_nearest_ancestor_or_self,
    follow_to_fixpoint,
    sum_subtrees,
)
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.trace.build import nesting
from torchprof_tui.trace.core.arrays import I32, I64, Bool, is_in, sorted_unique, sum_by_index
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import SparseColumn, Trace


def find_parents(first: I64, start: I64, duration: I64) -> I32:
    """Find the innermost earlier call that fully contains each: int32[n].

    A call that a later one crosses contains no calls after that. `first` int64[threads + 1] bounds the threads; on
    each, calls are sorted by start, longest first. A call without a duration contains none, and a call that begins at
    another's end is not inside it.
    """
    parents = nesting.find_parents(first, start, duration)
    # `nesting.find_parents` counts no duration as 1 ns, so two such calls at one time are parent and child there.
    while True:
        without_duration = np.flatnonzero((parents >= 0) & (duration[parents] == 0))
        if not len(without_duration):
            return parents
        parents[without_duration] = parents[parents[without_duration]]


def sort_by_thread(lane: I32, start: I64, duration: I64, ordinal: I32) -> tuple[I64, I64]:
    """Sort calls by lane, start, longest first, then ordinal; return (order int64[n], first int64[threads + 1]).

    Meant for calls that are sorted already except for a few whose lane was changed: those are merged in.
    """
    order = np.argsort(lane, kind="stable")
    lane, sorted_start = lane[order], start[order]
    first = np.append(np.flatnonzero(np.diff(lane, prepend=-1)), len(lane)).astype(np.int64)
    out_of_order = np.flatnonzero((lane[1:] == lane[:-1]) & (sorted_start[1:] < sorted_start[:-1]))
    for thread in sorted_unique(np.searchsorted(first, out_of_order, side="right") - 1).tolist():
        rows = slice(int(first[thread]), int(first[thread + 1]))
        order[rows] = order[rows][np.argsort(sorted_start[rows], kind="stable")]
        sorted_start[rows] = start[order[rows]]
    tied = (lane[1:] == lane[:-1]) & (sorted_start[1:] == sorted_start[:-1])
    previous, following = order[:-1][tied], order[1:][tied]
    is_longer = duration[following] > duration[previous]
    if (is_longer | ((duration[following] == duration[previous]) & (ordinal[following] < ordinal[previous]))).any():
        tie_group = np.concatenate([[0], np.cumsum(~tied)])
        tied_positions = np.flatnonzero(np.concatenate([[False], tied]) | np.concatenate([tied, [False]]))
        tied_calls = order[tied_positions]
        order[tied_positions] = tied_calls[
            np.lexsort((ordinal[tied_calls], -duration[tied_calls], tie_group[tied_positions]))
        ]
    return order, first


def fold_only_children(parent: I32, name: I32, self_time: I64) -> tuple[Bool, I32, I64]:
    """Fold each call that is its parent's only child and has its name into it: (kept bool[n], parent, self time).

    `parent` int32[k] and self time int64[k] are those of the kept calls, in order. A call that others were folded into
    gets the children and the self time of the innermost of them.
    """
    parent_or_zero = np.maximum(parent, 0)
    child_count = np.bincount(parent[parent >= 0], minlength=len(parent))
    is_folded = (parent >= 0) & (name == name[parent_or_zero]) & (child_count[parent_or_zero] == 1)
    if not is_folded.any():
        return ~is_folded, parent, self_time
    fold_root = follow_to_fixpoint(np.where(is_folded, parent, np.arange(len(parent), dtype=np.int32)))
    has_folded_child = np.zeros(len(parent), np.bool_)
    has_folded_child[parent[is_folded]] = True
    innermost = np.flatnonzero(is_folded & ~has_folded_child)
    self_time = self_time.copy()
    self_time[fold_root[innermost]] = self_time[innermost]
    kept = ~is_folded
    new_index = np.cumsum(kept, dtype=np.int32) - 1
    parent = np.where(parent >= 0, new_index[fold_root[parent_or_zero]], -1).astype(np.int32)
    return kept, parent[kept], self_time[kept]


_BLOCK_SIZE = 1024  # events checked per block, backwards: the running event is usually among the last few dozen


def find_innermost_at(trace: Trace, rows: I32, times: I64) -> I32:
    """Find the event among `rows` that is running at each time and started last: int32[k]; -1 for none.

    `rows` are ascending, of one lane. Searches backwards for each of the few times; crossing events are handled.
    """
    innermost = np.full(len(times), -1, np.int32)
    starts = trace.start[rows]
    ends = starts + trace.duration[rows]
    latest_end = np.maximum.accumulate(ends)
    for index, time in enumerate(times.tolist()):
        last = int(np.searchsorted(starts, time, side="right"))
        while last > 0 and latest_end[last - 1] > time:
            first = max(last - _BLOCK_SIZE, 0)
            running = np.flatnonzero(ends[first:last] > time)
            if len(running):
                innermost[index] = rows[first + int(running[-1])]
                break
            last = first
    return innermost


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
"""Names that `profiler_util.py::_filter_name` leaves out."""

_MIN_MATCH_SHARE = 0.99  # share of linked GPU events whose External id must be that of an operator around their launch
_MAX_SLOTS_PER_CALL = 16  # sums are looked up in a dense array if it has at most this many slots per call
_SPAN_PADDING = 1  # ns by which Kineto widens the span of an annotation on the GPU at both ends (output_json.cpp)


@record(slots=False)
class CapturedCalls:
    """What m calls have from captures; see `captured_calls`.

    `source` int32[m]: index into `traces`, -1 for none. `event` int32[m]: the row there: of a captured op, or of the
    captured launch of a replayed kernel. `is_op` bool[m]: the call is a captured op, and its own `event` is the launch
    of the graph.
    """

    traces: tuple[Trace, ...]
    source: I32
    event: I32
    is_op: Bool


@record(slots=False)
class Calls:
    """m calls: first those on the CPU by thread and start, then those on the GPU in the trace's order. Times ns.

    `parent` is an index into these columns, -1 for none. The parent of a call on the GPU is the innermost CPU call
    around its launch, so that walking up works for both; no CPU time is summed that way.
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
    ordinal: I32  # in the file: torch's order of calls that begin and end together
    cpu_call_count: int
    top_level_memory_records: int
    """`[memory]` records outside of all CPU calls: a row of their own in torch's table."""
    captured: CapturedCalls | None = None

    def __len__(self) -> int:
        return len(self.event)


def build_calls(trace: Trace, left_out: Bool | None = None) -> Calls:
    """Build the calls of a trace, in a few passes over its columns: do it once and keep the result.

    `left_out` bool[n]: GPU work that counts for no operator, though it has its External id.
    """
    names, code = _merge_step_names(trace.names)
    is_counted = ~match_names(trace, _IGNORED_NAMES.__contains__)
    # In a trace that torch did not write, every event on a thread is a call
    kinds: tuple[Kind, ...] = (Kind.STEP, Kind.ANNOTATION, Kind.OP, Kind.RUNTIME, Kind.OVERHEAD)
    kinds = kinds if trace.format == "kineto" else (*kinds, Kind.OTHER)
    on_cpu = np.flatnonzero(is_in(trace.kind, kinds) & is_counted).astype(np.int32)
    on_gpu = np.flatnonzero(is_in(trace.kind, _GPU_KINDS) & is_counted).astype(np.int32)

    main_lane = find_main_lane(trace)
    links = _CallLinks(trace, on_cpu, on_gpu, main_lane, left_out)
    order, first = sort_by_thread(
        links.lane[on_cpu], trace.start[on_cpu], trace.duration[on_cpu], trace.ordinal[on_cpu]
    )
    on_cpu = on_cpu[order]
    start, duration = trace.start[on_cpu], trace.duration[on_cpu]
    parent = find_parents(first, start, duration)
    name = code[trace.name[on_cpu]]
    self_gpu = _sum_by_key(*links.gpu_time, links.key[on_cpu])

    kept, parent, self_gpu = fold_only_children(parent, name, self_gpu)
    on_cpu, name, duration = on_cpu[kept], name[kept], duration[kept]
    has_parent = np.flatnonzero(parent >= 0)
    child_time = sum_by_index(parent[has_parent], duration[has_parent], len(parent))

    gpu_duration, gpu_start = np.asarray(trace.duration[on_gpu]), np.asarray(trace.start[on_gpu])
    if "baseTimeNanoseconds" in trace.header:  # earlier traces use µs and widen spans differently
        is_padded = (trace.kind[on_gpu] == Kind.GPU_ANNOTATION) & (gpu_duration >= 2 * _SPAN_PADDING)
        gpu_duration = gpu_duration - 2 * _SPAN_PADDING * is_padded
        gpu_start = gpu_start + _SPAN_PADDING * is_padded
    zeros = np.zeros(len(on_gpu), np.int64)
    event = np.concatenate([on_cpu, on_gpu])
    return Calls(
        event=event,
        name=np.concatenate([name, code[trace.name[on_gpu]]]),
        names=names,
        on_gpu=np.arange(len(event)) >= len(on_cpu),
        annotation=_annotation_mask(trace, event),
        start=np.concatenate([trace.start[on_cpu], gpu_start]),
        cpu=np.concatenate([duration, zeros]),
        self_cpu=np.concatenate([duration - child_time, zeros]),
        gpu=np.concatenate([sum_subtrees(parent, self_gpu), gpu_duration]),
        self_gpu=np.concatenate([self_gpu, gpu_duration]),
        parent=np.concatenate([parent, _find_launching_calls(trace, on_cpu, on_gpu)]),
        ordinal=trace.ordinal[event],
        cpu_call_count=len(on_cpu),
        top_level_memory_records=_count_top_level_memory(trace, on_cpu[parent < 0]),
    )


_GPU_KINDS = (*GPU_WORK, Kind.SYNC, Kind.GPU_ANNOTATION)


def _annotation_mask(trace: Trace, events: I32) -> Bool:
    """Return which events are annotations: bool[k]. By category, because torch 1.9 recorded steps as operators."""
    is_annotation = [category.lower() in ("user_annotation", "gpu_user_annotation") for category in trace.categories]
    mask: Bool = np.array(is_annotation or [False], np.bool_)[trace.category[events]]
    return mask


def _merge_step_names(names: list[str]) -> tuple[list[str], I32]:
    """Return (the names with one for all steps, int32: the index there of each of the trace's names)."""
    code = np.arange(len(names), dtype=np.int32)
    step_indices = [index for index, name in enumerate(names) if name.startswith(STEP_PREFIX)]
    if not step_indices:
        return names, code
    code[step_indices] = len(names)
    return [*names, STEP_NAME], code


def find_main_lane(trace: Trace) -> int:
    """Find the lane of the thread that ran the profiler: that of the steps, else the process's first, else lane 0."""
    if trace.profiler_steps:
        return int(trace.lane[trace.profiler_steps[0].event])
    threads = [number for number, lane in enumerate(trace.lanes) if lane.role is Role.THREAD and len(lane)]
    # On Linux the tid of a process's first thread is its pid.
    main_threads = [number for number in threads if trace.lanes[number].tid == trace.lanes[number].pid]
    return next(iter([*main_threads, *threads]), 0)


def _find_launching_calls(trace: Trace, on_cpu: I32, on_gpu: I32) -> I32:
    """Find the index in `on_cpu` of the innermost call around each GPU event's launch: int32[g]; -1 for none."""
    call_index = np.full(len(trace), -1, np.int32)
    call_index[on_cpu] = np.arange(len(on_cpu), dtype=np.int32)
    launching_event: I32 = trace.links.launch_of[on_gpu]
    # A launch is a call itself, except where it was folded into its parent.
    not_calls = np.flatnonzero((launching_event >= 0) & (call_index[launching_event] < 0))
    if len(not_calls):
        launching_event[not_calls] = find_nearest_ancestor(trace.parent, launching_event[not_calls], call_index >= 0)
    return np.where(launching_event >= 0, call_index[launching_event], np.int32(-1)).astype(np.int32)


def _count_top_level_memory(trace: Trace, roots: I32) -> int:
    """Count the `[memory]` records outside of all CPU calls of any thread, by torch's rule."""
    if trace.memory is None:
        return 0
    begin, end = np.sort(trace.start[roots]), np.sort(trace.start[roots] + trace.duration[roots])
    # Both ends are inclusive: calls started by then, minus calls ended before.
    time = trace.memory.time
    running = np.searchsorted(begin, time, side="right") - np.searchsorted(end, time, side="left")
    return int(np.count_nonzero(running == 0))


class _CallLinks:
    """The operator that each runtime call and each piece of GPU work belongs to, by External id or by containment.

    `lane` int32[n]: of the thread on which a CPU call counts. `key` int64[n]: of each call among those of the work that
    it launched itself; `gpu_time`: the keys of all work, and its ns.
    """

    def __init__(self, trace: Trace, on_cpu: I32, on_gpu: I32, main_lane: int, left_out: Bool | None) -> None:
        self._trace = trace
        ids = trace.args.get("external_id")
        id_of: I64 = (np.zeros(len(trace)) if ids is None else ids.to_dense(len(trace), 0)).astype(np.int64)
        kind = trace.kind[on_cpu]
        is_call = kind == Kind.RUNTIME
        overhead = on_cpu[kind == Kind.OVERHEAD]
        work = on_gpu[trace.kind[on_gpu] != Kind.GPU_ANNOTATION]
        ops = on_cpu[((kind == Kind.OP) | (kind == Kind.STEP)) & (id_of[on_cpu] > 0)]
        ops = ops[~_annotation_mask(trace, ops)]
        op_ids, id_ops = id_of[ops], ops
        if (op_ids[1:] < op_ids[:-1]).any():
            order = np.argsort(op_ids, kind="stable")
            op_ids, id_ops = op_ids[order], ops[order]
        self.lane: I32 = trace.lane.copy()
        self.lane[overhead] = main_lane
        uses_external_ids = self._are_operator_ids(op_ids, id_ops, id_of, work)
        work = work if left_out is None else work[~left_out[work]]
        if uses_external_ids:
            work = work[id_of[work] > 0]
            self.gpu_time = (id_of[work], np.asarray(trace.duration[work]))
            runtime = on_cpu[is_call]
            runtime_ids = id_of[runtime]
            op_of_call = _lookup(op_ids, id_ops, runtime_ids)
            unlinked = runtime[runtime_ids <= 0]
            self.lane[unlinked] = main_lane
            self.lane[runtime[op_of_call >= 0]] = self._assign_op_lanes(op_ids, id_ops, unlinked, main_lane)[
                op_of_call[op_of_call >= 0]
            ]
            interrupted = find_innermost_at(trace, ops[trace.lane[ops] == main_lane], np.asarray(trace.start[overhead]))
            interrupted_id = np.where(interrupted >= 0, id_of[interrupted], 0)
            id_of[runtime] = 0
            id_of[unlinked] = trace.correlation[unlinked]
            id_of[overhead] = interrupted_id
            self.key = id_of
        else:
            op_of_work = find_nearest_ancestor_or_self(trace.parent, trace.kind == Kind.OP)[
                np.maximum(trace.links.launch_of[work], 0)
            ]
            has_op = (trace.links.launch_of[work] >= 0) & (op_of_work >= 0)
            self.gpu_time = (op_of_work[has_op].astype(np.int64), np.asarray(trace.duration[work[has_op]]))
            self.key = np.arange(len(trace), dtype=np.int64)

    def _assign_op_lanes(self, op_ids: I64, ops: I32, unlinked: I32, main_lane: int) -> I32:
        """Assign the lane on which the runtime calls of each operator count, usually its own: int32[n].

        Where a later runtime call has the operator's id as its correlation, torch mistakes that call for the operator.
        """
        trace = self._trace
        lane: I32 = trace.lane.copy()
        op_of_call = _lookup(op_ids, ops, trace.correlation[unlinked])
        taken_ops, calls = op_of_call[op_of_call >= 0], unlinked[op_of_call >= 0]
        same_start = trace.start[calls] == trace.start[taken_ops]
        is_later = (trace.start[calls] > trace.start[taken_ops]) | (
            same_start & (trace.ordinal[calls] > trace.ordinal[taken_ops])
        )
        lane[taken_ops[is_later]] = main_lane
        return lane

    def _are_operator_ids(self, op_ids: I64, ops: I32, id_of: I64, work: I32) -> bool:
        """Decide whether External ids are operators', by GPU work with a known launch, else by torch's version."""
        trace = self._trace
        launch = trace.links.launch_of[work]
        is_linked = (launch >= 0) & (id_of[work] > 0)
        if not is_linked.any():
            return "baseTimeNanoseconds" in trace.header  # since torch 2.4
        launch = launch[is_linked]
        op_of_work = _lookup(op_ids, ops, id_of[work[is_linked]])
        known_ops = np.flatnonzero(op_of_work >= 0)
        op_of_work, launch = op_of_work[known_ops], launch[known_ops]
        begin, end = trace.start[op_of_work], trace.start[op_of_work] + trace.duration[op_of_work]
        is_above = (
            (trace.lane[op_of_work] == trace.lane[launch])
            & (begin <= trace.start[launch])
            & (trace.start[launch] <= end)
        )
        return bool(np.count_nonzero(is_above) >= _MIN_MATCH_SHARE * np.count_nonzero(is_linked))


def _sum_by_key(keys: I64, amounts: I64, wanted: I64) -> I64:
    """Sum the amounts that have each wanted key, 0 where none has: int64[k]."""
    distinct, inverse = np.unique(keys, return_inverse=True)
    found = np.zeros(len(wanted), np.int64)
    if not len(distinct):
        return found
    sums = sum_by_index(inverse, amounts, len(distinct))
    low, high = int(distinct[0]), int(distinct[-1])
    if high - low < _MAX_SLOTS_PER_CALL * len(wanted):
        dense = np.zeros(high - low + 1, np.int64)
        dense[distinct - low] = sums
        inside = (wanted >= low) & (wanted <= high)
        found[inside] = dense[wanted[inside] - low]
        return found
    index = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
    return np.where(distinct[index] == wanted, sums[index], found)


def _lookup(keys: I64, values: I32, wanted: I64) -> I32:
    """Look up the value of each wanted key > 0 among the ascending `keys`: int32[k]; -1 where it is missing."""
    return np.where(wanted > 0, SparseColumn(keys, values).values_at(wanted), -1).astype(np.int32)
