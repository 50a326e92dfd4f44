"""The layout of the icicle: boxes tile their parents, none is lost, and every zoom makes progress."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.helpers.flame_reference import list_children
from tests.helpers.golden_files import load_sample
from tests.helpers.trace_builder import cpu, trace
from torchprof_tui.analysis.flame.flame_tree import FlameTree, FoldBy, FoldTime
from torchprof_tui.analysis.flame.fold import fold_trace
from torchprof_tui.ui.flame.icicle_layout import Box, Zoom, lay_out


def siblings(*durations: int) -> FlameTree:
    """One op with children of these durations, µs."""
    events, start = [cpu("parent", 0, sum(durations) + 10)], 0
    for number, duration in enumerate(durations):
        events.append(cpu(f"child {number}", start, duration))
        start += duration
    return fold_trace(trace(*events), FoldBy.OP, FoldTime.CPU)


def describe(tree: FlameTree, row: list[Box]) -> list[tuple[int, int, str]]:
    return [(box.x, box.width, f"+{box.merged}" if box.merged else tree.label(box.node)) for box in row]


def check_tiling(tree: FlameTree, zoom: Zoom, width: int) -> None:
    """Check that boxes lie in their parent's cells, in order, and that all children of each box are counted."""
    layout = lay_out(tree, zoom, width)
    for depth, row in enumerate(layout.rows):
        for before, after in pairwise(row):
            assert before.x + before.width <= after.x
        assert row[0].x >= 0
        assert row[-1].x + row[-1].width <= width
        assert all(box.width > 0 for box in row)
        for index, box in enumerate(row):
            below = layout.rows[depth + 1] if depth + 1 < len(layout.rows) else []
            children = [child for child in below if box.node < child.node < box.last]
            if box.merged or box.above_zoom:
                continue
            assert sum(child.merged or 1 for child in children) == len(list_children(tree, box.node))
            assert sum(child.total_ns for child in children) == box.total_ns - tree.value_ns[box.node]
            assert all(box.x <= child.x and child.x + child.width <= box.x + box.width for child in children)
            assert layout.find_box(tree, box.node) == (depth, index)


@pytest.mark.parametrize("width", [1, 2, 3, 17, 80, 240])
@pytest.mark.parametrize("fold_by", list(FoldBy))
def test_boxes_tile_their_parents_and_lose_no_frame(width: int, fold_by: FoldBy) -> None:
    tree = fold_trace(load_sample("train_gpt_stack_memory"), fold_by, FoldTime.GPU)
    for node in (0, 1, len(tree) // 2):
        check_tiling(tree, Zoom(node), width)


def test_frames_narrower_than_a_cell_are_merged() -> None:
    tree = siblings(400, 300, 2, 1, 1)
    assert describe(tree, lay_out(tree, Zoom(), 70).rows[2]) == [(0, 39, "child 0"), (39, 29, "child 1"), (68, 1, "+3")]


def test_the_rest_takes_a_cell_from_the_narrowest_frame_where_none_is_free() -> None:
    tree = fold_trace(trace(*(cpu(f"op {n}", n * 100, 100 if n < 4 else 1) for n in range(5))), FoldBy.OP, FoldTime.CPU)
    assert describe(tree, lay_out(tree, Zoom(), 8).rows[1])[-2:] == [(5, 2, "op 3"), (7, 1, "+1")]
    assert describe(tree, lay_out(tree, Zoom(), 1).rows[1]) == [(0, 1, "+5")]


def test_zooming_into_a_rest_comes_to_every_frame() -> None:
    tree = siblings(*[1] * 500)
    zoom, seen = Zoom(1), 0
    for _ in range(501):
        check_tiling(tree, Zoom(), 20)
        row = lay_out(tree, zoom, 20).rows[2]
        seen += sum(1 for box in row if not box.merged)
        rest = [box for box in row if box.merged]
        if not rest:
            break
        zoom = Zoom(1, rest[0].node)
    assert seen == 500


def test_a_cell_belongs_to_the_box_at_it() -> None:
    tree = siblings(400, 300, 2, 1, 1)
    layout = lay_out(tree, Zoom(), 70)
    assert [layout.find_at(2, x) for x in (0, 38, 39, 68, 69)] == [0, 0, 1, 2, -1]
    assert layout.find_at(9, 0) == -1
    assert layout.find_first_child(1, 0) == 0
    assert layout.find_first_child(2, 0) == -1
