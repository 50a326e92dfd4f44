"""The curve by category against the states: the same sums at any record, and the highest moment of each cell."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.memory_fixtures import open_recording
from tests.helpers.trace_builder import cpu, memory, trace
from torchprof_tui.analysis.memory.categories import Category
from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES
from torchprof_tui.analysis.memory.memory_history import (
    BANDS,
    REST,
    CategoryTotals,
    GroupBy,
    build_memory_history,
    find_highest_positions,
    read_reserved,
)


@pytest.mark.parametrize("name", ["start", "steady"])
def test_sums_by_category_are_those_of_the_states(name: str) -> None:
    history = build_memory_history(open_recording(name))
    assert history is not None
    for device in history.devices:
        count = len(device.memory.records)
        positions = np.linspace(-1, count - 1, 40).astype(np.int64)
        sums = CategoryTotals(device).sum_at(positions)
        for position, row in zip(positions.tolist(), sums, strict=True):
            state = device._build_state(position, 0)
            assert row.sum() == state.allocated
            assert row[REST] == state.unaccounted
            expected = dict.fromkeys(BANDS, 0)
            for group in device.group_state(state, GroupBy.CATEGORY):
                expected[group.label] = group.bytes
            assert {band: int(row[number]) for number, band in enumerate(BANDS)} == expected


@pytest.mark.parametrize("cells", [1, 7, 200, 5000])
def test_each_cell_has_its_highest_moment(cells: int) -> None:
    history = build_memory_history(open_recording("steady"))
    assert history is not None
    device = history.devices[0]
    memory = device.memory
    edges = np.linspace(int(memory.time[0]) - 1000, int(memory.time[-1]) + 1000, cells + 1).astype(np.int64)
    found = find_highest_positions(device, edges)
    for cell, position in enumerate(found.tolist()):
        first, last = np.searchsorted(memory.time, edges[cell : cell + 2])
        levels = [int(memory.allocated[first - 1]) if first else memory.base, *memory.allocated[first:last].tolist()]
        assert (int(memory.allocated[position]) if position >= 0 else memory.base) == max(levels)
    assert int(memory.allocated[found].max()) == int(memory.allocated[memory.peak])


def test_a_record_at_an_edge_is_of_the_cell_that_begins_there() -> None:
    """So the peak is seen, though what made it is freed at the same time."""
    records = [memory(1, 512, 512, device=0, address=1), memory(2, 1024, 1536, device=0, address=2)]
    history = build_memory_history(trace(cpu("a", 0, 90), *records, memory(2, -1024, 512, device=0, address=2)))
    assert history is not None
    assert find_highest_positions(history.devices[0], np.array([1000, 2000, 3000])).tolist() == [0, 1]


def test_reserved_memory_is_unknown_before_the_first_record() -> None:
    first, second = (memory(k, 512, 512 * k, device=0, reserved=1024 * k, address=k) for k in (1, 2))
    history = build_memory_history(trace(cpu("a", 0, 90), first, second))
    assert history is not None
    found = read_reserved(history.devices[0], np.array([-1, 0, 1, 0]))
    assert found.tolist() == [UNKNOWN_BYTES, 1024, 2048, 1024]


def test_the_bands_are_the_categories_and_the_rest() -> None:
    assert len(BANDS) == len(Category) + 1
