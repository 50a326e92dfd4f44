"""Test the curve and the peak against the `[memory]` entries of the files, and what is alive at every record."""

from __future__ import annotations

import gzip
import lzma
from collections import defaultdict
from pathlib import Path

import numpy as np
import orjson
import pytest

import torchprof_tui as tt
from tests.helpers.long_run import keep_some
from tests.helpers.memory_fixtures import MEMORY, open_trace
from tests.helpers.paths import SAMPLES, SHARED_TRACES
from tests.helpers.trace_builder import cpu, memory, python, trace
from torchprof_tui.analysis.memory.memory_history import GroupBy, MemoryHistory, build_memory_history

TRACES = [
    MEMORY / "start.pt.trace.json.xz",
    MEMORY / "steady.pt.trace.json.xz",
    SAMPLES / "train_gpt_stack_memory.pt.trace.json.gz",
    SHARED_TRACES / "gpt2_train_stack_memory.pt.trace.json.gz",
]
Totals = dict[str, list[tuple[int, int]]]


def read_totals(path: Path) -> Totals:
    """Read (total allocated, total reserved) of all records of each device, by time, from the text of the file."""
    unpack = lzma.open if path.suffix == ".xz" else gzip.open
    with unpack(path) as file:
        entries = orjson.loads(file.read())["traceEvents"]
    totals: Totals = defaultdict(list)
    for entry in sorted((entry for entry in entries if entry["name"] == "[memory]"), key=lambda entry: entry["ts"]):
        args = entry["args"]
        device = "CPU" if args["Device Type"] == 0 else f"GPU {args['Device Id']}"
        totals[device].append((args["Total Allocated"], args["Total Reserved"]))
    return totals


def open_history(path: Path) -> MemoryHistory:
    if not path.exists():
        pytest.skip("needs the shared traces")
    history = build_memory_history(open_trace(path)._model)
    assert history is not None
    return history


def test_memory_is_grouped_by_the_line_of_the_first_frame_of_a_trace() -> None:
    shown = trace(python("train.py(3): main", 0, 90), cpu("aten::empty", 1, 9), memory(2, 512, 512, device=0))
    assert shown.names[0] == "train.py(3): main"
    history = build_memory_history(shown)
    assert history is not None
    device = history.devices[0]
    groups = device.group_state(device.find_peak(), GroupBy.LINE)
    assert [(group.label, group.bytes) for group in groups] == [("train.py:3 main", 512)]


@pytest.mark.parametrize("path", keep_some(TRACES, 1), ids=lambda path: path.name.split(".")[0])
def test_the_curve_is_that_of_the_file(path: Path) -> None:
    history = open_history(path)
    totals = read_totals(path)
    assert {device.memory.label for device in history.devices} == set(totals)
    for device in history.devices:
        allocated, reserved = np.array(totals[device.memory.label]).T
        assert device.memory.allocated.tolist() == allocated.tolist()
        assert device.find_peak().allocated == allocated.max()
        assert device.memory.reserved.tolist() == (reserved if reserved.any() else np.full_like(reserved, -1)).tolist()
        alive = device.lifetimes.sum_alive(device.memory.records)
        assert (device.memory.held_before + alive).tolist() == allocated.tolist()


@pytest.mark.parametrize("path", keep_some(TRACES, 1), ids=lambda path: path.name.split(".")[0])
def test_groups_sum_to_the_curve(path: Path) -> None:
    for device in open_history(path).devices:
        memory = device.memory
        for position in np.linspace(0, len(memory.time) - 1, 25).astype(int).tolist():
            state = device.find_state(int(memory.time[position]))
            for by in GroupBy:
                groups = device.group_state(state, by)
                assert sum(group.bytes for group in groups) == state.allocated
                for group in groups:
                    if len(group.lifetimes) and group.label != "unknown":
                        inside = int(device.lifetimes.bytes[group.lifetimes].sum())
                        assert inside == group.bytes or by is GroupBy.CATEGORY


def test_reading_the_curve_between_records() -> None:
    memory = open_history(TRACES[0]).devices[0].memory
    allocated, reserved = memory.read_curve(np.array([-1, int(memory.time[3]), int(memory.time[-1]) + 10**9]))
    assert allocated.tolist() == [memory.base, int(memory.allocated[3]), int(memory.allocated[-1])]
    assert reserved[0] == -1
    assert reserved[2] == memory.reserved[-1]


def test_lines_modules_and_shapes_are_of_the_op_that_allocated() -> None:
    device = open_history(TRACES[0]).devices[0]
    state = device.find_peak()
    lines = {group.label for group in device.group_state(state, GroupBy.LINE)}
    assert any(label.endswith("forward") and "record.py:" in label for label in lines)
    modules = {group.label for group in device.group_state(state, GroupBy.MODULE)}
    assert "Model_0/Block_0/Linear_0" in modules
    shapes = {group.label for group in device.group_state(state, GroupBy.SHAPE)}
    assert any(label.startswith("[[1024, 4096]") for label in shapes)  # logits: 8 x 128 tokens, 4096 words
    ops = {group.label for group in device.group_state(state, GroupBy.OP)}
    assert "aten::gelu" in ops
    assert not any(label.startswith("aten::empty") for label in ops)


def test_a_trace_without_memory_has_no_history() -> None:
    assert build_memory_history(tt.open("sample:matmul_add_64_cold_eager")._model) is None
