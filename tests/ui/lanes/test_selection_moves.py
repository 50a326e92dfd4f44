"""Selection moves, tested by their effect on the view state; no screen."""

from __future__ import annotations

import pytest

from tests.helpers.explorer_app import event_of, two_steps
from tests.helpers.trace_builder import counter, cpu, flow, kernel, memcpy, runtime, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.lanes.selection_moves import SelectionMoves
from torchprof_tui.ui.lanes.view_state import ViewState


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


class TestSelection:
    def test_down_selects_what_is_under_the_cursor_on_the_first_lane(
        self, state: ViewState, moves: SelectionMoves
    ) -> None:
        assert moves.select_child() == ""
        assert name_of(state) == "ProfilerStep#1"  # the middle of 0..220 µs

    @pytest.mark.parametrize(("distance", "wanted"), [(1, "gemm"), (-1, "add")])
    def test_right_and_left_select_the_first_and_last_kernel_on_screen(
        self, state: ViewState, moves: SelectionMoves, shown: Trace, distance: int, wanted: str
    ) -> None:
        assert moves.next_in_row(distance) == ""
        assert state.selected == event_of(shown, wanted)

    def test_right_leaves_out_copies_and_what_is_off_screen_or_folded(self) -> None:
        copy = memcpy("Memcpy HtoD (Pinned -> Device)", 2, 5)
        shown = trace(cpu("work", 0, 100), copy, *(kernel(f"k{start}", start, 5) for start in (10, 30, 50, 70)))
        state = ViewState(shown, width=100, height=20)
        SelectionMoves(state).next_in_row(1)
        assert name_of(state) == "k10"
        state.select(-1)
        state.viewport = state.viewport.fit(20_000, 60_000)
        SelectionMoves(state).next_in_row(1)
        assert name_of(state) == "k30"
        state.select(-1)
        state.viewport = state.viewport.fit(20_000, 60_000)
        SelectionMoves(state).next_in_row(-1)
        assert name_of(state) == "k50"

    @pytest.mark.parametrize(("distance", "wanted"), [(1, "k30"), (-1, "k50")])
    def test_right_prefers_a_kernel_whose_launch_was_recorded(self, distance: int, wanted: str) -> None:
        calls = [runtime("cudaLaunchKernel", at - 10, 5, number) for number, at in ((3, 30), (5, 50))]
        kernels = [kernel(f"k{at}", at, 5, at // 10) for at in (10, 30, 50, 70)]
        state = ViewState(trace(*calls, *kernels), width=100, height=20)
        SelectionMoves(state).next_in_row(distance)
        assert name_of(state) == wanted

    def test_right_without_a_kernel_selects_what_is_under_the_cursor(self) -> None:
        state = ViewState(trace(cpu("a", 0, 100)), width=100, height=20)
        SelectionMoves(state).next_in_row(1)
        assert name_of(state) == "a"

    def test_beside_stays_in_its_row_and_says_where_the_row_ends(
        self, state: ViewState, moves: SelectionMoves, shown: Trace
    ) -> None:
        state.select(event_of(shown, "aten::mm", 0))
        assert moves.next_in_row(1) == ""
        assert state.selected == event_of(shown, "aten::mm", 1)
        assert moves.next_in_row(1) == ""
        assert name_of(state) == "aten::add"
        assert "last event of this row" in moves.next_in_row(1)
        assert name_of(state) == "aten::add"
        moves.next_in_row(-1)
        moves.next_in_row(-1)
        assert "first event of this row" in moves.next_in_row(-1)

    def test_up_is_the_parent_and_down_returns_to_where_one_came_from(
        self, state: ViewState, moves: SelectionMoves, shown: Trace
    ) -> None:
        state.select(event_of(shown, "aten::add"))
        moves.select_parent()
        assert name_of(state) == "work"
        moves.select_child()
        assert name_of(state) == "aten::add"  # not the first child

    def test_down_goes_to_the_first_child_that_can_be_seen(
        self, state: ViewState, moves: SelectionMoves, shown: Trace
    ) -> None:
        state.select(event_of(shown, "work", 1))
        moves.select_child()
        assert (name_of(state), state.selected) == ("aten::mm", event_of(shown, "aten::mm", 1))

    def test_below_the_innermost_comes_the_next_lane_and_above_the_outermost_the_one_before(
        self, state: ViewState, moves: SelectionMoves, shown: Trace
    ) -> None:
        state.select(event_of(shown, "cudaLaunchKernel", 2))
        moves.select_child()
        assert name_of(state) == "add"
        moves.select_parent()
        assert name_of(state) == "aten::add"  # the innermost at 181 µs: the launch is over by then
        for _ in range(9):
            message = moves.select_parent()
        assert name_of(state) == "ProfilerStep#1"
        assert message == "the first lane"

    def test_a_lane_without_events_is_a_stop_on_the_way(self) -> None:
        state = ViewState(trace(cpu("a", 0, 10), counter("c", 1, v=2), counter("c", 5, v=3)), width=80, height=10)
        moves = SelectionMoves(state)
        moves.next_in_row(1)
        moves.select_child()
        assert (state.selected, state.lane) == (-1, 1)
        moves.select_parent()
        assert name_of(state) == "a"

    def test_links_lead_to_the_work_and_back(self, state: ViewState, moves: SelectionMoves, shown: Trace) -> None:
        state.select(event_of(shown, "cudaLaunchKernel", 1))
        moves.follow_link(True)
        assert state.selected == event_of(shown, "gemm", 1)
        assert "no forward link" in moves.follow_link(True)
        moves.follow_link(False)
        assert state.selected == event_of(shown, "cudaLaunchKernel", 1)
        assert "no backward link" in moves.follow_link(False)

    def test_from_an_op_the_link_leads_to_the_first_work_beneath_it(
        self, state: ViewState, moves: SelectionMoves, shown: Trace
    ) -> None:
        state.select(event_of(shown, "work", 1))
        moves.follow_link(True)
        assert state.selected == event_of(shown, "gemm", 1)

    def test_nothing_beneath_is_not_what_another_op_launched(self) -> None:
        shown = trace(cpu("idle", 0, 10), runtime("cudaLaunchKernel", 20, 5, corr=1), kernel("k", 30, 5, corr=1))
        state = ViewState(shown, width=80, height=10)
        moves = SelectionMoves(state)
        state.select(event_of(shown, "idle"))
        assert "no forward link" in moves.follow_link(True)

    def test_a_graph_launch_leads_to_each_of_its_kernels(self) -> None:
        shown = trace(
            runtime("cudaGraphLaunch", 0, 5, corr=1), kernel("k1", 10, 2, corr=1), kernel("k2", 13, 2, corr=1)
        )
        state = ViewState(shown, width=80, height=10)
        moves = SelectionMoves(state)
        state.select(event_of(shown, "cudaGraphLaunch"))
        seen = []
        while not moves.follow_link(True):
            seen.append(name_of(state))
        assert seen == ["k1", "k2"]
        moves.follow_link(False)
        assert name_of(state) == "cudaGraphLaunch"

    def test_forward_and_backward_are_linked(self) -> None:
        shown = trace(
            cpu("aten::addmm", 0, 10),
            cpu("AddmmBackward0", 50, 10, thread=200),
            flow("s", "fwdbwd", 1, 0),
            flow("f", "fwdbwd", 1, 50, thread=200),
        )
        state = ViewState(shown, width=80, height=10)
        moves = SelectionMoves(state)
        state.select(event_of(shown, "aten::addmm"))
        moves.follow_link(True)
        assert name_of(state) == "AddmmBackward0"
        moves.follow_link(False)
        assert name_of(state) == "aten::addmm"

    def test_steps(self, state: ViewState, moves: SelectionMoves) -> None:
        state.go_to("0us")
        moves.select_adjacent_step(True)
        assert name_of(state) == "ProfilerStep#1"
        assert moves.select_adjacent_step(True) == "the last step"
        moves.select_adjacent_step(False)
        assert name_of(state) == "ProfilerStep#0"
        assert moves.select_adjacent_step(False) == "the first step"

    def test_a_trace_without_steps_says_so(self) -> None:
        state = ViewState(trace(cpu("a", 0, 10)), width=80, height=10)
        moves = SelectionMoves(state)
        assert "prof.step()" in moves.select_adjacent_step(True)


class TestSearch:
    def test_next_goes_around(self, state: ViewState, moves: SelectionMoves, shown: Trace) -> None:
        assert state.search.set_query("MM".lower()) == ""
        places = []
        for _ in range(5):
            moves.select_match(True)
            places.append((name_of(state), state.search.match_number(state.selected)))
        assert places == [("aten::mm", 1), ("gemm", 2), ("aten::mm", 3), ("gemm", 4), ("aten::mm", 1)]
        moves.select_match(False)
        assert state.search.match_number(state.selected) == 4

    def test_what_is_wrong_is_said(self, state: ViewState, moves: SelectionMoves) -> None:
        assert "not a regular expression" in state.search.set_query("/(/")
        assert state.search.matches is None
        state.search.set_query("nowhere")
        assert "no match for" in moves.select_match(True)
        assert "/ starts one" in SelectionMoves(ViewState(state.trace)).select_match(True)

    def test_found_in_a_hidden_lane_shows_it_again(self, state: ViewState, moves: SelectionMoves, shown: Trace) -> None:
        state.hide_lane(1)
        state.search.set_query("gemm")
        moves.select_match(True)
        assert name_of(state) == "gemm"
        assert not state.lane_view.arrangement.hidden


def test_an_empty_trace_answers_every_move() -> None:
    state = ViewState(trace(), width=80, height=10)
    moves = SelectionMoves(state)
    for move in (
        state.fit_selection,
        state.fit_all,
        moves.select_parent,
        moves.select_child,
        state.toggle_mark,
        state.clear_last,
        state.arrange_lanes,
        state.unhide_lanes,
        lambda: moves.next_in_row(1),
        lambda: moves.follow_link(True),
        lambda: moves.follow_link(False),
        lambda: moves.select_adjacent_step(True),
        lambda: state.zoom(5),
        lambda: state.pan(-5),
        lambda: state.lane_view.scroll(3),
        lambda: state.search.set_query("x"),
        lambda: moves.select_match(True),
        lambda: state.go_to("#1"),
        lambda: state.hide_lane(-1),
        lambda: state.resize(40, 5),
    ):
        move()
    assert state.selected == -1
