"""The mouse: everything that it does, keys do as well, so these are few."""

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
        walk, timeline = screen.view_state, screen.query_one(Timeline)
        column = walk.viewport.cell(170_000)
        await pilot.click(timeline, offset=(column, 3))
        assert walk.selected == event_of(shown, "aten::add")
        await pilot.click(timeline, offset=(column, 1))
        assert walk.selected == event_of(shown, "ProfilerStep#1")

        at = walk.viewport.cell(50_000)
        before = walk.viewport
        wheel(timeline, events.MouseScrollUp, at, 2)
        await pilot.pause()
        assert walk.viewport.span < before.span
        assert abs(walk.viewport.cell(50_000) - at) <= 1
        zoomed = walk.viewport
        wheel(timeline, events.MouseScrollDown, at, 2, shift=True)
        await pilot.pause()
        assert walk.viewport.span == zoomed.span
        assert walk.viewport.t0 > zoomed.t0
        wheel(timeline, events.MouseScrollDown, at, 2)
        await pilot.press("0")

        first, last = walk.viewport.cell(30_000), walk.viewport.cell(90_000)
        await pilot.mouse_down(timeline, offset=(first, 2))
        await pilot.hover(timeline, offset=(last, 2))
        await pilot.mouse_up(timeline, offset=(last, 2))
        assert walk.mark is not None
        assert not walk.mark.live
        assert walk.mark.start <= 30_000
        assert walk.mark.end >= 90_000
        assert walk.mark.end - walk.mark.start < 70_000
        assert walk.selected == event_of(shown, "ProfilerStep#1")  # a drag selects nothing

        await pilot.press("W")
        overview = screen.query_one(Overview)
        await pilot.click(overview, offset=(overview.size.width - 2, 0))
        assert walk.viewport.t1 == walk.viewport.limits[1]

        gutter = screen.query_one(Gutter)
        await pilot.click(gutter, offset=(3, 1))
        assert walk.lane_view.arrangement.folded == {0}
        await pilot.click(gutter, offset=(3, 0))  # the heading: all lanes under it, folded already
        assert not walk.lane_view.arrangement.folded
