"""Test the viewport: no move leaves the trace, a requested range is shown, and a cell is never below 1 ns."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.lane_rows import FAR
from tests.helpers.viewports import WIDTHS, viewports
from torchprof_tui.trace.query.cells import cell_edges
from torchprof_tui.trace.query.viewport import Viewport

TIMES = st.integers(-2 * FAR, 2 * FAR)


MOVES: st.SearchStrategy[Callable[[Viewport], Viewport]] = st.one_of(
    TIMES.map(lambda ns: methodcaller("pan", ns)),
    st.integers(-1000, 1000).map(lambda count: methodcaller("pan_cells", count)),
    st.tuples(TIMES, st.floats(1e-16, 1e16)).map(lambda pair: methodcaller("zoom", *pair)),
    TIMES.map(lambda time: methodcaller("centre", time)),
    WIDTHS.map(lambda width: methodcaller("resize", width)),
)


@given(viewports(), st.lists(MOVES, min_size=1, max_size=6))
def test_no_key_leads_out_of_the_trace_or_below_a_nanosecond_a_cell(
    view: Viewport, moves: list[Callable[[Viewport], Viewport]]
) -> None:
    for move in moves:
        view = move(view)
        assert view.limits[0] <= view.t0 < view.t1 <= view.limits[1]
        assert view.span >= view.width
        assert all(type(time) is int for time in (view.t0, view.t1, *view.limits))


@given(viewports(), TIMES, st.integers(0, FAR), st.lists(MOVES, max_size=6))
def test_from_what_lies_beyond_the_limits_keys_lead_back_but_not_further(
    view: Viewport, start: int, length: int, moves: list[Callable[[Viewport], Viewport]]
) -> None:
    view = view.fit(start, start + length)
    for move in moves:
        low, high = min(view.limits[0], view.t0), max(view.limits[1], view.t1)
        width, span, view = view.width, view.span, move(view)
        slack = view.width - width if view.width > span else 0
        assert low - max(slack, 0) <= view.t0 < view.t1 <= high + max(slack, 0)
        assert view.span >= view.width


@given(viewports(), TIMES)
def test_a_pan_keeps_the_zoom(view: Viewport, ns: int) -> None:
    assert view.pan(ns).span == view.centre(ns).span == view.span


@given(viewports(), st.data(), st.floats(0.05, 0.95))
def test_zooming_keeps_the_time_under_the_cursor(view: Viewport, data: st.DataObject, factor: float) -> None:
    at = data.draw(st.integers(view.t0, view.t1 - 1))
    closer = view.zoom(at, factor)
    assert abs(closer.cell(at) - view.cell(at)) <= 1


@given(viewports(), st.data(), st.floats(0.05, 0.95))
def test_zooming_in_and_out_again_comes_back(view: Viewport, data: st.DataObject, factor: float) -> None:
    """Up to the rounding of a nanosecond at the closer zoom, except where the limit of 1 ns a cell applies."""
    at = data.draw(st.integers(view.t0, view.t1 - 1))
    closer = view.zoom(at, factor)
    if closer.span == closer.width:
        return
    back = closer.zoom(at, view.span / closer.span)
    slack = 2 + 2 * view.span / closer.span + view.span * 1e-15
    assert abs(back.t0 - view.t0) <= slack
    assert abs(back.t1 - view.t1) <= slack


@given(viewports(), st.data())
def test_a_time_is_in_the_cell_that_drawing_puts_it_in(view: Viewport, data: st.DataObject) -> None:
    time = data.draw(st.integers(view.t0, view.t1 - 1))
    cell = view.cell(time)
    edges = cell_edges(view.t0, view.t1, view.width)
    assert 0 <= cell < view.width
    assert edges[cell] <= time < edges[cell + 1]


@given(viewports())
def test_cells_and_times_are_each_others_opposite(view: Viewport) -> None:
    edges = cell_edges(view.t0, view.t1, view.width).tolist()
    for cell in range(0, view.width, max(view.width // 20, 1)):
        assert view.time(cell) == edges[cell]
        assert view.cell(view.time(cell)) == cell
        assert view.cell(view.middle(cell)) == cell
    assert view.cell(view.t1) == view.width
    assert view.cell(view.t0 - 1) < 0


@given(viewports(), st.data())
def test_what_is_fitted_is_seen_whole_with_room_around_it(view: Viewport, data: st.DataObject) -> None:
    start, end = sorted(data.draw(st.tuples(TIMES, TIMES)))
    fitted = view.fit(start, end)
    assert fitted.t0 <= start
    assert end <= fitted.t1
    assert fitted.span <= max(1.2 * (end - start), view.width) + 2


@given(viewports(), st.data())
def test_what_is_revealed_is_seen_at_the_same_zoom(view: Viewport, data: st.DataObject) -> None:
    start = data.draw(st.one_of(TIMES, st.integers(view.t0, view.t1)))
    end = start + data.draw(st.one_of(st.integers(1, FAR), st.integers(1, 2 * view.span)))
    shown = view.reveal(start, end)
    assert shown.span == view.span
    if view.t0 <= start and end <= view.t1:
        assert shown == view
    if end - start <= view.span:
        assert shown.t0 <= start
        assert end <= shown.t1
    else:
        assert shown.t0 <= start < shown.t1 or (start < shown.t0 and shown.t1 <= end)


def test_the_whole_trace_has_a_margin_and_is_known_as_whole() -> None:
    view = Viewport.whole((0, 1000), 100)
    assert (view.t0, view.t1) == (-20, 1020)
    assert view.is_whole
    assert not view.zoom(500, 0.5).is_whole
    assert view.zoom(500, 0.5).zoom(500, 100).is_whole


def test_a_pan_goes_as_far_as_the_limits_allow() -> None:
    view = Viewport.whole((0, 1000), 100).zoom(500, 0.5)
    assert view.pan(10**9).t1 == 1020
    assert view.pan(-(10**9)).t0 == -20
    assert view.pan_cells(10).t0 - view.t0 == view.span // 10


def test_a_mark_far_outside_the_trace_can_be_shown() -> None:
    """Its time must not zoom everything out, but selecting it must show it."""
    view = Viewport.whole((0, 1000), 100)
    far = view.reveal(-(10**12), -(10**12) + 1)
    assert far.t0 <= -(10**12) < far.t1
    assert far.span == view.span
    assert far.pan(-500) == far
    assert far.zoom(far.t0, 1000).span == view.span
    assert far.pan(2 * 10**12).t1 == view.t1
    fitted = view.fit(-(10**12), -(10**12) + 50_000)
    assert fitted.t0 <= -(10**12)
    assert fitted.t1 >= -(10**12) + 50_000


def test_closest_is_one_nanosecond_a_cell() -> None:
    view = Viewport.whole((0, 10**12), 80).zoom(5 * 10**11, 1e-30)
    assert view.span == 80
    assert view.ns_per_cell == 1
    assert view.cell(5 * 10**11) == 40


def test_a_trace_of_one_instant_can_be_shown() -> None:
    view = Viewport.whole((7, 7), 80)
    assert view.span == 80
    assert view.t0 <= 7 < view.t1
    assert view.zoom(7, 0.1) == view


def test_the_whole_stays_whole_when_the_terminal_is_resized() -> None:
    tiny = Viewport.whole((0, 50), 40)
    assert tiny.resize(200).is_whole
    assert tiny.resize(200).span >= 200
    closer = Viewport.whole((0, 10**6), 100).zoom(0, 0.1)
    assert (closer.resize(50).t0, closer.resize(50).t1) == (closer.t0, closer.t1)


def test_a_pointer_between_two_nanoseconds() -> None:
    view = Viewport.whole((0, 1000), 100)
    assert view.zoom(499.7, 0.5) == view.zoom(500, 0.5)
    assert view.centre(499.7) == view.centre(500)


def test_a_viewport_has_at_least_one_cell() -> None:
    with pytest.raises(ValueError, match="one cell"):
        Viewport.whole((0, 10), 0)
    with pytest.raises(ValueError, match="one cell"):
        Viewport.whole((0, 10), 5).resize(0)
