"""Compare the lanes, nesting and links of dense traces with what is stored, also where lanes are merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, fields
from typing import Any

import pytest

from tests.helpers.dense_traces import draw_entries
from tests.helpers.stored_answers import DENSE_SEEDS, compare_answers, join, join_array
from tests.helpers.trace_builder import counter, event, gpu_annotation, kernel, metadata, sync, trace
from torchprof_tui.trace.build import lane_merging
from torchprof_tui.trace.model.trace import Trace


def list_odd_tracks() -> list[dict[str, Any]]:
    """List events on tracks as other versions and devices write them."""
    return [
        metadata("process_name", "python", 100),
        metadata("process_name", "worker", 300),
        metadata("process_labels", "GPU 1", 1),
        metadata("process_sort_index", 5, 300),
        metadata("process_sort_index", 7, 100),
        metadata("thread_name", "main", 100, 100),
        metadata("thread_name", "loader", 300, "10"),
        metadata("thread_name", "compute", "0", "7"),
        metadata("thread_sort_index", 3, 300, "9"),
        metadata("thread_sort_index", 2, 300, "10"),
        event("read", 5, 20, pid=300, tid="10"),
        event("read", 5, 20, pid=300, tid="9"),
        event("wait", 10, 5, pid=300, tid="pt_data"),
        event("idle", 0, 400, pid=300, tid=""),
        event("old", 30, 5, "kernel", pid=1, tid="stream 20"),
        event("old", 35, 5, "kernel", pid=4095, tid="3"),
        event("old", 35, 5, "kernel", pid=4096, tid="-3"),
        event("npu", 30, 10, "kernel", pid="Ascend Hardware", tid="Stream 2", args={"stream": 2}),
        event("far", 30, 10, "kernel", pid=0, tid=1, args={"device": 2**31, "stream": 1}),
        sync("Context Sync", 40, 5, stream=0xFFFFFFFF),
        sync("Context Sync", 50, 5, stream=-1),
        sync("Stream Wait Event", 60, 5, stream=8),
        gpu_annotation("forward", 20, 30, stream=7),
        gpu_annotation("forward", 20, 30, stream=9, device=3),
        kernel("k", 20, 0, stream=10, device=10),
        kernel("k", 20, 0, stream=2, device=10),
        event("Iteration", 0, 90, "Trace", pid="Spans", tid="PyTorch Profiler"),
        event("hold", 10, 20, "overhead", pid=100, tid=100),
        event("flush", 10, 20, "overhead", pid=-1, tid=0),
        {"ph": "b", "cat": "nccl", "name": "recv", "pid": 100, "tid": 1, "ts": 10, "id": "1"},
        {"ph": "e", "cat": "nccl", "name": "recv", "pid": 100, "tid": 1, "ts": 30, "id": "1"},
        {"ph": "b", "cat": "", "name": "send", "pid": 300, "tid": 1, "ts": 20, "id": "2"},
        {"ph": "e", "cat": "", "name": "send", "pid": 300, "tid": 1, "ts": 50, "id": "2"},
        counter("memory", 10, bytes=5),
        counter("memory", 450, bytes=7),
        counter("load", -10, cpu=1.5, gpu=2),
    ]


def describe_trace(name: str, model: Trace) -> Iterator[str]:
    yield name
    yield from (f" {astuple(lane)}" for lane in model.lanes)
    columns = ("start", "duration", "kind", "lane", "row", "parent", "self_duration", "ordinal")
    yield from (f" {column} {join_array(getattr(model, column))}" for column in columns)
    yield f" rows {join_array(model.row_order)} {join_array(model.row_first)} span {model.span}"
    for column in fields(model.links):
        value = getattr(model.links, column.name)
        yield f" {column.name} {value if isinstance(value, int) else join_array(value)}"
    yield f" steps {[(each.number, each.event, each.start, each.duration) for each in model.steps]}"
    yield " counters " + join((each.lane, each.times.tolist(), each.values.tolist()) for each in model.counters)
    yield " problems " + join((each.kind, each.count, each.example) for each in model.problems)


def describe_traces() -> Iterator[str]:
    odd = list_odd_tracks()
    for format_name in ("kineto", "chrome"):
        yield from describe_trace(f"odd tracks, {format_name}", trace(*odd, format=format_name))
    for seed in DENSE_SEEDS[:6]:
        yield from describe_trace(f"dense {seed}", trace(*draw_entries(seed), *(odd if seed % 2 else [])))
    for most in (1, 3, 8):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lane_merging, "MAX_LANES", most)
            patch.setattr(lane_merging, "_MAX_DEVICES", 2)
            yield from describe_trace(f"at most {most} lanes", trace(*draw_entries(5), *odd))


def test_answers_of_traces() -> None:
    compare_answers("build", describe_traces())
