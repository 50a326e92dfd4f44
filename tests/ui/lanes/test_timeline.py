"""Repaints of the timeline: only the lines that changed, and one frame for any number of keys."""

from __future__ import annotations

import pytest
from textual.events import Key
from textual.geometry import Region, Size
from textual.strip import Strip

from tests.helpers.explorer_app import event_of, explorer, settled, text_of, two_steps
from torchprof_tui.ui.lanes.timeline import Timeline

pytestmark = pytest.mark.painted


class Watched:
    """Count the frames, lines and regions that a timeline paints."""

    def __init__(self, timeline: Timeline) -> None:
        self.frames = 0
        self.lines: list[int] = []
        self.regions: list[Region] = []
        self._prepare, self._paint, self._refresh = timeline.prepare, timeline.paint_lines, timeline._set_dirty
        timeline.prepare = self._count_frame  # type: ignore[method-assign]
        timeline.paint_lines = self._count_lines  # type: ignore[method-assign]
        timeline._set_dirty = self._count_regions  # type: ignore[method-assign]

    def _count_frame(self, size: Size) -> None:
        self.frames += 1
        self._prepare(size)

    def _count_lines(self, ys: list[int], size: Size) -> list[Strip]:
        self.lines += ys
        return self._paint(ys, size)

    def _count_regions(self, *regions: Region) -> None:
        self.regions += regions
        self._refresh(*regions)

    def reset(self) -> None:
        self.frames, self.lines, self.regions = 0, [], []


async def test_moving_the_selection_repaints_two_lines() -> None:
    shown = two_steps()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("down", "down")
        watched = Watched(screen.query_one(Timeline))
        await pilot.press("down")
        await pilot.pause()
        assert watched.frames == 0
        assert sorted(set(watched.lines)) == [2, 3]  # under the heading: step, work, op
        assert {(region.y, region.height) for region in watched.regions} == {(2, 1), (3, 1)}
        watched.reset()
        await pilot.press("right", "left")
        await pilot.pause()
        assert watched.frames == 0
        watched.reset()
        await pilot.press("w")
        await pilot.pause()
        assert watched.frames == 1
        assert set(watched.lines) == set(range(screen.query_one(Timeline).size.height))


async def test_highlighting_events_repaints_their_lines_only() -> None:
    shown = two_steps()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await settled(pilot)
        timeline = screen.query_one(Timeline)
        watched = Watched(timeline)
        timeline.highlighted = [event_of(shown, "aten::mm", 1), event_of(shown, "gemm", 1)]
        await pilot.pause()
        assert sorted(set(watched.lines)) == [3, 6]
        assert text_of(screen).count("◆") == 2
        watched.reset()
        timeline.highlighted = [event_of(shown, "gemm", 1)]
        await pilot.pause()
        assert sorted(set(watched.lines)) == [3]
        timeline.highlighted = []
        await pilot.pause()
        assert "◆" not in text_of(screen)
        assert not len(timeline._decoration.highlighted)


@pytest.mark.long
async def test_keys_that_arrive_together_are_one_frame() -> None:
    """120 held-down keys take far fewer frames, and all of them have their effect."""
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        await pilot.press("W", "home")
        before = screen.view_state.viewport.t0
        watched = Watched(screen.query_one(Timeline))
        for _ in range(120):
            screen.app.post_message(Key("d", "d"))
        await pilot.pause()
        await pilot.pause()
        assert screen.view_state.viewport.t1 == screen.view_state.viewport.limits[1]
        assert screen.view_state.viewport.t0 > before
        assert 1 <= watched.frames <= 12


async def test_a_frame_is_the_same_whether_lines_are_repainted_one_by_one_or_all() -> None:
    shown = two_steps()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("right", "down", "down", "]", "[", "up", "left")
        await pilot.pause()
        piecemeal = text_of(screen)
        screen.query_one(Timeline).repaint()
        await pilot.pause()
        assert text_of(screen) == piecemeal
