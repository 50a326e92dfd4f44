"""The mouse: clicks, drags and the wheel. Few tests, because keys do the same through the same code."""

from __future__ import annotations

from textual import events

from tests.helpers.explorer_app import event_of, explorer, two_steps
from torchprof_tui.ui.explorer.lanes.lane_gutter import Gutter
from torchprof_tui.ui.explorer.lanes.overview import Overview
from torchprof_tui.ui.explorer.lanes.timeline import Timeline


def wheel(widget: Timeline, kind: type[events.MouseEvent], x: int, y: int, shift: bool = False) -> None:
    widget.post_message(kind(widget, x, y, 0, 0, 0, shift, False, False))


async def test_mouse() -> None:
    shown = two_steps()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        state, timeline = screen.view_state, screen.query_one(Timeline)
        column = state.viewport.cell(170_000)
        await pilot.click(timeline, offset=(column, 3))
        assert state.selected == event_of(shown, "aten::add")
        await pilot.click(timeline, offset=(column, 1))
        assert state.selected == event_of(shown, "ProfilerStep#1")

        column_at_50us = state.viewport.cell(50_000)
        before = state.viewport
        wheel(timeline, events.MouseScrollUp, column_at_50us, 2)
        await pilot.pause()
        assert state.viewport.span < before.span
        assert abs(state.viewport.cell(50_000) - column_at_50us) <= 1
        zoomed = state.viewport
        wheel(timeline, events.MouseScrollDown, column_at_50us, 2, shift=True)
        await pilot.pause()
        assert state.viewport.span == zoomed.span
        assert state.viewport.t0 > zoomed.t0
        wheel(timeline, events.MouseScrollDown, column_at_50us, 2)
        await pilot.press("0")

        first, last = state.viewport.cell(30_000), state.viewport.cell(90_000)
        await pilot.mouse_down(timeline, offset=(first, 2))
        await pilot.hover(timeline, offset=(last, 2))
        await pilot.mouse_up(timeline, offset=(last, 2))
        assert state.mark is not None
        assert not state.mark.live
        assert state.mark.start <= 30_000
        assert state.mark.end >= 90_000
        assert state.mark.end - state.mark.start < 70_000
        assert state.selected == event_of(shown, "ProfilerStep#1")  # a drag selects nothing

        await pilot.press("W")
        overview = screen.query_one(Overview)
        await pilot.click(overview, offset=(overview.size.width - 2, 0))
        assert state.viewport.t1 == state.viewport.limits[1]

        gutter = screen.query_one(Gutter)
        await pilot.click(gutter, offset=(3, 1))
        assert state.lane_view.arrangement.folded == {0}
        await pilot.click(gutter, offset=(3, 0))  # the heading toggles all lanes below it, which are folded already
        assert not state.lane_view.arrangement.folded
