"""The mouse, as in Perfetto: clicks, double clicks, drags and the wheel; keys do the same through the same code."""

from __future__ import annotations

import sys

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widget import Widget

from tests.helpers.explorer_app import event_of, explorer, text_of, two_steps
from tests.helpers.long_run import keep_some
from tests.helpers.terminal import Terminal
from tests.helpers.trace_builder import cpu, step, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.panel_dock import PanelTabs
from torchprof_tui.ui.lanes.lane_gutter import Gutter
from torchprof_tui.ui.lanes.mouse_gestures import WHEEL_LINES
from torchprof_tui.ui.lanes.overview import Overview
from torchprof_tui.ui.lanes.time_ruler import Ruler
from torchprof_tui.ui.lanes.timeline import Timeline

UP, DOWN = events.MouseScrollUp, events.MouseScrollDown
LEFT, RIGHT = events.MouseScrollLeft, events.MouseScrollRight


async def turn_wheel(
    pilot: Pilot[None],
    widget: Widget,
    kind: type[events.MouseEvent],
    x: int,
    *,
    shift: bool = False,
    meta: bool = False,
    ctrl: bool = False,
) -> None:
    widget.post_message(kind(widget, x, 0, 0, 0, 0, shift, meta, ctrl))
    await pilot.pause()


