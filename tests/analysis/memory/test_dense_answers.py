"""Compare the memory of dense traces and of recordings with what is stored: every state, group and category."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from tests.helpers.dense_traces import draw_training
from tests.helpers.memory_fixtures import open_recording
from tests.helpers.stored_answers import DENSE_SEEDS, compare_answers, join, join_array, load_dense
from tests.helpers.trace_builder import trace
from torchprof_tui.analysis.memory.categories import HOPPER_BYTES, OLDER_BYTES
from torchprof_tui.analysis.memory.device_memory import match_frees
from torchprof_tui.analysis.memory.memory_history import (
    CategoryTotals,
    DeviceHistory,
    GroupBy,
    build_memory_history,
    find_highest_positions,
    read_reserved,
)
from torchprof_tui.trace.model.trace import Trace


def describe_device(device: DeviceHistory) -> Iterator[str]:
    memory, lifetimes = device.memory, device.lifetimes
    yield f" {memory.label} {memory.process} base {memory.base} held {memory.held_before} peak {memory.peak}"
    yield " curve " + " ".join(map(join_array, (memory.records, memory.time, memory.allocated, memory.reserved)))
    yield " lifetimes " + " ".join(join_array(getattr(lifetimes, column.name)) for column in fields(lifetimes))
    yield f" phase {join_array(device.phase)} category {join_array(device.category)} op {join_array(device.op)}"
    yield " older " + join(f"{part.category.label} {part.bytes} {part.rule}" for part in device.older.parts)
    times = np.linspace(int(memory.time[0]) - 1000, int(memory.time[-1]) + 1000, 12).astype(np.int64)
    for time in (int(memory.time[0]) - 1, int(memory.time[0]), *times[4:9:2].tolist()):
        state = device.find_state(time)
        yield f"  at {time}: {state.position} {state.allocated} {state.reserved} {state.unaccounted}"
    for by in GroupBy:
        if by is not GroupBy.SHAPE:
            groups = device.group_state(device.find_peak(), by)
            found = [f"{each.label} {each.bytes} {len(each.lifetimes)} {each.since} {each.until}" for each in groups]
            yield f"  by {by.value}: {join(found)}"
    positions = np.arange(-1, len(memory.records))
    sums, reserved = CategoryTotals(device).sum_at(positions), read_reserved(device, positions)
    yield f" totals {join_array(sums)} {join_array(reserved)} {join_array(find_highest_positions(device, times))}"
    yield " read " + " ".join(map(join_array, memory.read_curve(memory.time[:6] - 1)))


def describe_memory(name: str, model: Trace) -> Iterator[str]:
    yield name
    history = build_memory_history(model)
    assert history is not None
    assert model.memory is not None
    for device in history.devices:
        yield from describe_device(device)
    matched = match_frees(model, model.memory)
    yield " matched " + " ".join(join_array(np.flatnonzero(getattr(matched, each.name))) for each in fields(matched))


def test_answers_of_traces() -> None:
    models = [(f"dense {seed}", load_dense(seed)) for seed in DENSE_SEEDS if load_dense(seed).memory is not None]
    models += [(name, open_recording(name)) for name in ("start", "steady")]
    gpu = {"id": 0, "name": "NVIDIA GPU", "computeMajor": 9, "computeMinor": 0}
    for seed in range(14):
        entries = draw_training(seed, (HOPPER_BYTES, OLDER_BYTES) if seed % 4 == 0 else ())
        models.append((f"training {seed}", trace(*entries, header={"deviceProperties": [gpu]})))
    compare_answers("memory", (line for name, model in models for line in describe_memory(name, model)))
