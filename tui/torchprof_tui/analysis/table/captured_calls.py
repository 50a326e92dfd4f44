"""Add the ops that were captured for replayed kernels to the calls of a table.

A replay is one runtime call with hundreds of kernels below it. Each captured op becomes one call for each replay: below
the launch of its graph, without CPU time, with the GPU time of its kernels in that replay. Names, modules and stacks
that come from a capture end with CAPTURED.

The GPU time of a replay counts for the launch and all calls around it, those of torch's table and annotations alike. An
operator that has the External id of replayed work does not get that time a second time: it is its captured ops' own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor, sum_subtrees
from torchprof_tui.analysis.dispatch.call_sites import CallSites
from torchprof_tui.analysis.graphs.captured_nodes import (
    CAPTURED,
    list_captured_nodes,
    number_marked_names,
    select_ops,
)
from torchprof_tui.analysis.graphs.captured_ops import CapturedOps
from torchprof_tui.analysis.graphs.replay_join import find_graph_launches
from torchprof_tui.analysis.table.counted_calls import Calls, CapturedCalls, build_calls
from torchprof_tui.analysis.table.op_args import OpArgs, concatenate_op_args, read_event_args
from torchprof_tui.trace.core.arrays import I32, I64, sum_by_index
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import ReportChunks

Factorize = Callable[[CallSites, I32], tuple[I32, list[str]]]


def add_captured_calls(trace: Trace, calls: Calls, ops: CapturedOps) -> Calls:
    """Add the captured ops of all replays, between the calls on the CPU and those on the GPU."""
    call_of_event = np.full(len(trace), -1, np.int64)
    call_of_event[calls.event] = np.arange(len(calls))
    nodes = list_captured_nodes(trace, ops, select_ops)
    nodes = nodes.select_work(call_of_event[ops.replays.work[nodes.work]] >= 0)
    added = len(nodes)
    if not added:
        return calls
    own = calls.cpu_call_count
    calls = _move_launches(trace, calls, call_of_event)
    work = ops.replays.work[nodes.work]
    work_call = call_of_event[work]
    launch_event = ops.replays.launch[nodes.replay]
    # A launch that was folded into its parent is no call: that parent has the replay.
    launch_call = np.full(len(ops.replays), -1, np.int64)
    launch_call[nodes.replay[nodes.node_of_work]] = calls.parent[work_call]
    parent = np.where(nodes.parent >= 0, own + nodes.parent, launch_call[nodes.replay])
    gpu_parent = calls.parent[own:].copy()
    gpu_parent[work_call - own] = own + nodes.node_of_work
    source = np.full(len(calls) + added, -1, np.int32)
    captured_event = np.full(len(calls) + added, -1, np.int32)
    source[own : own + added], captured_event[own : own + added] = nodes.source, nodes.event
    source[work_call + added] = ops.join.capture[nodes.work]
    captured_event[work_call + added] = ops.join.launch[nodes.work]
    names = [*calls.names]
    name = number_marked_names(trace, ops, nodes, names)
    cpu_parent = np.concatenate([calls.parent[:own], parent]).astype(np.int32)
    self_gpu = _sum_launched_work(trace, ops, own + added, call_of_event, gpu_parent)
    zeros = np.zeros(added, np.int64)
    is_op = np.zeros(len(calls) + added, np.bool_)
    is_op[own : own + added] = True

    def insert(column: np.ndarray, middle: np.ndarray) -> np.ndarray:
        return np.concatenate([column[:own], middle.astype(column.dtype), column[own:]])

    return replace(
        calls,
        event=insert(calls.event, launch_event),
        name=insert(calls.name, name),
        names=names,
        on_gpu=insert(calls.on_gpu, zeros),
        annotation=insert(calls.annotation, zeros),
        start=insert(calls.start, trace.start[launch_event]),
        cpu=insert(calls.cpu, zeros),
        self_cpu=insert(calls.self_cpu, zeros),
        gpu=np.concatenate([sum_subtrees(cpu_parent, self_gpu), calls.gpu[own:]]),
        self_gpu=np.concatenate([self_gpu, calls.self_gpu[own:]]),
        parent=np.concatenate([cpu_parent, gpu_parent]).astype(np.int32),
        ordinal=insert(calls.ordinal, trace.ordinal[launch_event]),
        cpu_call_count=own + added,
        captured=CapturedCalls((*ops.captures, trace), source, captured_event, is_op),
    )


def _move_launches(trace: Trace, calls: Calls, call_of_event: I64) -> Calls:
    """Return the calls with each launch of a graph below the call that made it.

    Torch counts a launch outside of operators on the thread that ran the profiler, whatever thread made it.
    """
    launches = find_graph_launches(trace)
    launches = launches[call_of_event[launches] >= 0]
    index = call_of_event[launches]
    counted_below = calls.event[np.maximum(calls.parent[index], 0)]
    is_elsewhere = (calls.parent[index] < 0) | (trace.lane[counted_below] != trace.lane[launches])
    launches, index = launches[is_elsewhere], index[is_elsewhere]
    above = find_nearest_ancestor(trace.parent, launches, (call_of_event >= 0) & (trace.duration > 0))
    new = np.where(above >= 0, call_of_event[np.maximum(above, 0)], -1)
    parent, self_cpu = calls.parent.copy(), calls.self_cpu.copy()
    parent[index] = new
    for ends, sign in ((calls.parent[index], 1), (new, -1)):
        np.add.at(self_cpu, ends[ends >= 0], sign * calls.cpu[index[ends >= 0]])
    return replace(calls, parent=parent, self_cpu=self_cpu)


def _sum_launched_work(trace: Trace, ops: CapturedOps, size: int, call_of_event: I64, gpu_parent: I32) -> I64:
    """Sum the GPU work that each call on the CPU launched itself: int64[size] ns, the captured ops last.

    `gpu_parent` int32[g]: the call that has each call on the GPU, replayed work already below its captured op.
    """
    is_replayed = np.zeros(len(trace), np.bool_)
    is_replayed[ops.replays.work] = True
    others = build_calls(trace, is_replayed)
    own = others.cpu_call_count
    replayed = ops.replays.work[call_of_event[ops.replays.work] >= 0]
    owner = gpu_parent[call_of_event[replayed] - own]
    self_gpu = sum_by_index(owner[owner >= 0], trace.duration[replayed[owner >= 0]], size)
    self_gpu[:own] += others.self_gpu[:own]
    return self_gpu


def read_args_with_captures(trace: Trace, calls: Calls, report: ReportChunks | None = None) -> OpArgs:
    """Read the inputs of all operators among the calls, those of captured ops from the captures.

    Raises OSError, LookupError if a file is gone or changed.
    """
    captured = calls.captured
    is_own = np.asarray(trace.kind[calls.event] == Kind.OP)
    if captured is not None:
        is_own &= ~captured.is_op
    parts = [(np.flatnonzero(is_own), read_event_args(trace, calls.event[is_own], report))]
    if captured is not None:
        for number, source in enumerate(captured.traces):
            indices = np.flatnonzero(captured.is_op & (captured.source == number))
            if len(indices):
                events, inverse = np.unique(captured.event[indices], return_inverse=True)
                parts.append((indices, read_event_args(source, events, None).take(inverse)))
    return concatenate_op_args(len(calls), parts)


class CallSitesWithCaptures:
    """Call sites of all calls of a table: those of replayed kernels and captured ops from the captures."""

    def __init__(self, own: CallSites, calls: Calls) -> None:
        self._own, self._calls = own, calls
        captured = calls.captured
        self._sources = () if captured is None else tuple(CallSites(trace) for trace in captured.traces)

    def factorize_stacks(self, depth: int) -> tuple[I32, list[str]]:
        """Return (text index int32[m], texts) of all calls; see `CallSites.factorize_stacks`."""
        return self._merge(lambda sites, events: sites.factorize_stacks(events, depth))

    def factorize_modules(self) -> tuple[I32, list[str]]:
        """Return (path index int32[m], paths) of all calls; see `CallSites.factorize_modules`."""
        return self._merge(lambda sites, events: sites.factorize_modules(events))

    def _merge(self, factorize: Factorize) -> tuple[I32, list[str]]:
        index, texts = factorize(self._own, self._calls.event)
        captured = self._calls.captured
        if captured is None:
            return index, texts
        index, texts = index.copy(), [*texts]
        for number, sites in enumerate(self._sources):
            chosen = np.flatnonzero(captured.source == number)
            part_index, part_texts = factorize(sites, captured.event[chosen])
            known = {text: place for place, text in enumerate(texts)}
            places = []
            for text in part_texts:
                marked = text and text + CAPTURED
                if marked not in known:
                    known[marked] = len(texts)
                    texts.append(marked)
                places.append(known[marked])
            index[chosen] = np.array(places, np.int32)[part_index]
        return index, texts