async def drag(pilot: Pilot[None], widget: Widget, first: int, last: int, y: int = 0, **keys: bool) -> None:
    await pilot.mouse_down(widget, offset=(first, y), **keys)
    for x in (first + 1, (first + last) // 2, last):
        await pilot.hover(widget, offset=(x, y))
    await pilot.mouse_up(widget, offset=(last, y), **keys)


def deep() -> Trace:
    """Build a step with 60 nested operators: more rows than a screen has lines."""
    return trace(step(0, 0, 1000), *(cpu(f"aten::op{k}", 5 + k, 900 - 2 * k) for k in range(60)))


@pytest.mark.long
async def test_the_wheel_scrolls_and_with_ctrl_or_alt_zooms_and_with_shift_pans() -> None:
    async with explorer(deep(), (120, 40)) as (screen, pilot):
        state = screen.view_state
        for kind in (Timeline, Gutter, Ruler, Overview):
            widget = screen.query_one(kind)
            before = state.viewport
            await turn_wheel(pilot, widget, DOWN, 40)
            assert (state.viewport, state.lane_view.top) == (before, WHEEL_LINES), kind
            await turn_wheel(pilot, widget, UP, 40)
            assert state.lane_view.top == 0, kind
        for kind, margin in ((Timeline, 0), (Ruler, screen.query_one(Gutter).size.width)):
            widget = screen.query_one(kind)
            for keys in ({"ctrl": True}, {"meta": True}):
                await pilot.press("0")
                whole = state.viewport
                column = whole.cell(300_000)
                await turn_wheel(pilot, widget, UP, column + margin, **keys)
                zoomed = state.viewport
                assert zoomed.span < whole.span
                assert abs(zoomed.cell(300_000) - column) <= 1
                await turn_wheel(pilot, widget, DOWN, column + margin, **keys)
                assert state.viewport.span > zoomed.span
            await pilot.press("w")
            before = state.viewport
            await turn_wheel(pilot, widget, DOWN, 40, shift=True)
            assert state.viewport.span == before.span
            assert state.viewport.t0 > before.t0
            await turn_wheel(pilot, widget, UP, 40, shift=True)
            assert abs(state.viewport.t0 - before.t0) < before.ns_per_cell
            await turn_wheel(pilot, widget, RIGHT, 40)
            assert state.viewport.t0 > before.t0
            await turn_wheel(pilot, widget, LEFT, 40)
            assert abs(state.viewport.t0 - before.t0) < before.ns_per_cell
        assert state.lane_view.top == 0


async def test_the_wheel_says_what_zooms_where_all_lanes_are_on_screen() -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        await turn_wheel(pilot, screen.query_one(Timeline), DOWN, 40)
        assert "all lanes are on screen: ctrl or alt with the wheel zooms" in text_of(screen)
        await pilot.press("pagedown")
        assert "all lanes are on screen" in text_of(screen)
        assert "wheel" not in text_of(screen)  # a key was pressed


@pytest.mark.long
async def test_a_click_selects_and_a_double_click_fits() -> None:
    shown = two_steps()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        state, timeline = screen.view_state, screen.query_one(Timeline)
        column = state.viewport.cell(170_000)
        await pilot.click(timeline, offset=(column, 1))
        assert state.selected == event_of(shown, "ProfilerStep#1")
        whole = state.viewport
        await pilot.double_click(timeline, offset=(column, 3))
        add = event_of(shown, "aten::add")
        assert state.selected == add
        assert state.viewport == whole.fit(160_000, 190_000)
        await pilot.press("backspace")
        assert state.viewport == whole
        # The first click of this pair moves the lanes below the pointer; the second fits the event of the first.
        await pilot.press("escape", "f")
        state.viewport = whole.fit(120_000, 175_000)
        screen._refresh_widgets()
        await pilot.pause()
        await pilot.double_click(timeline, offset=(state.viewport.cell(173_000), 3))
        assert state.selected == add
        assert state.viewport == whole.fit(160_000, 190_000)


@pytest.mark.long
async def test_a_drag_on_the_lanes_or_the_ruler_marks_a_range() -> None:
    shown = two_steps()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        state = screen.view_state
        await pilot.press("right")
        selected = state.selected
        for kind, margin, y in ((Timeline, 0, 2), (Ruler, screen.query_one(Gutter).size.width, 0)):
            first, last = state.viewport.cell(30_000), state.viewport.cell(90_000)
            await drag(pilot, screen.query_one(kind), first + margin, last + margin, y)
            assert state.mark is not None
            assert not state.mark.live
            assert state.mark.start <= 30_000
            assert state.mark.end >= 90_000
            assert state.mark.end - state.mark.start < 70_000
            assert state.selected == selected  # a drag selects nothing
            await pilot.press("escape")
            assert state.mark is None
            await pilot.click(screen.query_one(kind), offset=(first + margin, 30))
            assert state.mark is None


@pytest.mark.parametrize(
    "keys", keep_some([{"shift": True}, {"meta": True}, {"control": True}], 1), ids=lambda keys: next(iter(keys))
)
async def test_a_drag_with_a_modifier_pans(keys: dict[str, bool]) -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        state, timeline = screen.view_state, screen.query_one(Timeline)
        await pilot.press("W")
        before = state.viewport
        await drag(pilot, timeline, 50, 30, 2, **keys)
        assert abs(state.viewport.t0 - before.pan_cells(20).t0) < before.ns_per_cell
        await drag(pilot, timeline, 30, 50, 2, **keys)
        assert abs(state.viewport.t0 - before.t0) < before.ns_per_cell
        assert state.mark is None


async def test_the_overview_jumps_to_a_click_and_shows_a_dragged_range() -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        state, overview = screen.view_state, screen.query_one(Overview)
        whole, margin = state.viewport, screen.query_one(Gutter).size.width
        await pilot.click(overview, offset=(margin + 10, 0))
        assert state.viewport == whole  # nothing to jump to: all is on screen
        await pilot.press("W")
        zoomed = state.viewport
        await pilot.click(overview, offset=(overview.size.width - 2, 0))
        assert state.viewport.t1 == state.viewport.limits[1]
        await pilot.press("backspace")
        assert state.viewport == zoomed
        middle = margin + (overview.size.width - margin) // 2
        await drag(pilot, overview, middle, middle + 20)  # the visible part itself
        assert state.viewport.span == zoomed.span
        assert state.viewport.t0 > zoomed.t0
        await pilot.press("backspace")
        assert state.viewport == zoomed  # one step back for the whole drag
        await drag(pilot, overview, margin + 2, margin + 12)
        first, last = state.viewport.t0, state.viewport.t1
        share = 11 / (overview.size.width - margin)
        assert last - first == pytest.approx(share * (zoomed.limits[1] - zoomed.limits[0]), rel=0.1)
        await pilot.press("backspace")
        assert state.viewport == zoomed
        assert state.mark is None


async def test_a_label_selects_its_lane_and_its_mark_folds_it() -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        state, gutter = screen.view_state, screen.query_one(Gutter)
        await pilot.click(gutter, offset=(5, 1))
        assert (state.lane, state.selected) == (0, -1)
        assert not state.lane_view.arrangement.folded
        await pilot.click(gutter, offset=(1, 1))
        assert state.lane_view.arrangement.folded == {0}
        await pilot.pause(0.6)  # else it is the second half of a double click
        await pilot.click(gutter, offset=(1, 1))
        assert not state.lane_view.arrangement.folded
        await pilot.double_click(gutter, offset=(5, 1))
        assert state.lane_view.arrangement.folded == {0}
        await pilot.click(gutter, offset=(3, 0))  # the heading toggles all lanes below it, which are folded already
        assert not state.lane_view.arrangement.folded


async def test_a_click_on_a_tab_opens_its_panel() -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        tabs = screen.query_one(PanelTabs)
        line = next(text for text in text_of(screen).splitlines() if "doctor" in text and "chain" in text)
        await pilot.click(tabs, offset=(line.index("chain") + 1, 0))
        assert screen._dock.active_name == "chain"


@pytest.mark.long
def test_the_mouse_of_a_real_terminal() -> None:
    """Send what a terminal sends (SGR): a double click, the wheel with ctrl and with shift, and a drag on the ruler."""
    with Terminal([sys.executable, "-m", "torchprof_tui", "sample:matmul_add_64_cold_eager", "--no-cache"]) as terminal:
        terminal.wait_for("ProfilerStep#2", "stream 7", "100 % shown")
        lines = terminal.text.splitlines()
        y = next(k for k, line in enumerate(lines) if "ProfilerStep#2" in line) + 1
        x = lines[y - 1].index("ProfilerStep#2") + 4
        ruler = next(k for k, line in enumerate(lines) if "┬" in line) + 1
        terminal.send(f"\x1b[<80;{x};{y}M" * 4)  # 64, the wheel up, and 16, ctrl
        terminal.wait_for("100 % shown", gone=True)
        shown = next(line for line in terminal.text.splitlines() if " shown" in line).split("%")[0]
        terminal.send(f"\x1b[<69;{x};{y}M")  # 65, the wheel down, and 4, shift
        terminal.send(f"\x1b[<32;{x};{y}M")
        terminal.send("0")
        terminal.wait_for("100 % shown")
        assert "100" not in shown
        terminal.send(f"\x1b[<0;{x};{y}M\x1b[<0;{x};{y}m" * 2)
        terminal.wait_for("100 % shown", gone=True)
        terminal.send("0")
        terminal.wait_for("100 % shown")
        terminal.send(f"\x1b[<0;40;{ruler}M\x1b[<32;60;{ruler}M\x1b[<32;80;{ruler}M\x1b[<0;80;{ruler}m")
        terminal.wait_for("├─", "─┤")
        terminal.send("q")
        assert terminal.wait_for_end() == 0
