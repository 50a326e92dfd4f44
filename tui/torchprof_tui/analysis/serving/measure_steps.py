"""Measure the steps of a serving engine: GPU work by its launch, waits, kernels launched by graphs, gaps."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.graphs.replay_join import find_graph_launches
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.serving.serving_steps import KINDS, NotGraphed, ServingSteps
from torchprof_tui.analysis.time.gpu_time import cover_events, work_mask
from torchprof_tui.analysis.time.host_stalls import SYNC_CALL_REGEX
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool, is_in, sorted_unique, sum_by_index
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.steps import UNKNOWN, Engine, ServingStepName, StepKind, parse_step_name
from torchprof_tui.trace.model.trace import Trace

_KEY = "serving_steps"


def get_serving_steps(trace: Trace) -> ServingSteps:
    """Return the measured steps of a trace of one process, measured at the first call and kept with the trace."""
    steps = trace.derived.get(_KEY)
    if not isinstance(steps, ServingSteps):
        steps = trace.derived[_KEY] = measure_serving_steps(trace)
    return steps


def measure_serving_steps(trace: Trace) -> ServingSteps:
    """Measure the steps of a trace of one process: one pass over its GPU work and its runtime calls."""
    found = [(step, said) for step in trace.steps if (said := step.serving) is not None]
    texts = {step.name: said for step, said in found}
    names = tuple(texts)
    code = {name: index for index, name in enumerate(names)}
    name = np.array([code[step.name] for step, _ in found], np.int32)
    event = np.array([step.event for step, _ in found], np.int32)
    start, duration = (np.asarray(column)[event].astype(np.int64) for column in (trace.start, trace.duration))
    end, lane = start + duration, np.asarray(trace.lane)[event].astype(np.int32)
    said_of_name = list(texts.values())
    kind = np.array([KINDS.index(said.kind) for said in said_of_name], np.uint8)[name]
    numbers = {field: np.array([getattr(each, field) for each in said_of_name], np.int64)[name] for field in _FIELDS}
    work = _measure_work(trace, start, end, lane)
    completion = np.maximum(end, work.end)
    following, previous = _follow_threads(lane, completion)
    begin = np.maximum(start, previous)
    is_last = following < 0
    waits = _find_waits(trace, lane) if found else {}
    busy = cover_events(trace, np.flatnonzero(work_mask(trace.kind))) if found else NO_INTERVALS
    wait = np.zeros(len(start), np.int64)
    for own_lane, waiting in waits.items():
        own_steps = lane == own_lane
        wait[own_steps] = waiting.measure_within(start[own_steps], end[own_steps])
    lead_in = _measure_lead_ins(trace, waits, busy, (start, completion), lane)
    is_eager = np.array([said.is_eager for said in said_of_name], np.bool_)[name]
    gap = np.where(is_last, UNKNOWN, np.maximum(start[following] - end, 0))
    return ServingSteps(
        engines=_name_engines(trace, said_of_name),
        names=names,
        name=name,
        event=event,
        lane=lane,
        number=np.array([step.number for step, _ in found], np.int64),
        kind=kind,
        **numbers,
        start=start,
        end=end,
        cpu_time=duration - wait,
        wait_time=wait,
        gpu_time=work.time,
        gpu_busy=work.busy,
        gpu_start=work.start,
        gpu_end=work.end,
        step_time=np.maximum(completion - begin - lead_in, 0),
        kernels=work.kernels,
        graph_kernels=work.graph_kernels,
        graph_launches=work.graph_launches,
        not_graphed=_explain_launches(kind, numbers["batch"], is_eager, work),
        lead_in=lead_in,
        pause=np.where(is_last, 0, np.maximum(start[following] - completion, 0)),
        gap=gap,
        gap_idle=_measure_idle(busy, end, gap),
    )


_FIELDS = ("batch", "context", "generation", "tokens", "prefill_tokens", "decode_tokens", "kv_length", "padded_batch")


def _name_engines(trace: Trace, said: list[ServingStepName]) -> tuple[str, ...]:
    """Name the engines: other engines write vLLM's form too, around annotations of their own."""
    if not said:
        return ()
    used = sorted_unique(trace.name[trace.kind == Kind.ANNOTATION]).tolist()
    inner = [parse_step_name(trace.names[name]) for name in used]
    engines = dict.fromkeys(each.engine for each in (*said, *inner) if each is not None)
    return tuple(engine.value for engine in engines if engine is not Engine.VLLM or len(engines) == 1)


