"""The cells of the lanes on the critical path, against a loop over every cell; how they are painted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from tests.analysis.critical_path.test_path_rows import find_rows, list_intervals
from tests.helpers.golden_files import load_sample
from tests.helpers.trace_builder import cpu, trace
from torchprof_tui.analysis.critical_path.critical_path import find_critical_path
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.cells import Cells, cell_edges, compute_cells
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.event_styles import (
    CellForm,
    ColorSupport,
    Emphasis,
    ThemeColors,
    build_palette,
    style_index,
)
from torchprof_tui.ui.common.name_display import DisplayNames
from torchprof_tui.ui.lanes.bar_painter import BarTexts, Decoration, build_strips, style_cells
from torchprof_tui.ui.lanes.lane_frame import PathCells, build_frame, list_rows, select_path_cells
from torchprof_tui.ui.lanes.screen_lines import LaneArrangement, LaneLines

PALETTE = build_palette(ThemeColors(), ColorSupport.MANY)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["attention_flash", "multi_stream_overlap", "cuda_graph_replay"]),
    st.floats(0, 0.95),
    st.sampled_from([1.0, 0.3, 0.02, 0.0001]),
    st.sets(st.integers(0, 5), max_size=3),
    st.integers(2, 3),
)
def test_cells_of_lines_are_those_of_a_loop(
    sample: str, begin: float, share: float, folded: set[int], pinned: int
) -> None:
    shown = load_sample(sample)
    path = find_critical_path(shown)
    first, last = shown.span
    t0 = first + int((last - first) * begin)
    view = Viewport.whole(shown.span, 30).fit(t0, t0 + max(int((last - first) * share), 30), margin=0)
    lanes = range(len(shown.lanes))
    arrangement = LaneArrangement(folded=frozenset(folded & set(lanes)), pinned=(min(pinned, len(lanes) - 1),))
    frame = build_frame(shown, view, tuple(LaneLines.build(shown, arrangement).visible_lines(0, 60)))
    cells = select_path_cells(shown, frame, find_rows(shown, path))
    edges = cell_edges(view.t0, view.t1, view.width).tolist()
    intervals = list_intervals(shown, path)
    for y, row in frame.row_by_line.items():
        rows = set(list_rows(shown, frame.lines[y]))
        inside = [(start, end) for each, start, end in intervals if each in rows]
        for cell in range(view.width):
            left, right = edges[cell], max(edges[cell + 1], edges[cell] + 1)
            touched = any(start < right and end > left for start, end in inside)
            assert cells.touched[row, cell] == touched
            event = int(frame.cells.event[row, cell])
            if event >= 0:
                left = max(left, int(shown.start[event]))
                right = min(right, int(shown.start[event] + shown.duration[event]))
            own = event >= 0 and right > left and any(start < right and end > left for start, end in inside)
            assert cells.own[row, cell] == own


def paint(shown: Trace, width: int, touched: list[int], own: list[int]) -> list[tuple[str, Style | None]]:
    """Paint the first row of a trace of 100 µs, with these cells on the path."""
    found = compute_cells(shown.row_index, slice(0, 1), 0, 100_000, width)

    def mask(cells: list[int]) -> Bool:
        chosen = np.zeros((1, width), np.bool_)
        chosen[0, cells] = True
        return chosen

    decoration = Decoration(path=PathCells(mask(touched), mask(own)))
    styled = style_cells(shown, Cells(found.event, found.busy, found.count), 100_000 / width, decoration)
    strips = build_strips(styled, shown, BarTexts(DisplayNames(shown.names)), PALETTE.cells)
    return [(segment.text, segment.style) for segment in strips[0]]


def style_of(shown: Trace, emphasis: Emphasis, form: CellForm = CellForm.BAR) -> Style:
    return PALETTE.cells[int(style_index(int(shown.kind[0]), form, emphasis))]


@pytest.mark.parametrize("name", ["aten::linear", "层归一化層歸一化"])
def test_a_bar_that_is_on_the_path_in_part_keeps_its_text(name: str) -> None:
    shown = trace(cpu(name, 0, 100))
    whole = "".join(text for text, _ in paint(shown, 24, [], []))
    pieces = paint(shown, 24, [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])
    assert [style for _, style in pieces] == [
        style_of(shown, Emphasis.ON_PATH),
        style_of(shown, Emphasis.DIMMED),
    ]
    text = "".join(text for text, _ in pieces)
    assert [cell_len(text) for text, _ in pieces] == [6, 18]
    assert text.startswith("●")
    shared = 2 if cell_len(name) > len(name) else 8  # a wide character on the border becomes blanks
    assert text[1 : 1 + shared] == whole[1 : 1 + shared]


def test_a_bar_beside_the_path_in_a_shared_cell_is_neither_dimmed_there_nor_marked() -> None:
    shown = trace(cpu("aten::mm", 10, 90))
    pieces = paint(shown, 20, [2], [])
    assert not any("●" in text for text, _ in pieces)
    styles = [style for text, style in pieces if text.strip()]
    assert style_of(shown, Emphasis.DIMMED) in styles


def test_short_events_off_the_path_are_dimmed() -> None:
    shown = trace(*(cpu("a", 2 * k, 1) for k in range(50)))
    pieces = paint(shown, 10, [3], [3])
    styles = [style for _, style in pieces]
    assert style_of(shown, Emphasis.DIMMED, CellForm.SHADE) in styles
    assert style_of(shown, Emphasis.ON_PATH, CellForm.SHADE) in styles
