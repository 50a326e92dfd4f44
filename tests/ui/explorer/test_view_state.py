"""Moves through a trace, by their effect on the state; no screen."""

from __future__ import annotations

import pytest

from tests.helpers.explorer_app import event_of, two_steps
from tests.helpers.trace_builder import cpu, flow, kernel, runtime, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.explorer.lanes.screen_lines import LineContent
from torchprof_tui.ui.explorer.view_state import ViewState

US = 1000


@pytest.fixture
def shown() -> Trace:
    return two_steps()


@pytest.fixture
def walk(shown: Trace) -> ViewState:
    return ViewState(shown, width=100, height=20)


def name_of(walk: ViewState) -> str:
    return walk.trace.event(walk.selected).name if walk.selected >= 0 else ""


class TestSelection:
    def test_the_first_arrow_selects_what_is_under_the_cursor_on_the_first_lane(self, walk: ViewState) -> None:
        assert walk.next_in_row(1) == ""
        assert name_of(walk) == "ProfilerStep#1"  # the middle of 0..220 µs

    def test_beside_stays_in_its_row_and_says_where_the_row_ends(self, walk: ViewState, shown: Trace) -> None:
        walk.select(event_of(shown, "aten::mm", 0))
        assert walk.next_in_row(1) == ""
        assert walk.selected == event_of(shown, "aten::mm", 1)
        assert walk.next_in_row(1) == ""
        assert name_of(walk) == "aten::add"
        assert "last event of this row" in walk.next_in_row(1)
        assert name_of(walk) == "aten::add"
        walk.next_in_row(-1)
        walk.next_in_row(-1)
        assert "first event of this row" in walk.next_in_row(-1)

    def test_up_is_the_parent_and_down_returns_to_where_one_came_from(self, walk: ViewState, shown: Trace) -> None:
        walk.select(event_of(shown, "aten::add"))
        walk.select_parent()
        assert name_of(walk) == "work"
        walk.select_child()
        assert name_of(walk) == "aten::add"  # not the first child

    def test_down_goes_to_the_first_child_that_can_be_seen(self, walk: ViewState, shown: Trace) -> None:
        walk.select(event_of(shown, "work", 1))
        walk.select_child()
        assert (name_of(walk), walk.selected) == ("aten::mm", event_of(shown, "aten::mm", 1))

    def test_below_the_innermost_comes_the_next_lane_and_above_the_outermost_the_one_before(
        self, walk: ViewState, shown: Trace
    ) -> None:
        walk.select(event_of(shown, "cudaLaunchKernel", 2))
        walk.select_child()
        assert name_of(walk) == "add"
        walk.select_parent()
        assert name_of(walk) == "aten::add"  # the innermost at 181 µs: the launch is over by then
        for _ in range(9):
            said = walk.select_parent()
        assert name_of(walk) == "ProfilerStep#1"
        assert said == "the first lane"

    def test_a_lane_without_events_is_a_stop_on_the_way(self) -> None:
        from tests.helpers.trace_builder import counter

        walk = ViewState(trace(cpu("a", 0, 10), counter("c", 1, v=2), counter("c", 5, v=3)), width=80, height=10)
        walk.next_in_row(1)
        walk.select_child()
        assert (walk.selected, walk.lane) == (-1, 1)
        walk.select_parent()
        assert name_of(walk) == "a"

    def test_links_lead_to_the_work_and_back(self, walk: ViewState, shown: Trace) -> None:
        walk.select(event_of(shown, "cudaLaunchKernel", 1))
        walk.follow_link(True)
        assert walk.selected == event_of(shown, "gemm", 1)
        assert "no link leads on" in walk.follow_link(True)
        walk.follow_link(False)
        assert walk.selected == event_of(shown, "cudaLaunchKernel", 1)
        assert "no link leads back" in walk.follow_link(False)

    def test_from_an_op_the_link_leads_to_the_first_work_beneath_it(self, walk: ViewState, shown: Trace) -> None:
        walk.select(event_of(shown, "work", 1))
        walk.follow_link(True)
        assert walk.selected == event_of(shown, "gemm", 1)

    def test_nothing_beneath_is_not_what_another_op_launched(self) -> None:
        shown = trace(cpu("idle", 0, 10), runtime("cudaLaunchKernel", 20, 5, corr=1), kernel("k", 30, 5, corr=1))
        walk = ViewState(shown, width=80, height=10)
        walk.select(event_of(shown, "idle"))
        assert "no link" in walk.follow_link(True)

    def test_a_graph_launch_leads_to_each_of_its_kernels(self) -> None:
        shown = trace(
            runtime("cudaGraphLaunch", 0, 5, corr=1), kernel("k1", 10, 2, corr=1), kernel("k2", 13, 2, corr=1)
        )
        walk = ViewState(shown, width=80, height=10)
        walk.select(event_of(shown, "cudaGraphLaunch"))
        seen = []
        while not walk.follow_link(True):
            seen.append(name_of(walk))
        assert seen == ["k1", "k2"]
        walk.follow_link(False)
        assert name_of(walk) == "cudaGraphLaunch"

    def test_forward_and_backward_are_linked(self) -> None:
        shown = trace(
            cpu("aten::addmm", 0, 10),
            cpu("AddmmBackward0", 50, 10, thread=200),
            flow("s", "fwdbwd", 1, 0),
            flow("f", "fwdbwd", 1, 50, thread=200),
        )
        walk = ViewState(shown, width=80, height=10)
        walk.select(event_of(shown, "aten::addmm"))
        walk.follow_link(True)
        assert name_of(walk) == "AddmmBackward0"
        walk.follow_link(False)
        assert name_of(walk) == "aten::addmm"

    def test_steps(self, walk: ViewState) -> None:
        walk.go_to("0us")
        walk.select_adjacent_step(True)
        assert name_of(walk) == "ProfilerStep#1"
        assert walk.select_adjacent_step(True) == "the last step"
        walk.select_adjacent_step(False)
        assert name_of(walk) == "ProfilerStep#0"
        assert walk.select_adjacent_step(False) == "the first step"

    def test_a_trace_without_steps_says_so(self) -> None:
        walk = ViewState(trace(cpu("a", 0, 10)), width=80, height=10)
        assert "prof.step()" in walk.select_adjacent_step(True)


