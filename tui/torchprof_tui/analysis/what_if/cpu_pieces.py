"""Split the CPU time of a dependency graph by what the threads were doing: a scenario changes some of the pieces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import DependencyGraph, EdgeKind
from torchprof_tui.analysis.critical_path.segments import classify_cpu
from torchprof_tui.analysis.critical_path.thread_timeline import build_timeline
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool, sorted_unique
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class CpuPieces:
    """p pieces of the edges of threads: each has one innermost event.

    `edge` int64[p]: indexes of the graph's edges, of one edge in time order; `event` int32[p]: innermost event or -1;
    `kind` uint8[p]: SegmentKind; `lane` int32[p]; `start`, `time` int64[p] ns.
    """

    edge: I64
    event: I32
    kind: U8
    lane: I32
    start: I64
    time: I64

    def __len__(self) -> int:
        return len(self.edge)


def split_cpu_time(trace: Trace, graph: DependencyGraph, host_lanes: list[int]) -> CpuPieces:
    """Split the edges of all threads. `host_lanes`: threads whose time without any event is host code."""
    start, end = graph.time[graph.source], graph.time[graph.target]
    chosen: Bool = (graph.edge_kind == EdgeKind.THREAD) & (end > start)
    lane = graph.node_lane[graph.target]
    parts = []
    for number in sorted_unique(lane[chosen]).tolist():
        edges = np.flatnonzero(chosen & (lane == number))
        timeline = build_timeline(trace, number, graph.window.start, graph.window.end)
        begin, until, event, owner = timeline.split(start[edges], end[edges])
        kind = classify_cpu(trace, event, number in host_lanes)
        lanes = np.full(len(event), number, np.int32)
        parts.append((edges[owner].astype(np.int64), event.astype(np.int32), kind, lanes, begin, until - begin))
    if not parts:
        empty = np.zeros(0, np.int64)
        return CpuPieces(empty, empty.astype(np.int32), empty.astype(np.uint8), empty.astype(np.int32), empty, empty)
    edge, event, kind, lanes, begin, time = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return CpuPieces(edge, event, kind, lanes, begin, time)
