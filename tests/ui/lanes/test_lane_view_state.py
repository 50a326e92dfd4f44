"""The state of the lanes: scrolling, folded ranks, and the stream that is off screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import cpu, kernel, trace
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.ui.lanes.lane_view_state import LaneViewState


def test_the_busiest_stream_is_pinned_where_the_lanes_scroll() -> None:
    deep = [cpu(f"f{depth}", depth, 100 - 2 * depth) for depth in range(30)]
    shown = trace(*deep, kernel("k", 5, 5), kernel("a", 0, 1, stream=8), kernel("b", 5, 1, stream=8))
    busiest = next(number for number, lane in enumerate(shown.lanes) if lane.role is Role.STREAM and len(lane) == 2)
    assert LaneViewState(shown, 7).pin_streams(0, len(shown.lanes)).pinned == (busiest,)  # a quarter is one line
    assert len(LaneViewState(shown, 12).pin_streams(0, len(shown.lanes)).pinned) == 2
    assert LaneViewState(shown, 60).pin_streams(0, len(shown.lanes)).pinned == ()
    view = LaneViewState(shown, 12)
    view.scroll_to_row(busiest, 0)
    assert view.lane_lines.screen_line_index(busiest, 0, view.top, 12) is not None
    view.scroll(-1000)
    assert view.top == 0
    view.scroll(1000)
    view.resize(20)
    assert view.top == len(view.lane_lines.body) - 20


def test_a_folded_rank_stands_for_its_lanes_and_shows_its_fullest_stream(tmp_path: Path) -> None:
    shown = load_merged_ranks(late_rank(2, late=1).write(tmp_path))
    assert shown.merged_ranks is not None
    rank = shown.merged_ranks.all[1]
    view = LaneViewState(shown, 20)
    assert view.lane_order() == [rank.header_lane for rank in shown.merged_ranks.all]
    inside = rank.first_lane
    assert view.displayed_lane(inside) == rank.header_lane
    event = view.find_nearest_event(rank.header_lane, 0)
    streams = [k for k in range(rank.first_lane, rank.last_lane) if shown.lanes[k].role is Role.STREAM]
    assert len(shown.lanes[int(shown.lane[event])]) == max(len(shown.lanes[k]) for k in streams)
    view.apply_arrangement(view.arrangement.toggle_pin(inside))
    assert view.displayed_lane(inside) == inside
    view.apply_arrangement(view.arrangement.toggle_fold((rank.header_lane,)))
    assert view.find_nearest_event(rank.header_lane, 0) == -1  # unfolded: its own lanes hold the events
    view.apply_arrangement(replace(view.arrangement, hidden=view.arrangement.hidden | {rank.header_lane}))
    view.reveal_lane(inside)
    assert not view.arrangement.hidden
    assert not view.apply_arrangement(view.arrangement)