class TestTime:
    def test_zoom_holds_the_middle_of_the_selected_event(self, walk: ViewState, shown: Trace) -> None:
        event = event_of(shown, "aten::add")
        walk.select(event)
        middle = (160 + 190) // 2 * US
        before = walk.viewport.cell(middle)
        walk.zoom(3)
        assert walk.viewport.span < 150 * US
        assert abs(walk.viewport.cell(middle) - before) <= 1

    def test_an_event_out_of_sight_holds_nothing(self, walk: ViewState, shown: Trace) -> None:
        walk.select(event_of(shown, "aten::mm", 0))
        walk.zoom(6)
        walk.pan_to(200 * US)
        walk.pointer_time = None
        assert walk.cursor_time() == (walk.viewport.t0 + walk.viewport.t1) // 2
        walk.pointer_time = walk.viewport.t0 + 7
        assert walk.cursor_time() == walk.viewport.t0 + 7

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

    def test_fit_then_its_parent_then_everything(self, walk: ViewState, shown: Trace) -> None:
        walk.select(event_of(shown, "aten::add"))
        spans = []
        for _ in range(4):
            assert walk.fit_selection() == ""
            spans.append(walk.viewport.span // US)
        assert spans[0] == pytest.approx(30 * 1.1, abs=1)
        assert spans[1] == pytest.approx(90 * 1.1, abs=1)
        assert spans[2] == pytest.approx(120 * 1.1, abs=1)
        assert walk.viewport.is_whole
        assert name_of(walk) == "aten::add"

    def test_fit_without_anything_to_fit_says_what_to_do(self, walk: ViewState) -> None:
        assert "0 shows the whole trace" in walk.fit_selection()
        walk.mark_range(50 * US, 60 * US)
        assert walk.fit_selection() == ""
        assert walk.viewport.span < 12 * US

    def test_selecting_pans_only_when_it_must(self, walk: ViewState, shown: Trace) -> None:
        walk.viewport = walk.viewport.fit(0, 60 * US)
        before = walk.viewport
        walk.select(event_of(shown, "aten::mm", 0))
        assert walk.viewport == before
        walk.select(event_of(shown, "work", 0))  # longer than what is seen of it, but it is seen
        assert walk.viewport.span == before.span
        walk.select(event_of(shown, "aten::add"))
        assert walk.viewport.t0 <= 160 * US
        assert walk.viewport.t1 >= 190 * US
        assert walk.viewport.span == before.span

    @pytest.mark.parametrize(("text", "at"), [("120us", 120), ("0.05ms", 50), ("  150 µs ", 150), ("70", 70)])
    def test_go_to_a_time(self, walk: ViewState, text: str, at: int) -> None:
        walk.zoom(8)
        assert walk.go_to(text) == ""
        assert walk.viewport.t0 <= at * US < walk.viewport.t1
        assert walk.cursor_time() == at * US

    @pytest.mark.parametrize("text", ["#1", "step 1", "step1", "Step #1", "ProfilerStep#1"])
    def test_go_to_a_step(self, walk: ViewState, text: str) -> None:
        assert walk.go_to(text) == ""
        assert name_of(walk) == "ProfilerStep#1"

    @pytest.mark.parametrize(
        ("text", "said"), [("#9", "there are #0, #1"), ("soon", "not a time"), ("3s", "does not reach")]
    )
    def test_go_to_what_is_not_there(self, walk: ViewState, text: str, said: str) -> None:
        assert said in walk.go_to(text)


class TestSearch:
    def test_next_goes_around(self, walk: ViewState, shown: Trace) -> None:
        assert walk.search.set_query("MM".lower()) == ""
        places = []
        for _ in range(5):
            walk.select_match(True)
            places.append((name_of(walk), walk.search.match_number(walk.selected)))
        assert places == [("aten::mm", 1), ("gemm", 2), ("aten::mm", 3), ("gemm", 4), ("aten::mm", 1)]
        walk.select_match(False)
        assert walk.search.match_number(walk.selected) == 4

    def test_what_is_wrong_is_said(self, walk: ViewState) -> None:
        assert "not a regular expression" in walk.search.set_query("/(/")
        assert walk.search.matches is None
        walk.search.set_query("nowhere")
        assert "is in no name" in walk.select_match(True)
        assert "/ searches" in ViewState(walk.trace).select_match(True)

    def test_found_in_a_hidden_lane_shows_it_again(self, walk: ViewState, shown: Trace) -> None:
        walk.hide_lane(1)
        walk.search.set_query("gemm")
        walk.select_match(True)
        assert name_of(walk) == "gemm"
        assert not walk.lane_view.arrangement.hidden


class TestMark:
    def test_marks_the_selected_event_then_grows_with_the_selection(self, walk: ViewState, shown: Trace) -> None:
        walk.select(event_of(shown, "aten::mm", 1))
        walk.toggle_mark()
        assert walk.mark
        assert (walk.mark.start, walk.mark.end, walk.mark.live) == (120 * US, 150 * US, True)
        walk.next_in_row(1)
        assert (walk.mark.start, walk.mark.end) == (120 * US, 190 * US)
        walk.toggle_mark()
        walk.next_in_row(-1)
        walk.next_in_row(-1)
        assert walk.mark
        assert (walk.mark.start, walk.mark.end, walk.mark.live) == (120 * US, 190 * US, False)

    def test_without_a_selection_it_follows_the_cursor(self, walk: ViewState) -> None:
        walk.zoom(4)
        walk.toggle_mark()
        start = walk.cursor_time()
        walk.pan(3)
        assert walk.mark
        assert walk.mark.start == start
        assert walk.mark.end == walk.cursor_time() + 1

    def test_a_dragged_range_is_never_empty_or_outside(self, walk: ViewState) -> None:
        walk.mark_range(5 * US, 5 * US)
        assert walk.mark
        assert walk.mark.end > walk.mark.start
        walk.mark_range(-(10**9), 10**9)
        assert (walk.mark.start, walk.mark.end) == walk.viewport.limits

    def test_clear_takes_one_thing_at_a_time(self, walk: ViewState, shown: Trace) -> None:
        walk.select(event_of(shown, "gemm"))
        walk.search.set_query("mm")
        walk.toggle_mark()
        assert [walk.clear_last() for _ in range(4)] == ["mark cleared", "search cleared", "selection cleared", ""]


class TestLanes:
    def test_fold_shows_one_line_and_keeps_the_selection_in_place(self, walk: ViewState, shown: Trace) -> None:
        walk.select(event_of(shown, "cudaLaunchKernel"))
        before = len(walk.lane_view.lane_lines.body)
        walk.toggle_fold((0,))
        assert len(walk.lane_view.lane_lines.body) == before - 3
        assert walk.lane_view.lane_lines.line_index(0, 3) == walk.lane_view.lane_lines.line_index(0, 0)
        walk.toggle_fold((0,))
        assert len(walk.lane_view.lane_lines.body) == before

    def test_pinned_lanes_stay_on_top(self, walk: ViewState) -> None:
        walk.toggle_pin(1)
        window = walk.lane_view.lane_lines.visible_lines(3, 6)
        assert [line.content for line in window[:2]] == [LineContent.ROW, LineContent.RULE]
        assert window[0].lane == 1
        walk.toggle_pin(1)
        assert not walk.lane_view.lane_lines.pinned

    def test_hide_moves_on_and_the_last_lane_stays(self, walk: ViewState, shown: Trace) -> None:
        walk.select(event_of(shown, "gemm"))
        assert walk.hide_lane(1) == ""
        assert (walk.selected, walk.lane) == (-1, 0)
        assert walk.hide_lane(0) == "the last lane stays"
        assert walk.unhide_lanes() == "1 hidden lane shown again"
        assert walk.unhide_lanes() == "no lane is hidden"

    def test_a_deep_stack_pins_the_stream_at_first_sight(self) -> None:
        deep = [cpu(f"f{depth}", depth, 100 - 2 * depth) for depth in range(30)]
        walk = ViewState(trace(*deep, kernel("k", 5, 5)), width=80, height=12)
        walk.pin_unseen_stream()
        assert [line.lane for line in walk.lane_view.lane_lines.pinned] == [1]
        roomy = ViewState(trace(*deep, kernel("k", 5, 5)), width=80, height=60)
        roomy.pin_unseen_stream()
        assert not roomy.lane_view.lane_lines.pinned

    def test_the_selection_is_scrolled_into_sight(self) -> None:
        deep = [cpu(f"f{depth}", depth, 100 - 2 * depth) for depth in range(30)]
        shown = trace(*deep, kernel("k", 5, 5))
        walk = ViewState(shown, width=80, height=10)
        for name in ("f29", "f0", "f15", "k"):
            event = event_of(shown, name)
            walk.select(event)
            place = (int(shown.lane[event]), int(shown.row[event]))
            assert (
                walk.lane_view.lane_lines.screen_line_index(*place, walk.lane_view.top, walk.lane_view.height)
                is not None
            ), name
        walk.resize(80, 4)
        assert walk.lane_view.lane_lines.screen_line_index(1, 0, walk.lane_view.top, walk.lane_view.height) is not None


def test_an_empty_trace_answers_every_move() -> None:
    walk = ViewState(trace(), width=80, height=10)
    for move in (
        walk.fit_selection,
        walk.fit_all,
        walk.select_parent,
        walk.select_child,
        walk.toggle_mark,
        walk.clear_last,
        walk.pin_unseen_stream,
        walk.unhide_lanes,
        lambda: walk.next_in_row(1),
        lambda: walk.follow_link(True),
        lambda: walk.follow_link(False),
        lambda: walk.select_adjacent_step(True),
        lambda: walk.zoom(5),
        lambda: walk.pan(-5),
        lambda: walk.lane_view.scroll(3),
        lambda: walk.search.set_query("x"),
        lambda: walk.select_match(True),
        lambda: walk.go_to("#1"),
        lambda: walk.hide_lane(-1),
        lambda: walk.resize(40, 5),
    ):
        move()
    assert walk.selected == -1
