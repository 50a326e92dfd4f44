"""Edges of replayed graphs: literal traces as torch 2.15 writes them (`_graph_dependency_flow_events` in its export).

No real trace with recorded graph dependencies is at hand. The literal flows were compared once with what that function
returns for the same nodes, and are equal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import PID, TID, Entry, kernel, runtime, trace
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.navigation import find_graph_neighbours

FIRST_ID = 1 << 40
KERNELS = {"a": (10, 5, 7), "b": (15, 5, 7), "c": (16, 8, 8), "d": (30, 4, 7)}
EDGES = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]


def flow(phase: str, number: int, time: float, stream: int, device: int = 0) -> Entry:
    entry: dict[str, Any] = {"ph": phase, "id": number, "pid": device, "tid": stream, "ts": time}
    return {**entry, "cat": "ac2g", "name": "ac2g", **({"bp": "e"} if phase == "f" else {})}


def replay(at: float, correlation: int, edges: list[tuple[str, str]] = EDGES, first: int = FIRST_ID) -> list[Entry]:
    """A replay of four kernels on two streams; `b` begins in the same ns in which `a` ends."""
    work = [
        kernel(name, at + start, length, correlation, stream=stream, **{"graph node id": number})
        for number, (name, (start, length, stream)) in enumerate(KERNELS.items(), start=1)
    ]
    launch = [
        runtime("cudaGraphLaunch", at, 5, correlation),
        {**flow("s", correlation, at, 0), "pid": PID, "tid": TID},
        flow("f", correlation, at + 10, 7),
    ]
    arrows = []
    for number, (before, after) in enumerate(edges, start=first):
        start, length, stream = KERNELS[before]
        arrows.append(flow("s", number, at + start + length, stream))
        arrows.append(flow("f", number, at + KERNELS[after][0], KERNELS[after][2]))
    return [*launch, *work, *arrows]


def edges_of(shown: Trace) -> list[tuple[str, str]]:
    links = shown.links
    pairs = zip(links.graph_before.tolist(), links.graph_after.tolist(), strict=True)
    return sorted((shown.event(before).name, shown.event(after).name) for before, after in pairs)


def test_flows_between_kernels_are_edges_and_no_launches() -> None:
    shown = trace(*replay(0, 1))
    assert edges_of(shown) == EDGES
    launches = {shown.event(int(event)).name for event in shown.links.launch_of if event >= 0}
    assert launches == {"cudaGraphLaunch"}


def test_edges_stay_within_their_replay() -> None:
    shown = trace(*replay(0, 1), *replay(100, 2, first=FIRST_ID + 10))
    assert edges_of(shown) == sorted(EDGES * 2)
    links = shown.links
    assert (links.launch_of[links.graph_before] == links.launch_of[links.graph_after]).all()
    across = [flow("s", 5, 34, 7), flow("f", 5, 110, 7)]
    assert edges_of(trace(*replay(0, 1, []), *replay(100, 2, []), *across)) == []


def test_the_flow_of_a_launch_is_no_edge() -> None:
    assert edges_of(trace(*replay(0, 1, []))) == []


def test_damaged_edges_are_left_out() -> None:
    lost_end, lost_start = [flow("s", 7, 15, 7)], [flow("f", 8, 16, 8)]
    elsewhere = [flow("s", 9, 22.5, 7), flow("f", 9, 30, 7), flow("s", 10, 15, 99), flow("f", 10, 16, 8)]
    loop = [flow("s", 11, 34, 7), flow("f", 11, 30, 7)]
    assert edges_of(trace(*replay(0, 1, EDGES[:1]), *lost_end, *lost_start, *elsewhere, *loop)) == EDGES[:1]


def test_neighbours_of_a_kernel() -> None:
    shown = trace(*replay(0, 1))
    of = {shown.event(event).name: event for event in range(len(shown))}
    found = find_graph_neighbours(shown, of["d"])
    assert sorted(found.waits_for.tolist()) == sorted([of["b"], of["c"]])
    assert not len(found.waited_for_by)
    assert len(find_graph_neighbours(shown, of["cudaGraphLaunch"])) == 0


def test_edges_of_a_file_are_read_and_mapped(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": replay(0, 1)}))
    assert edges_of(load_trace(str(path), cache=False)) == EDGES


@given(st.lists(st.sampled_from([(a, b) for a in KERNELS for b in KERNELS if a < b]), unique=True))
def test_all_recorded_edges_are_found(edges: list[tuple[str, str]]) -> None:
    assert edges_of(trace(*replay(0, 1, edges))) == sorted(edges)
