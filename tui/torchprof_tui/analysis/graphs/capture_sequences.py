"""List what a trace of a capture, or of an eager run, says about the nodes of a graph: launches in program order.

During a capture each call that would launch work adds a node to the graph instead: the trace has the call, its op, its
shapes and Python frames, but no GPU work. ROCm writes the kernel's name and grid to the args of the call, CUDA writes
neither. In an eager run the GPU work of each call has both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool, is_in
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

_BEGIN_CAPTURE = compile_later(r"StreamBeginCapture")
_END_CAPTURE = compile_later(r"StreamEndCapture")
_NODE_CALL = compile_later(r"(Launch.*Kernel|Memcpy|Memset)", re.IGNORECASE)
_NO_NODE_CALL = compile_later(r"GraphLaunch|Graph(Add|Exec)|PointerGet", re.IGNORECASE)
_DRIVER_HELPER = compile_later(r"(memcpy|memset)\d+(?:_\w+)?$")
"""Kernels of CUDA's driver, as `memcpy32_post`: what small copies and fills become in a graph."""

_BATCH = compile_later(r"capture_(\d+)(?:_|$)")

MAX_STEPS = 4  # steps of an eager trace that are compared with a replay, the last ones: the first may be warm-up


class NodeType(IntEnum):
    """Type of a node of a graph."""

    KERNEL = 0
    COPY = 1
    FILL = 2


@record
class CaptureSequence:
    """k launches in program order that one graph may have been captured from.

    `launch` int32[k]: runtime calls of the trace. `node_type` uint8[k]. `names`: of the kernels, "" where the trace has
    none. `op_names`: of the innermost op around each call of a capture, "" for none. `grid` int64[k, 3], -1 where it is
    not recorded. `is_eager`: the launches started work. `batch`: the batch size that the capture's annotation names, -1
    for none.
    """

    launch: I32
    node_type: U8
    names: Sequence[str]
    op_names: Sequence[str]
    grid: I64
    is_eager: bool
    batch: int = -1

    def __len__(self) -> int:
        return len(self.launch)

    @property
    def has_names(self) -> bool:
        return any(self.names)


def list_captures(trace: Trace) -> list[CaptureSequence]:
    """List the captures in a trace: the calls without GPU work from each begin of a capture to its end.

    A trace without both that has more calls without work than with is taken as one capture. Raises OSError,
    LookupError where the file can no longer be read.
    """
    calls = _find_node_calls(trace)
    calls = calls[np.diff(trace.links.work_first)[calls] == 0]
    if not len(calls):
        return []
    spans = _find_capture_spans(trace)
    start = trace.start[calls]
    groups = [calls[(start >= begin) & (start <= end)] for begin, end in spans]
    if not spans and 2 * len(calls) > trace.links.launches:
        groups = [calls]
    groups = [group for group in groups if len(group)]
    if not groups:
        return []
    names = _read_kernel_names(trace, np.concatenate(groups))
    sequences = []
    for group in groups:
        batch = _find_batch(trace, int(group[0]))
        op = find_nearest_ancestor(trace.parent, group, np.asarray(trace.kind == Kind.OP))
        sequences.append(
            CaptureSequence(
                group,
                _call_types(trace, group),
                [names.get(call, "") for call in group.tolist()],
                [trace.names[trace.name[event]] if event >= 0 else "" for event in op.tolist()],
                trace.numbers_at("grid", group, shape=(3,)),
                False,
                batch,
            )
        )
    return sequences


def list_eager_runs(trace: Trace) -> list[CaptureSequence]:
    """List the eager work of a trace in the order of its launches: each of the last steps, then the whole trace."""
    is_work = is_in(trace.kind, [int(kind) for kind in GPU_WORK])
    work = np.flatnonzero(is_work & (trace.links.launch_of >= 0)).astype(np.int32)
    launch = trace.links.launch_of[work]
    is_single = np.diff(trace.links.work_first)[launch] == 1  # the others launched graphs
    work, launch = work[is_single], launch[is_single]
    order = np.lexsort((trace.start[work], trace.start[launch]))
    work, launch = work[order], launch[order]
    if not len(work):
        return []
    time = trace.start[launch]
    bounds = [(step.start, step.start + step.duration) for step in trace.steps[-MAX_STEPS:]]
    groups = [(time >= begin) & (time < end) for begin, end in bounds] if len(trace.steps) > 1 else []
    groups.append(np.ones(len(work), np.bool_))
    return [
        CaptureSequence(
            launch[group],
            node_types(trace, work[group]),
            [trace.names[name] for name in trace.name[work[group]].tolist()],
            [""] * int(np.count_nonzero(group)),
            trace.numbers_at("grid", work[group], shape=(3,)),
            True,
        )
        for group in groups
        if group.any()
    ]