def _follow_threads(lane: I32, completion: I64) -> tuple[I64, I64]:
    """Find the next step on the thread of each, -1 for the last, and when all before it were complete: int64[s] each.

    The first step of a thread has the least integer.
    """
    following = np.full(len(lane), -1, np.int64)
    order = np.argsort(lane, kind="stable")
    is_same = np.diff(lane[order]) == 0
    following[order[:-1][is_same]] = order[1:][is_same]
    previous = np.full(len(lane), np.iinfo(np.int64).min)
    for index, later in enumerate(following.tolist()):
        if later >= 0:
            previous[later] = max(int(previous[index]), int(completion[index]))
    return following, previous


def assign_steps(start: I64, end: I64, lane: I32, call_lane: I32, time: I64) -> I64:
    """Assign calls, by thread and time, to the step in which they started: int64[k] index, -1 for none.

    A call on a thread with steps belongs to that thread's, one on another thread to the step that started last.
    """
    step = _step_at(np.arange(len(start)), start, end, time)
    lanes = sorted_unique(lane)
    if len(lanes) > 1:
        for own_lane in lanes.tolist():
            is_own = call_lane == own_lane
            step[is_own] = _step_at(np.flatnonzero(lane == own_lane), start, end, time[is_own])
    return step


def _step_at(steps: I64, start: I64, end: I64, time: I64) -> I64:
    """Find which of `steps`, ascending by start, contains each time: int64[k], -1 for none."""
    if not len(steps):
        return np.full(len(time), -1, np.int64)
    index = steps[np.maximum(start[steps].searchsorted(time, side="right") - 1, 0)]
    is_inside = (time >= start[index]) & (time < np.maximum(end, start + 1)[index])
    return np.where(is_inside, index, -1)


class _Work:
    """Sums over the GPU work launched in each of s steps: int64[s] each; `start`, `end` UNKNOWN without work."""

    def __init__(self, size: int) -> None:
        zeros = [np.zeros(size, np.int64) for _ in range(5)]
        self.time, self.busy, self.kernels, self.graph_kernels, self.graph_launches = zeros
        self.start, self.end = (np.full(size, UNKNOWN, np.int64) for _ in range(2))


def find_launched_work(trace: Trace, start: I64, end: I64, lane: I32) -> tuple[I64, I64]:
    """Find the GPU work with a launch in a step: (rows int64[k], step int64[k])."""
    rows = np.flatnonzero(is_in(trace.kind, [int(kind) for kind in GPU_WORK]) & (trace.links.launch_of >= 0))
    launch = trace.links.launch_of[rows]
    step = assign_steps(start, end, lane, np.asarray(trace.lane[launch]), np.asarray(trace.start[launch]))
    return rows[step >= 0], step[step >= 0]


def _measure_work(trace: Trace, start: I64, end: I64, lane: I32) -> _Work:
    size = len(start)
    measured = _Work(size)
    if not size:
        return measured
    rows, step = find_launched_work(trace, start, end, lane)
    graph_launches = find_graph_launches(trace)
    work_start, duration = np.asarray(trace.start[rows]), np.asarray(trace.duration[rows])
    is_kernel = is_in(trace.kind[rows], (int(Kind.KERNEL), int(Kind.COLLECTIVE)))
    in_graph = is_kernel & is_in(trace.links.launch_of[rows], graph_launches)
    measured.time = sum_by_index(step, duration, size)
    measured.kernels = np.bincount(step[is_kernel], minlength=size)
    measured.graph_kernels = np.bincount(step[in_graph], minlength=size)
    measured.busy = sum_by_index(step, _measure_uncovered(step, work_start, work_start + duration), size)
    first = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(first, step, work_start)
    np.maximum.at(measured.end, step, work_start + duration)
    measured.start = np.where(measured.end == UNKNOWN, UNKNOWN, first)
    launched = assign_steps(
        start, end, lane, np.asarray(trace.lane[graph_launches]), np.asarray(trace.start[graph_launches])
    )
    measured.graph_launches = np.bincount(launched[launched >= 0], minlength=size)
    return measured


