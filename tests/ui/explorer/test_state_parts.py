"""What the walk is made of, each on its own: the mark, what can be typed to go to, the search, the lanes' view."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import cpu, kernel, trace
from tests.trace.ranks.test_collective_matching import merged
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.ui.explorer.goto_target import Moment, StepNumber, destination
from torchprof_tui.ui.explorer.lanes.lane_view_state import LaneView
from torchprof_tui.ui.explorer.range_mark import Mark
from torchprof_tui.ui.explorer.search_state import NameSearch

US = 1000
TIME = st.integers(0, 1000)


@given(TIME, st.lists(st.tuples(TIME, st.integers(1, 50)), max_size=6))
def test_a_live_mark_reaches_from_its_anchor_to_where_one_is(begun: int, places: list[tuple[int, int]]) -> None:
    mark = Mark.begun((begun, begun + 10))
    for start, length in places:
        mark = mark.reaching(start, start + length)
        assert (mark.start, mark.end) == (min(begun, start), max(begun + 10, start + length))
    assert mark.fixed().reaching(5000, 6000) == mark.fixed()


def test_a_range_between_two_places_lies_inside_the_limits() -> None:
    limits = (100, 200)
    assert Mark.between(120, 150, limits) == Mark(120, 150, (120, 150))
    assert Mark.between(120, 120, limits) == Mark(120, 121, (120, 121))
    assert Mark.between(0, 999, limits) == Mark(100, 200, (100, 200))
    assert Mark.between(300, 400, limits) is None
    assert Mark.between(0, 50, limits) is None


@pytest.mark.parametrize("text", ["#3", "step 3", "STEP3", " ProfilerStep#3 ", "step #3"])
def test_a_step_by_any_of_its_names(text: str) -> None:
    assert destination(text) == StepNumber(3)


@pytest.mark.parametrize(("text", "ns"), [("3", 3 * US), ("1.5ms", 1_500_000), ("-2 us", -2 * US)])
def test_a_bare_number_is_a_time(text: str, ns: int) -> None:
    assert destination(text) == Moment(ns)


@pytest.mark.parametrize("text", ["", "#", "step", "#²", "soon"])
def test_what_is_neither_says_what_can_be_typed(text: str) -> None:
    with pytest.raises(ValueError, match=r"12\.5ms"):
        destination(text)


def test_the_search_counts_from_an_event_or_a_time() -> None:
    shown = trace(cpu("mm", 0, 5), cpu("add", 10, 5), cpu("mm", 20, 5), cpu("mm", 30, 5))
    names = NameSearch(shown)
    assert names.beside(0, 0, True) == -1  # nothing is searched for
    assert names.look_for("mm") == ""
    assert [names.place_of(event) for event in (-1, 0, 1, 2, 3)] == [0, 1, 0, 2, 3]
    assert names.beside(-1, 12 * US, True) == 2
    assert names.beside(-1, 12 * US, False) == 0
    assert [names.beside(event, 0, True) for event in (0, 2, 3)] == [2, 3, 0]
    assert "regular expression" in names.look_for("/(/")
    assert (names.found, names.query) == (None, "/(/")


def test_the_stream_that_is_out_of_sight() -> None:
    deep = [cpu(f"f{depth}", depth, 100 - 2 * depth) for depth in range(30)]
    shown = trace(*deep, kernel("k", 5, 5), kernel("a", 0, 1, stream=8), kernel("b", 5, 1, stream=8))
    busiest = next(number for number, lane in enumerate(shown.lanes) if lane.role is Role.STREAM and len(lane) == 2)
    assert LaneView(shown, 12).unseen_stream() == busiest
    assert LaneView(shown, 60).unseen_stream() == -1
    view = LaneView(shown, 12)
    view.reveal(busiest, 0)
    assert view.lines.line_on_screen(busiest, 0, view.top, 12) is not None
    view.scroll(-1000)
    assert view.top == 0
    view.scroll(1000)
    view.resize(20)
    assert view.top == len(view.lines.body) - 20


def test_a_folded_rank_stands_for_its_lanes_and_shows_its_fullest_stream(tmp_path: Path) -> None:
    shown = merged(late_rank(2, late=1).write(tmp_path))
    assert shown.ranks is not None
    rank = shown.ranks.all[1]
    view = LaneView(shown, 20)
    assert view.order() == [each.own_lane for each in shown.ranks.all]
    inside = rank.first_lane
    assert view.line_for(inside) == rank.own_lane
    event = view.nearest(rank.own_lane, 0)
    streams = [k for k in range(rank.first_lane, rank.last_lane) if shown.lanes[k].role is Role.STREAM]
    assert len(shown.lanes[int(shown.lane[event])]) == max(len(shown.lanes[k]) for k in streams)
    view.arrange(view.arrangement.pin(inside))
    assert view.line_for(inside) == inside
    view.arrange(view.arrangement.fold((rank.own_lane,)))
    assert view.nearest(rank.own_lane, 0) == -1  # open: its own lanes are there to be walked
    view.arrange(view.arrangement.hide(rank.own_lane))
    view.bring_back(inside)
    assert not view.arrangement.hidden
    assert not view.arrange(view.arrangement)
