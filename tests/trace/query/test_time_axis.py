"""Test times as text, and the ticks of the ruler."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.viewports import viewports
from torchprof_tui.trace.core.time_format import MAX_TIME, format_duration, format_time, parse_time
from torchprof_tui.trace.query.viewport import LABEL_GAP, Viewport, compute_ticks


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (640, "640 ns"),
        (999, "999 ns"),
        (999.6, "1.00 µs"),
        (1000, "1.00 µs"),
        (1920, "1.92 µs"),
        (9994, "9.99 µs"),
        (9995, "10.0 µs"),
        (34_100, "34.1 µs"),
        (159_600, "159.6 µs"),
        (999_949, "999.9 µs"),
        (999_950, "1.00 ms"),
        (75_449_999, "75.4 ms"),
        (10**9, "1.00 s"),
        (7_654_321_000_000, "7,654.3 s"),
        (-1920, "-1.92 µs"),
        (-0.2, "0 ns"),
    ],
)
def test_durations(ns: float, text: str) -> None:
    assert format_duration(ns) == text


@given(st.integers(0, 10**16))
def test_a_duration_is_never_off_by_more_than_its_last_digit(ns: int) -> None:
    number, unit = format_duration(ns).replace(",", "").split()
    scale = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9}[unit]
    decimals = len(number.partition(".")[2])
    assert abs(float(number) * scale - ns) <= 0.5001 * scale / 10**decimals + ns * 1e-12


@pytest.mark.parametrize(
    ("ns", "step", "reach", "text"),
    [
        (120_000, 20_000, 206_000, "120 µs"),
        (120_000, 20_000, 1_206_000, "0.12 ms"),
        (0, 500_000_000, 5_000_000_000, "0.0 s"),
        (3_000_000_020, 20, None, "3.00000002 s"),
        (132_311, 1, None, "132.311 µs"),
        (-4_120, 1, None, "-4.120 µs"),
        (7, 1, None, "7 ns"),
        (2_000_000_000, 10**9, None, "2 s"),
    ],
)
def test_instants(ns: int, step: int, reach: int | None, text: str) -> None:
    assert format_time(ns, step, reach) == text


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("12.5ms", 12_500_000),
        (" 120 us ", 120_000),
        ("120 µs", 120_000),
        ("120 μs", 120_000),
        ("1.5", 1500),
        ("1.23456789s", 1_234_567_890),
        ("-3 ns", -3),
        (".5MS", 500_000),
        ("1.9ns", 1),
        ("99999999999999999999", MAX_TIME),
        ("-" + "9" * 5000 + "s", -MAX_TIME),
        ("0" * 5000 + "7ns", 7),
    ],
)
def test_times_as_people_write_them(text: str, ns: int) -> None:
    assert parse_time(text) == ns


@pytest.mark.parametrize("text", ["", "ms", "5 h", ".", "1.5.2", "1e3", "--3", "٣"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        parse_time(text)


@given(st.integers(-(10**16), 10**16))
def test_what_is_written_can_be_read_again(ns: int) -> None:
    assert parse_time(format_time(ns)) == ns


@given(viewports())
def test_ticks_are_round_unique_and_do_not_run_into_each_other(view: Viewport) -> None:
    marks = compute_ticks(view)
    assert len({mark.label for mark in marks}) == len(marks)
    assert all(view.t0 <= mark.time < view.t1 and mark.cell == view.cell(mark.time) for mark in marks)
    for mark, following in itertools.pairwise(marks):
        assert following.cell - mark.cell >= len(mark.label) + LABEL_GAP - 1
        step = following.time - mark.time
        assert str(step).rstrip("0") in ("1", "2", "5")
        assert mark.time % step == 0
        assert parse_time(mark.label) == mark.time


@given(viewports())
def test_a_screen_of_usual_width_has_several_ticks(view: Viewport) -> None:
    if view.width >= 120:
        assert len(compute_ticks(view)) >= 2


def test_the_ruler_of_the_design() -> None:
    view = Viewport(110_000, 190_000, 60, (0, 206_000))
    assert [(mark.cell, mark.label) for mark in compute_ticks(view)] == [
        (7, "120 µs"),
        (22, "140 µs"),
        (37, "160 µs"),
        (52, "180 µs"),
    ]