def node_types(trace: Trace, work: I32) -> U8:
    """Return the type of each piece of GPU work: uint8[k]. Helper kernels that copy and fill count as such."""
    kind = trace.kind[work]
    types: U8 = np.select(
        [kind == Kind.COPY, kind == Kind.MEMSET], [NodeType.COPY, NodeType.FILL], NodeType.KERNEL
    ).astype(np.uint8)
    names, inverse = np.unique(trace.name[work], return_inverse=True)
    helper = np.full(len(names), NodeType.KERNEL, np.uint8)  # that copies or fills in place of the copy engine
    for index, name in enumerate(trace.names[name] for name in names.tolist()):
        driver = _DRIVER_HELPER.match(name)
        if (driver and driver[1] == "memcpy") or "__amd_rocclr_copyBuffer" in name:
            helper[index] = NodeType.COPY
        elif driver or "__amd_rocclr_fillBuffer" in name:
            helper[index] = NodeType.FILL
    return np.where(helper[inverse] > 0, helper[inverse], types) if len(names) else types


def _find_node_calls(trace: Trace) -> I32:
    """Find the runtime calls that launch kernels, copies or fills, by time; without calls made inside another such."""
    is_node = match_names(trace, lambda name: bool(_NODE_CALL.search(name)) and not _NO_NODE_CALL.search(name))
    mask: Bool = (trace.kind == Kind.RUNTIME) & is_node
    calls = np.flatnonzero(mask)
    parent = trace.parent[calls]
    calls = calls[(parent < 0) | ~mask[np.maximum(parent, 0)]]
    return calls[np.argsort(trace.start[calls], kind="stable")].astype(np.int32)


def _find_capture_spans(trace: Trace) -> list[tuple[int, int]]:
    """Find the times from each begin of a capture to the next end, ns."""
    times = []
    for pattern in (_BEGIN_CAPTURE, _END_CAPTURE):
        is_call = (trace.kind == Kind.RUNTIME) & match_names(trace, pattern.search)
        times.append(np.sort(trace.start[is_call]))
    begins, ends = times
    following = np.searchsorted(ends, begins)
    return [
        (int(begin), int(ends[index]))
        for begin, index in zip(begins.tolist(), following.tolist(), strict=True)
        if index < len(ends)
    ]


def _call_types(trace: Trace, calls: I32) -> U8:
    names, inverse = np.unique(trace.name[calls], return_inverse=True)
    types = [
        NodeType.COPY if "memcpy" in text else NodeType.FILL if "memset" in text else NodeType.KERNEL
        for text in (trace.names[name].lower() for name in names.tolist())
    ]
    return np.array(types, np.uint8)[inverse]


def _read_kernel_names(trace: Trace, calls: I32) -> dict[int, str]:
    """Read the names of the kernels that calls launched from their args: {} where the first calls have none."""
    if not any(_kernel_of(entry) for _, entry in read_entries(trace, calls[:_PROBED_CALLS])):
        return {}
    return {int(calls[position]): _kernel_of(entry) for position, entry in read_entries(trace, calls)}


_PROBED_CALLS = 16  # calls whose args are read to see whether a trace names kernels there


def _kernel_of(entry: object) -> str:
    args = entry.get("args") if isinstance(entry, dict) else None
    name = args.get("kernel") if isinstance(args, dict) else None
    return name if isinstance(name, str) else ""


def _find_batch(trace: Trace, call: int) -> int:
    """Find the batch size in the annotation around a call (`capture_32_FULL`); -1 for none."""
    event = int(trace.parent[call])
    while event >= 0:
        match = _BATCH.search(trace.names[trace.name[event]]) if trace.kind[event] == Kind.ANNOTATION else None
        if match:
            return int(match[1])
        event = int(trace.parent[event])
    return -1
