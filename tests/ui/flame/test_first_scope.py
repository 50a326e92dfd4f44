"""The scope in which a flame view begins."""

from __future__ import annotations

from tests.helpers.serving_traces import serving_trace
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.ui.flame.flame_screen import choose_first_scope
from torchprof_tui.ui.lanes.view_state import ViewState
from torchprof_tui.ui.table.scope_choices import list_table_scopes


def test_a_selected_step_of_a_serving_engine_is_the_scope() -> None:
    shown = serving_trace(1)
    state = ViewState(shown, width=100, height=20)
    state.select(shown.steps[4].event)
    scopes = list_table_scopes(Profile(shown), state)
    assert scopes[choose_first_scope(scopes, state)].label == "execute_context_1(98)_generation_2(2)"


def test_another_selected_annotation_is_not() -> None:
    shown = serving_trace(1)
    state = ViewState(shown, width=100, height=20)
    state.select(next(row for row in range(len(shown)) if shown.event(row).name == "cudaGraphLaunch"))
    scopes = list_table_scopes(Profile(shown), state)
    assert scopes[choose_first_scope(scopes, state)].label != "execute_context_0(0)_generation_2(2)"
