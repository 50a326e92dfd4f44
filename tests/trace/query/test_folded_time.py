"""Test the folded time axis: positions and times go back and forth, and viewports on it behave as on a plain one."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.lane_rows import Bar, bar_rows, index
from torchprof_tui.trace.query.folded_time import FoldedTime
from torchprof_tui.trace.query.viewport import Viewport, compute_ticks, compute_viewport_cells


@st.composite
def folds(draw: st.DrawFn) -> FoldedTime:
    edges = list(accumulate(draw(st.lists(st.integers(1, 60), max_size=12)), initial=draw(st.integers(-20, 20))))
    pairs = zip(edges[::2], edges[1::2], strict=False)
    return FoldedTime.of_ranges([(start, end, draw(st.integers(0, 70))) for start, end in pairs])


def slow_position(fold: FoldedTime, time: int) -> int:
    """Count what is left of the axis before a time, range by range."""
    position = time
    for start, end, width in zip(fold.starts, fold.ends, fold.widths, strict=True):
        if time >= end:
            position -= end - start - width
        elif time > start:
            position -= time - start - (time - start) * width // (end - start)
    return position


@given(folds(), st.integers(-100, 800))
def test_positions_are_those_counted_range_by_range(fold: FoldedTime, time: int) -> None:
    assert fold.position(time) == slow_position(fold, time)
    assert 0 <= fold.position(time + 1) - fold.position(time) <= 1


@given(folds(), st.integers(-100, 800))
def test_every_position_has_a_first_time(fold: FoldedTime, position: int) -> None:
    time = fold.time(position)
    assert fold.position(time) == position
    assert fold.position(time - 1) < position


@given(folds(), st.integers(-100, 800), st.integers(0, 60))
def test_a_seam_hides_what_is_within_it(fold: FoldedTime, start: int, length: int) -> None:
    end = max(start + length, start + 1)
    inside = [k for k, (low, high) in enumerate(zip(fold.starts, fold.ends, strict=True)) if low <= start < end <= high]
    assert fold.find_seam(start, start + length) == (inside[0] if inside else -1)


@pytest.mark.parametrize("ranges", [[(5, 5, 1)], [(0, 10, 2), (9, 12, 1)]])
def test_ranges_that_are_empty_or_overlap_are_refused(ranges: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ValueError, match="hidden range"):
        FoldedTime.of_ranges(ranges)


@given(folds(), st.integers(1, 120), st.floats(0.05, 1.0), st.data())
def test_a_folded_viewport_moves_as_a_plain_one_on_the_axis(
    fold: FoldedTime, width: int, factor: float, data: st.DataObject
) -> None:
    """The oracle is a viewport without a fold, whose times are the positions."""
    view = replace(Viewport.whole((-100, 900), width), fold=fold)
    low, high = fold.position(view.t0), fold.position(view.t1)
    plain = Viewport(low, high, width, (low, high))
    at, shift = data.draw(st.integers(-100, 900)), data.draw(st.integers(-300, 300))
    view, plain = view.zoom(at, factor).pan(shift), plain.zoom(fold.position(at), factor).pan(shift)
    assert (fold.position(view.t0), fold.position(view.t1)) == (plain.t0, plain.t1)
    assert view.span == plain.span
    assert view.cell(at) == plain.cell(fold.position(at))
    assert [fold.position(view.time(cell)) for cell in range(width)] == [plain.time(cell) for cell in range(width)]
    assert view.fit_limits().is_whole


@given(folds(), st.integers(1, 120), st.floats(0.02, 1.0), st.integers(-100, 900))
def test_sections_fill_the_screen(fold: FoldedTime, width: int, factor: float, at: int) -> None:
    view = replace(Viewport.whole((-100, 900), width), fold=fold).zoom(at, factor)
    sections = view.list_sections()
    assert [section.first for section in sections] == [0, *(section.end for section in sections)][:-1]
    assert sections[-1].end == width
    for section in sections:
        if section.seam < 0:  # a linear part has no hidden ns: its length on the axis is its duration
            assert view.measure(section.t0, section.t1) == section.t1 - section.t0
            assert view.cell(section.t0) == section.first or view.span < width


@given(bar_rows(), folds(), st.integers(1, 60))
def test_linear_parts_show_what_they_show_without_a_fold(rows: list[list[Bar]], fold: FoldedTime, width: int) -> None:
    view = replace(Viewport.whole((-50, 700), width), fold=fold)
    built = index(rows)
    got = compute_viewport_cells(built, np.arange(len(rows), dtype=np.int32), view)
    for first, end, t0, t1, seam in view.list_sections():
        if seam >= 0:
            assert (got.event[:, first:end] == -1).all()
            continue
        for number, row in enumerate(rows):
            touched = any(bar.start < t1 and bar.end > t0 for bar in row)
            assert bool((got.event[number, first:end] >= 0).any()) == touched


def test_ticks_are_beside_the_seams_only() -> None:
    fold = FoldedTime.of_ranges([(1_000, 9_000_000, 2_000)])
    view = replace(Viewport.whole((0, 9_010_000), 100), fold=fold)
    ticks = compute_ticks(view)
    assert 2 < len(ticks) < 20
    assert all(fold.find_seam(tick.time, tick.time + 1) < 0 for tick in ticks)
