"""What the walk is made of, each on its own: the mark, what can be typed to go to, the search, the lanes' view."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.merged_ranks import merged
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import cpu, kernel, trace
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.ui.explorer.goto_target import StepNumber, TimePoint, parse_goto_target
from torchprof_tui.ui.explorer.lanes.lane_view_state import LaneViewState
from torchprof_tui.ui.explorer.range_mark import RangeMark
from torchprof_tui.ui.explorer.search_state import NameSearch

US = 1000
TIME = st.integers(0, 1000)


@given(TIME, st.lists(st.tuples(TIME, st.integers(1, 50)), max_size=6))
def test_a_live_mark_reaches_from_its_anchor_to_where_one_is(begun: int, places: list[tuple[int, int]]) -> None:
    mark = RangeMark.begin_at((begun, begun + 10))
    for start, length in places:
        mark = mark.extend_to(start, start + length)
        assert (mark.start, mark.end) == (min(begun, start), max(begun + 10, start + length))
    assert mark.freeze().extend_to(5000, 6000) == mark.freeze()


def test_a_range_between_two_places_lies_inside_the_limits() -> None:
    limits = (100, 200)
    assert RangeMark.from_range(120, 150, limits) == RangeMark(120, 150, (120, 150))
    assert RangeMark.from_range(120, 120, limits) == RangeMark(120, 121, (120, 121))
    assert RangeMark.from_range(0, 999, limits) == RangeMark(100, 200, (100, 200))
    assert RangeMark.from_range(300, 400, limits) is None
    assert RangeMark.from_range(0, 50, limits) is None


@pytest.mark.parametrize("text", ["#3", "step 3", "STEP3", " ProfilerStep#3 ", "step #3"])
def test_a_step_by_any_of_its_names(text: str) -> None:
    assert parse_goto_target(text) == StepNumber(3)


@pytest.mark.parametrize(("text", "ns"), [("3", 3 * US), ("1.5ms", 1_500_000), ("-2 us", -2 * US)])
def test_a_bare_number_is_a_time(text: str, ns: int) -> None:
    assert parse_goto_target(text) == TimePoint(ns)


@pytest.mark.parametrize("text", ["", "#", "step", "#²", "soon"])
def test_what_is_neither_says_what_can_be_typed(text: str) -> None:
    with pytest.raises(ValueError, match=r"12\.5ms"):
        parse_goto_target(text)


def test_the_search_counts_from_an_event_or_a_time() -> None:
    shown = trace(cpu("mm", 0, 5), cpu("add", 10, 5), cpu("mm", 20, 5), cpu("mm", 30, 5))
    names = NameSearch(shown)
    assert names.find_adjacent_match(0, 0, True) == -1  # nothing is searched for
    assert names.set_query("mm") == ""
    assert [names.match_number(event) for event in (-1, 0, 1, 2, 3)] == [0, 1, 0, 2, 3]
    assert names.find_adjacent_match(-1, 12 * US, True) == 2
    assert names.find_adjacent_match(-1, 12 * US, False) == 0
    assert [names.find_adjacent_match(event, 0, True) for event in (0, 2, 3)] == [2, 3, 0]
    assert "regular expression" in names.set_query("/(/")
    assert (names.matches, names.query) == (None, "/(/")


def test_the_stream_that_is_out_of_sight() -> None:
    deep = [cpu(f"f{depth}", depth, 100 - 2 * depth) for depth in range(30)]
    shown = trace(*deep, kernel("k", 5, 5), kernel("a", 0, 1, stream=8), kernel("b", 5, 1, stream=8))
    busiest = next(number for number, lane in enumerate(shown.lanes) if lane.role is Role.STREAM and len(lane) == 2)
    assert LaneViewState(shown, 12).find_unseen_stream() == busiest
    assert LaneViewState(shown, 60).find_unseen_stream() == -1
    view = LaneViewState(shown, 12)
    view.scroll_to_row(busiest, 0)
    assert view.lane_lines.screen_line_index(busiest, 0, view.top, 12) is not None
    view.scroll(-1000)
    assert view.top == 0
    view.scroll(1000)
    view.resize(20)
    assert view.top == len(view.lane_lines.body) - 20


def test_a_folded_rank_stands_for_its_lanes_and_shows_its_fullest_stream(tmp_path: Path) -> None:
    shown = merged(late_rank(2, late=1).write(tmp_path))
    assert shown.ranks is not None
    rank = shown.ranks.all[1]
    view = LaneViewState(shown, 20)
    assert view.lane_order() == [each.header_lane for each in shown.ranks.all]
    inside = rank.first_lane
    assert view.displayed_lane(inside) == rank.header_lane
    event = view.find_nearest_event(rank.header_lane, 0)
    streams = [k for k in range(rank.first_lane, rank.last_lane) if shown.lanes[k].role is Role.STREAM]
    assert len(shown.lanes[int(shown.lane[event])]) == max(len(shown.lanes[k]) for k in streams)
    view.apply_arrangement(view.arrangement.toggle_pin(inside))
    assert view.displayed_lane(inside) == inside
    view.apply_arrangement(view.arrangement.toggle_fold((rank.header_lane,)))
    assert view.find_nearest_event(rank.header_lane, 0) == -1  # open: its own lanes are there to be walked
    view.apply_arrangement(view.arrangement.hide_lane(rank.header_lane))
    view.reveal_lane(inside)
    assert not view.arrangement.hidden
    assert not view.apply_arrangement(view.arrangement)
