"""The view state: viewport, marked range and lane arrangement; no screen."""

from __future__ import annotations

import pytest

from tests.helpers.explorer_app import event_of, two_steps
from tests.helpers.trace_builder import cpu, kernel, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.ranks.collective_matching import read_collectives
from torchprof_tui.trace.ranks.merge import OpenedRank, merge_ranks
from torchprof_tui.ui.lanes.screen_lines import LineContent
from torchprof_tui.ui.lanes.selection_moves import SelectionMoves
from torchprof_tui.ui.lanes.view_state import NOTHING_TO_CLEAR, ViewState

US = 1000


@pytest.fixture
def shown() -> Trace:
    return two_steps()


@pytest.fixture
def state(shown: Trace) -> ViewState:
    return ViewState(shown, width=100, height=20)


@pytest.fixture
def moves(state: ViewState) -> SelectionMoves:
    return SelectionMoves(state)


def name_of(state: ViewState) -> str:
    return state.trace.event(state.selected).name if state.selected >= 0 else ""


class TestTime:
    def test_zoom_holds_the_middle_of_the_selected_event(self, state: ViewState, shown: Trace) -> None:
        event = event_of(shown, "aten::add")
        state.select(event)
        middle = (160 + 190) // 2 * US
        before = state.viewport.cell(middle)
        state.zoom(3)
        assert state.viewport.span < 150 * US
        assert abs(state.viewport.cell(middle) - before) <= 1

    def test_an_event_out_of_sight_holds_nothing(self, state: ViewState, shown: Trace) -> None:
        state.select(event_of(shown, "aten::mm", 0))
        state.zoom(6)
        state.pan_to(200 * US)
        state.pointer_time = None
        assert state.cursor_time() == (state.viewport.t0 + state.viewport.t1) // 2
        state.pointer_time = state.viewport.t0 + 7
        assert state.cursor_time() == state.viewport.t0 + 7

    def test_capitals_go_five_times_as_far(self, shown: Trace) -> None:
        near, far = ViewState(shown, 100, 20), ViewState(shown, 100, 20)
        far.zoom(5)
        for _ in range(5):
            near.zoom(1)
        assert abs(near.viewport.span - far.viewport.span) < near.viewport.span * 0.01
        near.pan(1)
        far.pan(5)
        shift = far.viewport.t0 - near.viewport.t0
        assert abs(shift - near.viewport.span * 4 // 10) <= near.viewport.span * 0.02

    def test_fit_then_its_parent_then_everything(self, state: ViewState, shown: Trace) -> None:
        state.select(event_of(shown, "aten::add"))
        spans = []
        for _ in range(4):
            assert state.fit_selection() == ""
            spans.append(state.viewport.span // US)
        assert spans[0] == pytest.approx(30 * 1.1, abs=1)
        assert spans[1] == pytest.approx(90 * 1.1, abs=1)
        assert spans[2] == pytest.approx(120 * 1.1, abs=1)
        assert state.viewport.is_whole
        assert name_of(state) == "aten::add"

    def test_fit_without_anything_to_fit_says_what_to_do(self, state: ViewState) -> None:
        assert "0 shows the whole trace" in state.fit_selection()
        state.mark_range(50 * US, 60 * US)
        assert state.fit_selection() == ""
        assert state.viewport.span < 12 * US

    def test_selecting_pans_only_when_it_must(self, state: ViewState, shown: Trace) -> None:
        state.viewport = state.viewport.fit(0, 60 * US)
        before = state.viewport
        state.select(event_of(shown, "aten::mm", 0))
        assert state.viewport == before
        state.select(event_of(shown, "work", 0))  # longer than what is seen of it, but it is seen
        assert state.viewport.span == before.span
        state.select(event_of(shown, "aten::add"))
        assert state.viewport.t0 <= 160 * US
        assert state.viewport.t1 >= 190 * US
        assert state.viewport.span == before.span

    @pytest.mark.parametrize(("text", "at"), [("120us", 120), ("0.05ms", 50), ("  150 µs ", 150), ("70", 70)])
    def test_go_to_a_time(self, state: ViewState, text: str, at: int) -> None:
        state.zoom(8)
        assert state.go_to(text) == ""
        assert state.viewport.t0 <= at * US < state.viewport.t1
        assert state.cursor_time() == at * US

    @pytest.mark.parametrize("text", ["#1", "step 1", "step1", "Step #1", "ProfilerStep#1"])
    def test_go_to_a_step(self, state: ViewState, text: str) -> None:
        assert state.go_to(text) == ""
        assert name_of(state) == "ProfilerStep#1"

    @pytest.mark.parametrize(
        ("text", "message"), [("#9", "there are #0, #1"), ("soon", "not a time"), ("3s", "is outside the trace")]
    )
    def test_go_to_what_is_not_there(self, state: ViewState, text: str, message: str) -> None:
        assert message in state.go_to(text)


class TestMark:
    def test_marks_the_selected_event_then_grows_with_the_selection(
        self, state: ViewState, moves: SelectionMoves, shown: Trace
    ) -> None:
        state.select(event_of(shown, "aten::mm", 1))
        state.toggle_mark()
        assert state.mark
        assert (state.mark.start, state.mark.end, state.mark.live) == (120 * US, 150 * US, True)
        moves.next_in_row(1)
        assert (state.mark.start, state.mark.end) == (120 * US, 190 * US)
        state.toggle_mark()
        moves.next_in_row(-1)
        moves.next_in_row(-1)
        assert state.mark
        assert (state.mark.start, state.mark.end, state.mark.live) == (120 * US, 190 * US, False)

    def test_without_a_selection_it_follows_the_cursor(self, state: ViewState) -> None:
        state.zoom(4)
        state.toggle_mark()
        start = state.cursor_time()
        state.pan(3)
        assert state.mark
        assert state.mark.start == start
        assert state.mark.end == state.cursor_time() + 1

    def test_a_dragged_range_is_never_empty_or_outside(self, state: ViewState) -> None:
        state.mark_range(5 * US, 5 * US)
        assert state.mark
        assert state.mark.end > state.mark.start
        state.mark_range(-(10**9), 10**9)
        assert (state.mark.start, state.mark.end) == state.viewport.limits

    def test_clear_takes_one_thing_at_a_time(self, state: ViewState, shown: Trace) -> None:
        state.select(event_of(shown, "gemm"))
        state.search.set_query("mm")
        state.toggle_mark()
        assert [state.clear_last() for _ in range(4)] == [
            "mark cleared",
            "search cleared",
            "selection cleared",
            NOTHING_TO_CLEAR,
        ]


class TestLanes:
    def test_fold_shows_one_line_and_keeps_the_selection_in_place(self, state: ViewState, shown: Trace) -> None:
        state.select(event_of(shown, "cudaLaunchKernel"))
        before = len(state.lane_view.lane_lines.body)
        state.toggle_fold((0,))
        assert len(state.lane_view.lane_lines.body) == before - 3
        assert state.lane_view.lane_lines.line_index(0, 3) == state.lane_view.lane_lines.line_index(0, 0)
        state.toggle_fold((0,))
        assert len(state.lane_view.lane_lines.body) == before

    def test_pinned_lanes_stay_on_top(self, state: ViewState) -> None:
        state.toggle_pin(1)
        window = state.lane_view.lane_lines.visible_lines(3, 6)
        assert [line.content for line in window[:2]] == [LineContent.ROW, LineContent.RULE]
        assert window[0].lane == 1
        state.toggle_pin(1)
        assert not state.lane_view.lane_lines.pinned

    def test_hide_moves_on_and_the_last_lane_stays(self, state: ViewState, shown: Trace) -> None:
        state.select(event_of(shown, "gemm"))
        assert state.hide_lane(1) == f"hidden: {shown.lanes[1].label} · :unhide shows it again"
        assert (state.selected, state.lane) == (-1, 0)
        assert state.hide_lane(0) == "the last lane stays"
        assert state.unhide_lanes() == "1 hidden lane shown again"
        assert state.unhide_lanes() == "no lane is hidden"

    def test_a_deep_stack_pins_the_stream_at_first_sight(self) -> None:
        deep = [cpu(f"f{depth}", depth, 100 - 2 * depth) for depth in range(30)]
        state = ViewState(trace(*deep, kernel("k", 5, 5)), width=80, height=12)
        state.arrange_lanes()
        assert [line.lane for line in state.lane_view.lane_lines.pinned] == [1]
        roomy = ViewState(trace(*deep, kernel("k", 5, 5)), width=80, height=60)
        roomy.arrange_lanes()
        assert not roomy.lane_view.lane_lines.pinned

    def test_the_selection_is_scrolled_into_sight(self) -> None:
        deep = [cpu(f"f{depth}", depth, 100 - 2 * depth) for depth in range(30)]
        shown = trace(*deep, kernel("k", 5, 5))
        state = ViewState(shown, width=80, height=10)
        for name in ("f29", "f0", "f15", "k"):
            event = event_of(shown, name)
            state.select(event)
            place = (int(shown.lane[event]), int(shown.row[event]))
            assert (
                state.lane_view.lane_lines.screen_line_index(*place, state.lane_view.top, state.lane_view.height)
                is not None
            ), name
        state.resize(80, 4)
        assert (
            state.lane_view.lane_lines.screen_line_index(1, 0, state.lane_view.top, state.lane_view.height) is not None
        )


def two_ranks(depth: int = 3) -> Trace:
    """Build two ranks with a CPU thread of `depth` rows and a stream each."""
    frames = [cpu(f"f{row}", row, 100 - 2 * row) for row in range(depth)]
    traces = [trace(*frames, kernel("k", 5, 5)) for _ in range(2)]
    return merge_ranks(
        [OpenedRank(rank, f"rank{rank}.json", shown, read_collectives(shown)) for rank, shown in enumerate(traces)],
        "ranks",
    )


class TestFirstArrangement:
    def test_streams_stay_on_screen_where_the_lanes_scroll(self) -> None:
        deep = [cpu(f"f{depth}", depth, 100 - 2 * depth) for depth in range(30)]
        kernels = [kernel("k", 5 + k, 1, stream=stream) for stream in (7, 8, 9) for k in range(stream)]
        state = ViewState(trace(*kernels, *deep), width=80, height=12)
        state.arrange_lanes()
        pinned = [state.trace.lanes[lane].label for lane in state.lane_view.lane_lines.pinned_lanes()]
        assert pinned == ["stream 7", "stream 8", "stream 9"]
        state.lane_view.scroll(1000)
        visible = state.lane_view.lane_lines.visible_lines(state.lane_view.top, 12)
        assert {state.trace.lanes[line.lane].label for line in visible[:3]} == set(pinned)

    def test_ranks_that_fit_open_by_themselves(self) -> None:
        ranks = two_ranks()
        roomy, low = ViewState(ranks, 80, 40), ViewState(ranks, 80, 4)
        roomy.arrange_lanes()
        low.arrange_lanes()
        assert not roomy.lane_view.has_folded_rank
        assert low.lane_view.has_folded_rank

    def test_a_rank_that_is_opened_keeps_its_stream_on_screen(self) -> None:
        state = ViewState(two_ranks(depth=30), 80, 8)
        state.arrange_lanes()
        header = state.trace.all_ranks[1].header_lane
        message = state.toggle_fold((header,))
        assert message == "pinned on top: rank 1 stream 7; p unpins"
        state.toggle_fold((header,))
        assert not state.lane_view.lane_lines.pinned_lanes()
