"""Files that torch 2.15 wrote: its Python export beside Kineto's file, and its cuspy backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.paths import FIXTURES
from tests.helpers.stored_traces import save_trace
from tests.helpers.trace_builder import trace as build_literal
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.storage.trace_store import open_trace

FOLDER = FIXTURES / "torch_2_15"


def read(name: str, folder: Path, **options: Any) -> Trace:
    folder.mkdir(exist_ok=True)
    return build_trace(decode_trace(open_source(str(FOLDER / f"{name}.json.gz")), folder, **options), name)


def list_events(trace: Trace) -> list[tuple[Any, ...]]:
    """Everything that the Python export keeps of each event, sorted: it writes the events in another order."""
    lanes = [trace.lanes[lane].tid for lane in trace.lane.tolist()]
    names = [trace.names[code] for code in trace.name.tolist()]
    times = zip(trace.start.tolist(), trace.duration.tolist(), trace.kind.tolist(), strict=True)
    return sorted(
        (lane, *time, name.replace("\\", "/"))
        for lane, time, name in zip(lanes, times, names, strict=True)
        if "profiler" not in name
    )


@pytest.mark.parametrize("use_templates", [False, True])
def test_the_python_export_has_the_events_of_kinetos_file(tmp_path: Path, use_templates: bool) -> None:
    kineto = read("kineto", tmp_path / "a", use_templates=False)
    export = read("python_export", tmp_path / "b", use_templates=use_templates)
    shown = [event for event in list_events(kineto) if event[0] not in ("marks", "spans")]
    assert [event for event in list_events(export) if event[0] not in ("marks", "spans")] == shown
    assert len(shown) > 200
    for name in ("external_id", "sequence", "python_id", "python_parent"):
        assert sorted(export.args[name].values.tolist()) == sorted(kineto.args[name].values.tolist())
    assert export.memory is not None
    assert kineto.memory is not None
    assert np.array_equal(export.memory.bytes, kineto.memory.bytes)
    assert not export.problems


@pytest.fixture(scope="module")
def cuspy(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return read("cuspy", tmp_path_factory.mktemp("cuspy"))


def test_counters_of_cuspy_are_lanes_with_units(cuspy: Trace) -> None:
    counters = [lane for lane in cuspy.lanes if lane.role is Role.COUNTER]
    assert {lane.group for lane in counters} == {"GPU 0 Counters"}
    assert [lane.label for lane in counters] == [
        "Power (W)",
        "Temperature (C)",
        "SM Clock (MHz)",
        "Memory Clock (MHz)",
        "SM Active (%)",
        "HBM BW (%)",
        "pcie__read_bytes.sum",
        "Cycles (Current Kernel)",
    ]
    power, cycles = cuspy.counters[0], cuspy.counters[-1]
    assert (len(power.values), power.values[:2].tolist()) == (100, [312.125, 312.875])
    assert len(cycles.values) == np.count_nonzero(cuspy.kind == Kind.KERNEL) == 120


def test_every_kernel_of_cuspy_has_its_launch_on_one_stream(cuspy: Trace) -> None:
    kernels = np.flatnonzero(cuspy.kind == Kind.KERNEL)
    launches = cuspy.links.launch_of[kernels]
    assert (launches >= 0).all()
    assert {cuspy.names[code] for code in cuspy.name[launches].tolist()} == {"cudaGraphLaunch"}
    assert {(lane.label, lane.group) for lane in cuspy.lanes if lane.role is Role.STREAM} == {("stream 7", "GPU 0")}


def test_event_and_host_nodes_are_on_the_gpu_and_no_work(cuspy: Trace) -> None:
    nodes = [event for event in range(len(cuspy)) if cuspy.kind[event] == Kind.SYNC]
    assert {cuspy.event(event).name for event in nodes} == {"EventRecord", "HostNode", "HostNode: cb"}
    assert {cuspy.lanes[cuspy.lane[event]].group for event in nodes} == {"GPU 0"}


def test_graph_dependencies_are_pairs_of_nodes_of_one_replay(cuspy: Trace) -> None:
    before, after = cuspy.links.graph_before, cuspy.links.graph_after
    node = cuspy.args["graph_node"]
    pairs = list(zip(node.values_at(before).tolist(), node.values_at(after).tolist(), strict=True))
    per_replay = 24
    expected = [(k, k + 1) for k in range(1, per_replay)] + [(1, k + 1) for k in range(2, per_replay)]
    assert sorted(pairs) == sorted(expected * 5)
    assert np.array_equal(cuspy.correlation[before], cuspy.correlation[after])
    assert (cuspy.start[before] + cuspy.duration[before] <= cuspy.start[after]).all()


def test_graph_dependencies_are_stored(cuspy: Trace, tmp_path: Path) -> None:
    save_trace(cuspy, tmp_path)
    stored = open_trace(tmp_path)
    assert np.array_equal(stored.links.graph_before, cuspy.links.graph_before)
    assert np.array_equal(stored.links.graph_after, cuspy.links.graph_after)


def test_flows_of_launches_are_no_dependencies() -> None:
    flow = {"cat": "ac2g", "name": "ac2g"}
    work = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 5}
    entries = [
        {**work, "ts": 10, "args": {"stream": 7, "device": 0, "correlation": 4}},
        {**work, "ts": 20, "args": {"stream": 7, "device": 0, "correlation": 4}},
        {"ph": "s", "id": 4, "pid": 0, "tid": 7, "ts": 15, **flow},
        {"ph": "f", "id": 4, "pid": 0, "tid": 7, "ts": 20, "bp": "e", **flow},
        {"ph": "s", "id": 1 << 40, "pid": 0, "tid": 7, "ts": 16, **flow},  # no node ends there
        {"ph": "f", "id": 1 << 40, "pid": 0, "tid": 7, "ts": 20, "bp": "e", **flow},
    ]
    assert len(build_literal(*entries).links.graph_before) == 0
    entries[4]["ts"] = 15
    links = build_literal(*entries).links
    assert (links.graph_before.tolist(), links.graph_after.tolist()) == ([0], [1])


def test_lane_names_behind_the_events_are_read(tmp_path: Path) -> None:
    """With `graph_lanes="all"` the Python export names a moved lane only after the events that are on it."""
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 31, "ts": 5.0, "dur": 1.0}
    kernel["args"] = {"device": 0, "stream": 31, "original_stream": 7, "graph node id": 3}
    name = {"ph": "M", "name": "thread_name", "ts": 5.0, "pid": 0, "tid": 31, "args": {"name": "DP group"}}
    path = tmp_path / "x.json"
    path.write_text('{"traceEvents": [\n' + ",\n".join(json.dumps(entry) for entry in (kernel, name)) + "\n]}")
    trace = build_trace(decode_trace(open_source(str(path)), tmp_path), "x")
    assert [lane.label for lane in trace.lanes] == ["DP group (stream 31)"]
    assert format_time(int(trace.start[0])) == format_time(0)
