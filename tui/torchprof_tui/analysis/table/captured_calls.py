"""Add the ops that were captured for replayed kernels to the calls of a table.

A replay is one runtime call with hundreds of kernels below it. Each captured op becomes one call for each replay: below
the launch of its graph, without CPU time, with the GPU time of its kernels in that replay. Names, modules and stacks
that come from a capture end with CAPTURED.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor, sum_subtrees
from torchprof_tui.analysis.dispatch.call_sites import CallSites
from torchprof_tui.analysis.graphs.captured_ops import CapturedOps
from torchprof_tui.analysis.table.counted_calls import Calls, CapturedCalls
from torchprof_tui.analysis.table.op_args import OpArgs, concatenate_op_args, read_event_args
from torchprof_tui.trace.core.arrays import I32, I64, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import ReportChunks

CAPTURED = " (captured)"
"""Suffix of names that come from a capture."""

Factorize = Callable[[CallSites, I32], tuple[I32, list[str]]]

_MAX_NESTING = 200
"""Ops inside each other that become calls: only runaway recursion is deeper."""


def remove_mark(name: str) -> str:
    """Return the name of a captured op as the capture has it, and other names unchanged."""
    return name.removesuffix(CAPTURED)


def add_captured_calls(trace: Trace, calls: Calls, ops: CapturedOps) -> Calls:
    """Add the captured ops of all replays, between the calls on the CPU and those on the GPU."""
    parts = [_Nodes(trace, calls, ops, capture) for capture in range(len(ops.captures) + 1)]
    parts = [part for part in parts if len(part.event)]
    if not parts:
        return calls
    own = calls.cpu_call_count
    offset = own + np.cumsum([0, *(len(part.event) for part in parts)])
    added = int(offset[-1]) - own
    parent = np.concatenate(
        [calls.parent[:own], *(part.parents(first) for part, first in zip(parts, offset, strict=False))]
    )
    gpu_parent = calls.parent[own:].copy()
    source = np.full(len(calls) + added, -1, np.int32)
    captured_event = np.full(len(calls) + added, -1, np.int32)
    for part, first in zip(parts, offset.tolist(), strict=False):
        gpu_parent[part.work_call - own] = first + part.node_of_work
        source[first : first + len(part.event)] = source[part.work_call + added] = part.capture
        captured_event[first : first + len(part.event)] = part.event
        captured_event[part.work_call + added] = part.launch_of_work
    names = [*calls.names]
    launch_event = np.concatenate([calls.event[part.launch_call] for part in parts])
    zeros = np.zeros(added, np.int64)
    name = np.concatenate([_add_names(names, part.trace, part.event) for part in parts])
    start, ordinal = trace.start[launch_event], trace.ordinal[launch_event]
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
        start=insert(calls.start, start),
        cpu=insert(calls.cpu, zeros),
        self_cpu=insert(calls.self_cpu, zeros),
        gpu=insert(calls.gpu, np.concatenate([part.gpu for part in parts])),
        self_gpu=insert(calls.self_gpu, np.concatenate([part.self_gpu for part in parts])),
        parent=np.concatenate([parent, gpu_parent]).astype(np.int32),
        ordinal=insert(calls.ordinal, ordinal),
        cpu_call_count=own + added,
        captured=CapturedCalls(tuple(part_trace(trace, ops)), source, captured_event, is_op),
    )


def part_trace(trace: Trace, ops: CapturedOps) -> list[Trace]:
    """List the traces that `CapturedCalls.source` numbers: the captures, then the trace itself."""
    return [*ops.captures, trace]


class _Nodes:
    """The captured ops of one capture in all replays: one node for each replay and op. k nodes, w pieces of work.

    `event` int32[k]: the op in the capture; `launch_call` int32[k]: the call that launched the replay; `parent`
    int32[k]: node above, -1 at the top; `work_call` int64[w]: calls on the GPU; `node_of_work` int64[w];
    `launch_of_work` int32[w]: the captured runtime call.
    """

    def __init__(self, trace: Trace, calls: Calls, ops: CapturedOps, capture: int) -> None:
        self.capture = capture
        self.trace = source = ops.source_trace(trace, capture)
        replays = ops.replays
        chosen = np.flatnonzero((ops.join.capture == capture) & (ops.op >= 0))
        call_of_event = np.full(len(trace), -1, np.int64)
        call_of_event[calls.event] = np.arange(len(calls))
        chosen = chosen[call_of_event[replays.work[chosen]] >= 0]
        replay = np.repeat(np.arange(len(replays)), replays.sizes)[chosen]
        op = ops.op[chosen].astype(np.int64)
        size = len(source)
        above = _find_ops_above(source, op)
        keys = _list_nested(above, replay * size + op)
        self.event = (keys % size).astype(np.int32)
        node_replay = keys // size
        outer = above[self.event]
        at = np.searchsorted(keys, node_replay * size + np.maximum(outer, 0))
        self.parent = np.where(outer >= 0, at, -1).astype(np.int32)
        self.launch_call = call_of_event[replays.launch[node_replay]]
        self.work_call = call_of_event[replays.work[chosen]]
        self.node_of_work = np.searchsorted(keys, replay * size + op)
        self.launch_of_work = ops.join.launch[chosen]
        time = trace.duration[replays.work[chosen]]
        # float64 sums are exact up to 2**53 ns: a hundred days.
        self.self_gpu = np.bincount(self.node_of_work, weights=time, minlength=len(keys)).astype(np.int64)
        self.gpu = sum_subtrees(self.parent, self.self_gpu)

    def parents(self, first: int) -> I64:
        """Return the index of the call above each node where the nodes are calls from `first` on: int64[k]."""
        return np.where(self.parent >= 0, first + self.parent, self.launch_call)


def _find_ops_above(trace: Trace, ops: I64) -> I32:
    """Find the op around each of these ops and around those above them: int32[events], -1 for none and all others."""
    is_op = np.asarray(trace.kind == Kind.OP)
    above = np.full(len(trace), -1, np.int32)
    ops = sorted_unique(ops)
    for _ in range(_MAX_NESTING):
        above[ops] = find_nearest_ancestor(trace.parent, ops, is_op)
        ops = sorted_unique(above[ops]).astype(np.int64)
        ops = ops[ops >= 0]
        if not len(ops):
            return above
    above[ops] = -1
    return above


def _list_nested(above: I32, keys: I64) -> I64:
    """List these keys (replay times the trace's events plus op) and those of all ops above: int64[k], ascending."""
    size = max(len(above), 1)
    keys = sorted_unique(keys)
    found = [keys]
    while len(keys):
        outer = above[keys % size]
        keys = sorted_unique((keys - keys % size + outer)[outer >= 0])
        found.append(keys)
    return sorted_unique(np.concatenate(found))


def _add_names(names: list[str], trace: Trace, events: I32) -> I32:
    """Append the marked names of ops, and return the index of each: int32[k]."""
    used, inverse = np.unique(trace.name[events], return_inverse=True)
    index = {name: number for number, name in enumerate(names) if name.endswith(CAPTURED)}
    numbers = []
    for name in used.tolist():
        text = trace.names[name] + CAPTURED
        if text not in index:
            index[text] = len(names)
            names.append(text)
        numbers.append(index[text])
    return np.array(numbers, np.int32)[inverse]


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
