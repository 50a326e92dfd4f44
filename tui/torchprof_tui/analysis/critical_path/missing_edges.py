"""Say which dependencies a graph lacks, and what to record to have them."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.critical_path.build_graph import BuiltGraph
from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_WHERE = {
    EdgeKind.LAUNCH: "between the return of a launch call and the start of its GPU work",
    EdgeKind.STREAM: "between two works of a stream",
    EdgeKind.EVENT: "between an event and the work that waits for it",
    EdgeKind.EVENT_BY_ORDER: "between an event and the work that waits for it",
    EdgeKind.GRAPH: "between two works of a graph's replay",
    EdgeKind.SYNC: "between the end of GPU work and the return of the call that waits for it",
    EdgeKind.SYNC_BY_ORDER: "between the end of GPU work and the return of the call that waits for it",
}
SYNC_EVENTS_ADVICE = (
    "record cuda_sync events: profile(experimental_config=torch._C._profiler._ExperimentalConfig("
    "enable_cuda_sync_events=True))"
)
MORE_STEPS_ADVICE = "record the steps before as well: the GPU may have been busy with work that is not in the recording"


def describe_missing_edges(trace: Trace, built: BuiltGraph, earlier: int) -> tuple[tuple[str, ...], str]:
    """Describe the waits that no edge explains, longest first, and what to record; "" if nothing would help.

    `earlier`: ns of the path in which a stream was held by work from before the recording.
    """
    graph = built.graph
    waits = np.where(graph.is_binding, graph.recorded - graph.delay, 0)
    found: dict[str, tuple[int, int]] = {}
    for kind, where in _WHERE.items():
        chosen = waits[(graph.edge_kind == kind) & (waits > 0)]
        time, count = found.get(where, (0, 0))
        found[where] = time + int(chosen.sum()), count + len(chosen)
    lines = [
        f"{format_duration(time)} in {count:,} {'wait' if count == 1 else 'waits'} {where}: no recorded dependency"
        for where, (time, count) in sorted(found.items(), key=lambda each: -each[1][0])
        if time
    ]
    if earlier:
        lines.insert(0, f"{format_duration(earlier)} in which a stream did work from before the recording")
    if built.unknown_waits:
        lines.append(f"{built.unknown_waits:,} cudaStreamWaitEvent: which event they wait for was not recorded")
    if built.unknown_blocks:
        lines.append(f"{built.unknown_blocks:,} blocking calls: no GPU work that they wait for was recorded")
    if built.unlaunched:
        lines.append(f"{built.unlaunched:,} works of the GPU: their launch was not recorded")
    if graph.dropped:
        lines.append(f"{graph.dropped:,} dependencies left out: the recorded times contradict them")
    return tuple(lines), MORE_STEPS_ADVICE if earlier else _choose_advice(trace, built, waits)


def _choose_advice(trace: Trace, built: BuiltGraph, waits: I64) -> str:
    """Choose what to record, by the longest wait without a reason."""
    graph = built.graph
    starts = graph.window.work.start
    longest = int(waits.argmax())
    is_first_work = len(starts) > 0 and int(graph.time[graph.target[longest]]) == int(starts.min())
    if is_first_work or built.unlaunched:
        return MORE_STEPS_ADVICE
    return "" if bool((trace.kind == Kind.SYNC).any()) else SYNC_EVENTS_ADVICE