def _measure_uncovered(step: I64, start: I64, end: I64) -> I64:
    """Measure how much of each piece of work no earlier piece of the same step covers: int64[k] ns, in its order."""
    size = len(step)
    order = np.lexsort((start, step))
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(size, np.int64)
    rank[by_end] = np.arange(size)
    base = step[order] * size
    reach = end[by_end][np.maximum.accumulate(base + rank[order]) - base] if size else end
    covered = np.append(np.iinfo(np.int64).min, reach[:-1])
    is_first = np.ones(size, np.bool_)
    is_first[1:] = np.diff(step[order]) != 0
    covered = np.where(is_first, start[order], covered[:size])
    uncovered = np.empty(size, np.int64)
    uncovered[order] = np.maximum(end[order] - np.maximum(start[order], covered), 0)
    return uncovered


def _find_waits(trace: Trace, lane: I32) -> dict[int, Intervals]:
    """Find when the threads of steps were in calls that wait for the GPU, by lane."""
    waits = re.compile(SYNC_CALL_REGEX)
    is_wait = match_names(trace, lambda name: waits.match(name) is not None) & (trace.kind == Kind.RUNTIME)
    lanes = [(number, trace.lanes[number]) for number in sorted_unique(lane).tolist()]
    return {
        number: cover_events(trace, each.first + np.flatnonzero(is_wait[each.first : each.last]))
        for number, each in lanes
    }


def _measure_lead_ins(
    trace: Trace, waits: dict[int, Intervals], busy: Intervals, bounds: tuple[I64, I64], lane: I32
) -> I64:
    """Measure how long the first step of each thread waited for GPU work that was not recorded: int64[s] ns.

    That is while no recorded work ran, and the thread was in a call that waits for the GPU, or the first work that it
    launched was queued. `bounds`: start and completion of each step.
    """
    lead_in = np.zeros(len(lane), np.int64)
    if not len(busy):
        return lead_in
    for own_lane, waiting in waits.items():
        first = int(np.argmax(lane == own_lane))
        start, completion = (int(bound[first]) for bound in bounds)
        only = slice(first, first + 1)
        rows, _ = find_launched_work(trace, bounds[0][only], bounds[1][only], lane[only])
        unrecorded = waiting.clip(start, completion)
        if len(rows):
            earliest = int(rows[np.argmin(trace.start[rows])])
            launch = int(trace.links.launch_of[earliest])
            launched = int(trace.start[launch]) + int(trace.duration[launch])
            unrecorded = unrecorded | union(np.array([launched]), np.asarray(trace.start[earliest : earliest + 1]))
        lead_in[first] = (unrecorded - busy).total
    return lead_in


def _measure_idle(busy: Intervals, end: I64, gap: I64) -> I64:
    """Measure in how much of the gap after each step no GPU worked: int64[s] ns, UNKNOWN where that is not known."""
    if not len(busy):
        return np.full(len(end), UNKNOWN, np.int64)
    length = np.maximum(gap, 0)
    idle = length - busy.measure_within(end, end + length)
    return np.where(gap < 0, UNKNOWN, idle)


def _explain_launches(kind: U8, batch: I64, is_eager: Bool, work: _Work) -> U8:
    """Say why kernels of each step were not launched by a graph: uint8[s], a NotGraphed."""
    replays, decodes = work.graph_launches > 0, kind == KINDS.index(StepKind.DECODE)
    is_graphed_batch = is_in(batch, batch[replays & decodes])
    reasons = (
        (work.kernels == 0, NotGraphed.NO_KERNELS),
        (work.kernels == work.graph_kernels, NotGraphed.ALL_IN_GRAPHS),
        (work.graph_launches == 1, NotGraphed.AROUND_GRAPH),
        (work.graph_launches > 1, NotGraphed.BETWEEN_GRAPHS),
        (is_eager, NotGraphed.SAID_EAGER),
        (np.full(len(kind), not replays.any()), NotGraphed.NO_GRAPHS),
        (~decodes, NotGraphed.PROMPTS),
        (is_graphed_batch, NotGraphed.SAME_BATCH),
    )
    return np.select(
        [mask for mask, _ in reasons], [int(reason) for _, reason in reasons], int(NotGraphed.OTHER_BATCH)
    ).astype(np.uint8)
