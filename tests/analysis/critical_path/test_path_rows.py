"""Test where a critical path lies on the rows, against loops over every cell and every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.critical_path.simulated_steps import simulate
from tests.analysis.critical_path.test_against_simulation import PROGRAMS
from tests.helpers.long_run import scale_examples
from tests.helpers.paths import SAMPLES
from tests.helpers.trace_builder import cpu, kernel, python, runtime, step, trace
from torchprof_tui.analysis.critical_path.critical_path import CriticalPath, find_critical_path
from torchprof_tui.analysis.critical_path.segments import WAITS, PathRows, find_path_rows, list_longest
from torchprof_tui.api.trace import open as open_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.cells import cell_edges


def find_rows(model: Trace, path: CriticalPath) -> PathRows:
    base = np.array([lane.row_base for lane in model.lanes], np.int64)
    return find_path_rows(model, path.segments, base, model.row_index.rows)


def list_intervals(model: Trace, path: CriticalPath) -> list[tuple[int, int, int]]:
    """List (row, start, end) of each segment's event and of all events around it: the slow, obvious way."""
    segments, found = path.segments, []
    for index in range(len(segments)):
        event = int(segments.event[index])
        if int(segments.kind[index]) in WAITS:
            continue
        start, end = int(segments.start[index]), int(segments.end[index])
        if event >= 0:
            start = max(start, int(model.start[event]))
            end = min(end, int(model.start[event] + model.duration[event]))
        while event >= 0 and end > start:
            row = model.lanes[int(model.lane[event])].row_base + int(model.row[event])
            found.append((row, start, end))
            event = int(model.parent[event])
    return found


def assert_cells(model: Trace, path: CriticalPath, views: list[tuple[int, int, int]]) -> None:
    """Compare every row at (start, end, width) with a loop over its cells."""
    rows, intervals = find_rows(model, path), list_intervals(model, path)
    for start, end, width in views:
        edges = cell_edges(start, end, width)
        left, right = edges[:-1], np.maximum(edges[1:], edges[:-1] + 1)
        expected = np.zeros((model.row_index.rows, width), np.bool_)
        for row, first, last in intervals:
            for cell in range(width):
                expected[row, cell] |= first < right[cell] and last > left[cell]
        for row in range(model.row_index.rows):
            np.testing.assert_array_equal(rows.select_cells([row], left, right), expected[row], str(row))
        everything = rows.select_cells(range(model.row_index.rows), left, right)
        np.testing.assert_array_equal(everything, expected.any(axis=0))


@given(PROGRAMS, st.integers(1, 60), st.integers(0, 5), st.integers(1, 400))
@settings(max_examples=scale_examples(2), deadline=None)
def test_a_cell_is_on_the_path_if_any_of_its_time_is(program: list, width: int, skip: int, span: int) -> None:  # type: ignore[type-arg]
    model = simulate(program).build_trace()
    path = find_critical_path(model)
    start = path.window.start + skip * 700
    assert_cells(model, path, [(start, start + span * 300, width), (path.window.start, path.window.end, width)])


@pytest.mark.parametrize("sample", ["attention_flash", "cuda_graph_replay", "multi_stream_overlap"])
def test_cells_of_samples_at_every_zoom(sample: str) -> None:
    with open_trace(str(SAMPLES / f"{sample}.pt.trace.json.gz")) as opened:
        model = opened._model.all_ranks[0].numbered_trace
        path = find_critical_path(model)
        window = path.window
        middle = (window.start + window.end) // 2
        assert_cells(
            model,
            path,
            [(*model.span, 40), (window.start, window.end, 60), (middle, middle + 3_000, 50), (middle, middle + 9, 12)],
        )


def test_the_events_around_the_path_are_on_it_while_it_is_inside_them() -> None:
    model = trace(
        step(1, 0, 100),
        python("main", 1, 98),
        cpu("aten::mm", 10, 30),
        runtime("cudaLaunchKernel", 20, 10, 1),
        kernel("gemm", 31, 50, 1),
        runtime("cudaStreamSynchronize", 45, 40, 2),
    )
    path = find_critical_path(model)
    rows = find_rows(model, path)
    named = {model.event(event).name: event for event in range(len(model))}

    def time_of(name: str) -> int:
        event = named[name]
        row = model.lanes[int(model.lane[event])].row_base + int(model.row[event])
        start = int(model.start[event])
        return rows.sum_inside(row, start, start + int(model.duration[event]))

    assert time_of("gemm") == 50_000
    assert time_of("cudaLaunchKernel") == 10_000
    assert time_of("aten::mm") == 20_000  # 10..30; then the path is on the GPU
    assert time_of("cudaStreamSynchronize") == 4_000
    assert time_of("ProfilerStep#1") == 20_000 + 1_000 + 4_000 + 15_000 + 9_000


def test_the_longest_segments_come_first() -> None:
    segments = simulate([("host", 5), ("launch", 7, 3, 40), ("sync",)]).build_trace()
    path = find_critical_path(segments)
    longest = list_longest(path.segments, 3)
    lengths = (path.segments.end - path.segments.start)[longest]
    assert lengths[0] == (path.segments.end - path.segments.start).max()
    assert (np.diff(lengths) <= 0).all()
