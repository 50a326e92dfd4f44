"""Test cells against a brute-force count per cell: event, busy and count, at every zoom, and nothing disappears."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.lane_rows import FAR, Bar, bar_rows, index, slow_cells
from tests.helpers.paths import SHARED_TRACES
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.trace import Counter, Trace
from torchprof_tui.trace.query.cells import cell_edges, compute_cells, compute_counter_cells
from torchprof_tui.trace.query.viewport import Viewport

WIDTHS = st.integers(1, 50)


def windows(rows: list[list[Bar]]) -> st.SearchStrategy[tuple[int, int]]:
    """Time ranges on, in and around the rows: from 1 ns to three times their span."""
    bars = [bar for row in rows for bar in row]
    low, high = min((bar.start for bar in bars), default=0), max((bar.end for bar in bars), default=10)
    span = high - low
    bound = st.one_of(
        st.integers(low - span - 3, high + span + 3), st.sampled_from([low, high, *(bar.start for bar in bars)])
    )
    length = st.one_of(st.integers(1, 60), st.integers(1, 3 * span + 3))
    return st.builds(lambda start, size: (start, start + size), bound, length)


def compare(built: RowIndex, rows: list[list[Bar]], t0: int, t1: int, width: int) -> None:
    got = compute_cells(built, slice(None), t0, t1, width)
    for number, row in enumerate(rows):
        expected = slow_cells(row, t0, t1, width)
        assert got.event[number].tolist() == [cell.event for cell in expected]
        assert got.count[number].tolist() == [cell.count for cell in expected]
        assert got.busy[number].tolist() == pytest.approx([cell.busy for cell in expected], abs=1e-6)


@given(st.data(), bar_rows(), WIDTHS)
def test_cells_are_what_counting_every_bar_in_every_cell_gives(
    data: st.DataObject, rows: list[list[Bar]], width: int
) -> None:
    compare(index(rows), rows, *data.draw(windows(rows)), width)


@given(st.data(), bar_rows(most_rows=1, most_bars=300), WIDTHS)
def test_many_bars_a_cell(data: st.DataObject, rows: list[list[Bar]], width: int) -> None:
    """Rows long enough for ranges over several blocks of the range argmax."""
    built = index(rows)
    end = max((bar.end for bar in rows[0]), default=1)
    start = min((bar.start for bar in rows[0]), default=0)
    compare(built, rows, start, max(end, start + 1), data.draw(st.integers(1, 6)))
    compare(built, rows, *data.draw(windows(rows)), width)


@given(st.data(), bar_rows(), WIDTHS)
def test_nothing_disappears(data: st.DataObject, rows: list[list[Bar]], width: int) -> None:
    """Every bar that touches the viewport is in the cells that it touches, and every such cell shows something."""
    t0, t1 = data.draw(windows(rows))
    got = compute_cells(index(rows), slice(None), t0, t1, width)
    edges = cell_edges(t0, t1, width)
    for number, row in enumerate(rows):
        for bar in row:
            if bar.start < t1 and bar.end > t0:
                upper = np.maximum(edges[1:], edges[:-1] + 1)
                touched = np.flatnonzero((edges[:-1] < bar.end) & (upper > bar.start))
                assert len(touched)
                assert (got.event[number, touched] >= 0).all()
                assert (got.busy[number, touched] > 0).all()
                assert (got.count[number, touched] > 0).all()


@given(bar_rows(), WIDTHS)
def test_shown_from_first_to_last_every_bar_is_counted(rows: list[list[Bar]], width: int) -> None:
    """Each once, and once more for each edge that it crosses."""
    bars = [bar for row in rows for bar in row]
    if not bars:
        return
    t0, t1 = min(bar.start for bar in bars), max(bar.end for bar in bars)
    if t1 - t0 < width:
        return
    got = compute_cells(index(rows), slice(None), t0, t1, width)
    inner = cell_edges(t0, t1, width)[1:-1]
    crossings = sum(int(((inner > bar.start) & (inner < bar.end)).sum()) for bar in bars)
    assert int(got.count.sum()) == len(bars) + crossings


@given(bar_rows(), st.data())
def test_rows_in_any_order_and_number(rows: list[list[Bar]], data: st.DataObject) -> None:
    built = index(rows)
    t0, t1 = data.draw(windows(rows))
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
    whole = compute_cells(built, slice(None), t0, t1, 7)
    some = compute_cells(built, np.array(chosen, dtype=np.int32), t0, t1, 7)
    assert some.event.tolist() == whole.event[chosen].tolist()
    assert some.count.tolist() == whole.count[chosen].tolist()
    assert some.event.dtype == some.count.dtype == np.int32
    assert some.busy.dtype == np.float32


def test_ties_go_to_the_longest_then_to_the_first() -> None:
    """Two cells of 10 ns. In the second, 6 is the part of a longer bar; in the first, equals: the first wins."""
    row = [Bar(0, 0, 3), Bar(1, 4, 3), Bar(2, 10, 4), Bar(3, 16, 8)]
    got = compute_cells(index([row]), slice(None), 0, 20, 2)
    assert got.event.tolist() == [[0, 3]]
    assert got.busy.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
    assert got.count.tolist() == [[2, 2]]


def test_a_microsecond_in_ten_seconds_is_seen() -> None:
    got = compute_cells(index([[Bar(0, 3 * 10**9, 1000)]]), slice(None), 0, 10**10, 100)
    assert got.event[0, 30] == 0
    assert got.count.sum() == 1
    assert got.busy[0, 30] == pytest.approx(1e-5)


def test_cells_below_a_nanosecond_show_the_nanosecond_they_lie_in() -> None:
    got = compute_cells(index([[Bar(0, 0, 1), Bar(1, 2, 0)]]), slice(None), 0, 3, 9)
    assert got.event.tolist() == [[0, 0, 0, -1, -1, -1, 1, 1, 1]]


def test_no_rows_and_no_events() -> None:
    empty = index([[]])
    assert compute_cells(empty, slice(None), 0, 10, 4).event.tolist() == [[-1] * 4]
    assert compute_cells(index([[Bar(0, 0, 1)]]), np.empty(0, dtype=np.int32), 0, 10, 4).event.shape == (0, 4)
    assert compute_cells(empty, np.empty(0, dtype=np.int32), 0, 2, 4).busy.shape == (0, 4)


@given(st.integers(-FAR, FAR), st.integers(1, FAR), st.integers(1, 400))
def test_edges_are_exact(t0: int, span: int, width: int) -> None:
    assert cell_edges(t0, t0 + span, width).tolist() == [t0 + span * cell // width for cell in range(width + 1)]


@pytest.mark.parametrize(("t0", "t1", "width"), [(5, 5, 10), (6, 5, 10), (0, 10, 0)])
def test_an_empty_range_has_no_cells(t0: int, t1: int, width: int) -> None:
    with pytest.raises(ValueError, match="no cells between"):
        cell_edges(t0, t1, width)


POINTS = st.lists(st.tuples(st.integers(0, 60), st.integers(-5, 5)), max_size=30)


@given(POINTS, st.integers(-20, 70), st.integers(1, 100), st.integers(1, 20))
def test_counters_against_a_value_for_every_nanosecond(
    points: list[tuple[int, int]], t0: int, span: int, width: int
) -> None:
    points = sorted(points, key=lambda point: point[0])
    times = np.array([time for time, _ in points], dtype=np.int64)
    counter = Counter(0, "c", "", times, np.array([value for _, value in points], dtype=np.float64))
    got = compute_counter_cells(counter, t0, t0 + span, width)
    for cell in range(width):
        left = t0 + span * cell // width
        right = max(t0 + span * (cell + 1) // width, left + 1)
        held = [value for time, value in points if time < left][-1:]
        if any(time == left for time, _ in points):
            held = []
        values = held + [value for time, value in points if left <= time < right]
        shown = (got.low[cell], got.high[cell], got.last[cell])
        if values:
            assert shown == (min(values), max(values), values[-1])
        else:
            assert np.isnan(shown).all()


SHARED = SHARED_TRACES
REAL = [
    "matmul_add_64_sched0_active3",
    "attention_math",
    "cuda_graph_replay",
    "multi_stream_overlap",
    "gpt2_train_compile",
]


@pytest.mark.parametrize("name", REAL)
def test_real_traces_at_every_zoom(name: str) -> None:
    """Each row against all of its events times all cells, from the whole trace down to 1 ns a cell."""
    path = SHARED / f"{name}.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("the shared traces are not here")
    trace = load_trace(str(path), cache=False)
    width = 37
    view = Viewport.whole(trace.span, width)
    shortest = int(trace.start[int(trace.duration.argmin())])
    while True:
        got = compute_cells(trace.row_index, slice(None), view.t0, view.t1, width)
        for row in range(trace.total_rows):
            events = trace.row_order[trace.row_first[row] : trace.row_first[row + 1]]
            expected = matrix_cells(trace, events, cell_edges(view.t0, view.t1, width))
            assert got.event[row].tolist() == expected[0].tolist()
            assert got.count[row].tolist() == expected[1].tolist()
            np.testing.assert_allclose(got.busy[row], expected[2], atol=1e-6)
        if view.span == width:
            break
        view = view.zoom(shortest, 1 / 30)


def matrix_cells(trace: Trace, events: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Event, count and busy of each cell from the overlap of every event (rows) with every cell (columns)."""
    start, length = trace.start[events], np.maximum(trace.duration[events], 1)
    part = np.minimum((start + length)[:, None], edges[1:]) - np.maximum(start[:, None], edges[:-1])
    part = np.maximum(part, 0)
    # Longest first, of equally long ones the first: then the first maximum of a column is the answer.
    ranked = np.lexsort((start, -length))
    fullest = np.full(len(edges) - 1, -1)
    some = part.any(axis=0)
    if some.any():
        fullest[some] = events[ranked[part[ranked][:, some].argmax(axis=0)]]
    return fullest, (part > 0).sum(axis=0), part.sum(axis=0) / np.diff(edges)
