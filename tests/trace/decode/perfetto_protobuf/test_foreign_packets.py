"""Perfetto traces of other writers: every part of a TrackEvent that has a place here, read as the schema says."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.long_run import scale_examples
from tests.helpers.paths import FIXTURES, SAMPLES
from tests.helpers.perfetto_packets import (
    BEGIN,
    CLEARED,
    COUNTER,
    END,
    INSTANT,
    NEEDED,
    Entry,
    build,
    convert_entries,
    decode,
    event,
    interned,
    protos,
    serialize,
    thread_track,
)
from tests.helpers.trace_rows import list_rows
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import LEFT_OUT
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.model.trace import Event, Trace
from torchprof_tui.trace.sources.source import open_source

_TRACK = thread_track(1, 100, 101, "main")


def _slices(trace: Trace) -> list[tuple[str, str, int, int]]:
    return sorted(
        (trace.names[name], trace.categories[category], start, duration)
        for name, category, start, duration in zip(
            trace.name.tolist(), trace.category.tolist(), trace.start.tolist(), trace.duration.tolist(), strict=True
        )
    )


def _from_json(entries: list[Entry], folder: Path) -> Trace:
    path = folder / "t.json"
    path.write_text(json.dumps({"traceEvents": entries}))
    return build_trace(decode_trace(open_source(str(path)), folder), "t.json")


@pytest.mark.parametrize("intern", [True, False])
@pytest.mark.parametrize("name", ["linear_eager", "matmul_add_64_bmm8", "train_images_cpu_workers"])
def test_converted_kineto_traces_have_the_same_events(name: str, intern: bool, tmp_path: Path) -> None:
    text = gzip.decompress((SAMPLES / f"{name}.pt.trace.json.gz").read_bytes())
    kept = ("cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memset", "gpu_memcpy")
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    entries = [e for e in events if e.get("cat") in kept and e["ph"] == "X"]
    first = min(e["ts"] for e in entries)
    for entry in entries:
        entry |= {"ts": float(entry["ts"] - first), "dur": float(entry["dur"])}
        entry["args"] = {key: float(v) if isinstance(v, Decimal) else v for key, v in entry["args"].items()}
    packets = build(serialize(convert_entries(entries, intern)), tmp_path)
    columns = ("external_id", "sequence", "grid", "block", "registers", "shared_memory", "bytes", "stream", "device")
    assert list_rows(packets, args=columns) == list_rows(_from_json(entries, tmp_path), args=columns)


_VALUES = st.recursive(
    st.one_of(
        st.integers(-(2**63), 2**64 - 1),
        st.text(max_size=12).filter(lambda text: text != "null"),
        st.booleans(),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3) | st.dictionaries(st.text(max_size=5), inner, min_size=1, max_size=3)
    ),
    max_leaves=5,
)
_WANTED = ["correlation", "External id", "Sequence number", "stream", "device", "bytes", "Bytes", "Python id", "grid"]
_ARGS = st.dictionaries(st.sampled_from([*_WANTED, "registers per thread", "x", "Call stack"]) | st.text(), _VALUES)
_ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["cpu_op", "kernel", "python_function", "cuda_runtime", "mine", ""]),
        st.text(max_size=10),
        st.integers(1, 3),
        st.integers(1, 50),
        _ARGS,
    ),
    max_size=12,
)


@pytest.mark.long
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=scale_examples(0.7))
@given(made_up=_ENTRIES, intern=st.booleans())
def test_made_up_events_are_those_of_the_json(
    made_up: list[tuple[str, str, int, int, dict[str, Any]]], intern: bool, tmp_path: Path
) -> None:
    entries: list[Entry] = [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": 100 * k, "dur": dur, "args": args}
        for k, (cat, name, tid, dur, args) in enumerate(made_up, 1)
    ]
    if not entries:
        return
    packets, text = build(serialize(convert_entries(entries, intern)), tmp_path), _from_json(entries, tmp_path)
    columns = ("external_id", "sequence", "python_id", "stream", "device", "bytes", "registers", "grid")
    assert list_rows(packets, args=columns) == list_rows(text, args=columns)
    ours, theirs = ({Event(t, k).start: Event(t, k).read_args() for k in range(len(t))} for t in (packets, text))
    assert ours == theirs


def test_the_schema_reads_the_same_as_we_do(tmp_path: Path) -> None:
    """What protobuf itself decodes of torch's file, against the raw columns."""
    data = gzip.decompress((FIXTURES / "pftrace" / "multi_stream_overlap.pftrace.gz").read_bytes())
    decoded = decode(data, tmp_path)
    parsed = protos.Trace.FromString(data)
    names = {n.iid: n.name for p in parsed.packet for n in p.interned_data.event_names}
    base = next(c.timestamp for p in parsed.packet for c in p.clock_snapshot.clocks)
    begins = sorted(
        (names[p.track_event.name_iid], p.timestamp - base)
        for p in parsed.packet
        if p.HasField("track_event") and p.track_event.type == BEGIN
    )
    stages = sorted(
        (p.timestamp - base, p.gpu_render_stage_event.duration)
        for p in parsed.packet
        if p.HasField("gpu_render_stage_event")
    )
    raw = decoded.events
    on_gpu = np.array([cat in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation") for cat in raw.categories])
    gpu = on_gpu[raw.category] & (raw.phase == ord("X"))
    cpu = ~gpu & (raw.phase == ord("X"))
    assert sorted(zip([raw.names[k] for k in raw.name[cpu]], raw.time[cpu].tolist(), strict=True)) == begins
    assert sorted(zip(raw.time[gpu].tolist(), raw.duration[gpu].tolist(), strict=True)) == stages


def test_tables_belong_to_their_sequence_and_are_cleared(tmp_path: Path) -> None:
    packets = [
        _TRACK,
        interned({1: "a"}, {1: "x"}),
        interned({1: "b"}, {1: "y"}, sequence=9),
        event(10, INSTANT, name_iid=1, category_iids=[1]),
        event(20, INSTANT, name_iid=1, category_iids=[1], sequence=9),
        interned({1: "c"}, {}),
        event(30, INSTANT, name_iid=1),
        event(40, INSTANT, name_iid=1, sequence=9),
        interned({2: "d"}, {}, flags=NEEDED),
        event(50, INSTANT, name_iid=2),
        event(60, INSTANT, name_iid=1),
    ]
    trace = build(serialize(packets), tmp_path)
    by_time = sorted(zip(trace.start.tolist(), [trace.names[k] for k in trace.name], strict=True))
    assert [name for _, name in by_time] == ["a", "b", "c", "b", "d", "c"]
    read = [trace.read_entry(int(ordinal))["name"] for ordinal in trace.ordinal[np.argsort(trace.start)]]
    assert read == ["a", "b", "c", "b", "d", "c"]


def test_a_sequence_has_a_default_track_and_clock(tmp_path: Path) -> None:
    snapshot = protos.TracePacket(timestamp=5, trusted_packet_sequence_id=1)
    snapshot.clock_snapshot.clocks.add(clock_id=6, timestamp=1_000)
    snapshot.clock_snapshot.clocks.add(clock_id=3, timestamp=400)
    defaults = protos.TracePacket(trusted_packet_sequence_id=3, sequence_flags=CLEARED)
    defaults.trace_packet_defaults.timestamp_clock_id = 3
    defaults.trace_packet_defaults.track_event_defaults.track_uuid = 1
    packets = [
        snapshot,
        _TRACK,
        defaults,
        event(500, INSTANT, track=0, name="monotonic"),
        event(1_250, INSTANT, track=0, name="boot", clock=6),
    ]
    trace = build(serialize(packets), tmp_path)
    assert sorted((trace.names[n], s) for n, s in zip(trace.name, trace.start.tolist(), strict=True)) == [
        ("boot", 150),
        ("monotonic", 0),
    ]
    assert {(lane.pid, lane.tid) for lane in trace.lanes} == {("100", "101")}


def test_counters_instants_flows_and_named_tracks(tmp_path: Path) -> None:
    counter = protos.TracePacket()
    counter.track_descriptor.uuid, counter.track_descriptor.parent_uuid = 7, 2
    counter.track_descriptor.name = "loss"
    counter.track_descriptor.counter.unit_name = "x"
    process = protos.TracePacket()
    process.track_descriptor.uuid = 2
    process.track_descriptor.process.pid, process.track_descriptor.process.process_name = 100, "train"
    child = protos.TracePacket()
    child.track_descriptor.uuid, child.track_descriptor.parent_uuid = 8, 2
    child.track_descriptor.name = "requests"
    packets = [
        *(process, counter, child, _TRACK),
        event(10, BEGIN, name="outer", categories=["a", "b"], flow_ids=[77]),
        event(12, COUNTER, track=7, double_counter_value=0.5),
        event(14, COUNTER, track=7, counter_value=-3),
        event(15, INSTANT, name="mark", terminating_flow_ids=[77]),
        event(16, BEGIN, track=8, name="request"),
        event(18, END, track=8),
        event(20, END, args={"late": 1}),
    ]
    trace = build(serialize(packets), tmp_path)
    assert _slices(trace) == [("mark", "", 5, 0), ("outer", "a,b", 0, 10), ("request", "", 6, 2)]
    assert [(c.name, c.times.tolist(), c.values.tolist()) for c in trace.counters] == [("loss", [2, 4], [0.5, -3.0])]
    assert trace.counts.flows == 2
    assert {(lane.label, lane.group) for lane in trace.lanes if lane.role.value == "thread"} == {
        ("main 101", "train 100"),
        ("requests", "train 100"),
    }
    outer = next(k for k in range(len(trace)) if Event(trace, k).name == "outer")
    assert Event(trace, outer).read_args() == {"late": 1}


def test_a_system_trace_opens_with_its_track_events(tmp_path: Path) -> None:
    ftrace = protos.TracePacket(trusted_packet_sequence_id=1)
    ftrace.ftrace_events.cpu = 1
    tree = protos.TracePacket(trusted_packet_sequence_id=1)
    tree.process_tree.processes.add(pid=1)
    packets = [*[ftrace] * 5, tree, _TRACK, event(10, BEGIN, name="work"), event(20, END), *[ftrace] * 3]
    trace = build(serialize(packets), tmp_path)
    assert _slices(trace) == [("work", "", 0, 10)]
    (problem,) = trace.problems
    assert (problem.kind, problem.count, problem.example) == (LEFT_OUT, 9, "ftrace: 8, process tree: 1")


def test_a_system_trace_without_track_events_is_explained_in_one_line(tmp_path: Path) -> None:
    ftrace = protos.TracePacket(trusted_packet_sequence_id=1)
    ftrace.ftrace_events.cpu = 1
    with pytest.raises(TraceError) as error:
        decode(serialize([ftrace] * 4), tmp_path)
    assert str(error.value).endswith(
        "a Perfetto trace without track events or GPU work; what it has is not read: ftrace: 4"
    )


def test_slices_in_order_of_time_nest_as_a_stack(tmp_path: Path) -> None:
    packets = [
        *(_TRACK, event(0, BEGIN, name="a"), event(1, BEGIN, name="b"), event(5, END), event(5, BEGIN, name="c")),
        *(event(7, END), event(9, END), event(9, BEGIN, name="open"), event(10, INSTANT, name="last")),
    ]
    trace = build(serialize(packets), tmp_path)
    assert _slices(trace)[:3] == [("a", "", 0, 9), ("b", "", 1, 4), ("c", "", 5, 2)]
    assert [problem.kind for problem in trace.problems] == ["unclosed begin"]


def test_slices_without_interned_names_are_added_at_once_though_their_ends_are_plain(tmp_path: Path) -> None:
    entries = [
        {"ph": "X", "name": f"op {k}", "cat": "cpu_op", "pid": 100, "tid": 101, "ts": 10.0 * k, "dur": 5.0}
        for k in range(300)
    ]
    data = serialize(convert_entries(entries, intern=False))
    with patch.object(ColumnBuilder, "add_chunk", autospec=True, side_effect=ColumnBuilder.add_chunk) as added:
        decoded = decode(data, tmp_path)
    assert added.call_count < 10
    built = build_trace(decoded, "t.pftrace")
    assert [(event[2], event[3]) for event in _slices(built)] == sorted(
        ((10_000 * k, 5_000) for k in range(300)), key=lambda pair: f"op {pair[0] // 10_000}"
    )
