"""Test the explorer of the beginning of a large trace: its sign, its place taken by the whole trace, cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import until
from tests.helpers.golden_files import at_every_size, compare_golden, text_on_screen
from tests.helpers.trace_builder import cpu, kernel, runtime, step, trace
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.loading.opener import EarlyTrace
from torchprof_tui.trace.loading.progress import LoadError, Phase, Progress, Report
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.explorer.explorer_screen import CANCEL_HINT, ExplorerScreen
from torchprof_tui.ui.start.loading_screen import LoadingScreen
from torchprof_tui.ui.start.start_screen import StartScreen
from torchprof_tui.ui.table.table_screen import TableScreen

EARLIER = 7_000
"""Ns by which the whole trace begins before the part: it has an event that the part lacks."""


def make_entries(count: int) -> list[dict[str, object]]:
    return [
        entry
        for k in range(count)
        for entry in (
            step(k, 1000 * k + 10, 900),
            cpu("aten::mm", 1000 * k + 100, 300),
            runtime("cudaLaunchKernel", 1000 * k + 200, 10, k + 1),
            kernel("gemm", 1000 * k + 300, 400, k + 1),
        )
    ]


def make_part(count: int = 3) -> EarlyTrace:
    part = replace(trace(*make_entries(count)), label="/data/run.json", part=f"first {count} ms")
    return EarlyTrace(part, count * 1_000_000, count / 10)


def make_whole() -> Trace:
    other = cpu("aten::randn", 10 - EARLIER / 1000, 2, thread=77)
    return replace(trace(*make_entries(10), other), label="/data/run.json")


class GrowingOpener:
    """An opener whose trace is there when `finish` is called, its beginning when `show` is."""

    def __init__(self) -> None:
        self.label = self.spec = self.path = "/data/run.json"
        self.cached = self.cache_was_damaged = self.cancelled = self.closed = False
        self.left_out: tuple[str, ...] = ()
        self.receive_early: Callable[[EarlyTrace], None] | None = None
        self._done: asyncio.Future[Trace] | None = None

    def start(self) -> None: ...

    def wait_until_connected(self) -> None: ...

    async def load_trace(self, report: Report) -> Trace:
        report(Progress(Phase.READING, 34, 100, 7))
        self._done = asyncio.get_running_loop().create_future()
        try:
            return await self._done
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    def show(self, early: EarlyTrace) -> None:
        assert self.receive_early is not None
        self.receive_early(early)

    def finish(self, result: Trace | LoadError) -> None:
        assert self._done is not None
        if isinstance(result, LoadError):
            self._done.set_exception(result)
        else:
            self._done.set_result(result)

    def split_into_blocks(self, trace: Trace) -> None: ...

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def early_lanes(
    early: EarlyTrace | None = None,
    size: tuple[int, int] = (120, 40),
) -> AsyncIterator[tuple[TorchprofApp, GrowingOpener, Pilot[None]]]:
    """Run the app while a trace loads and its beginning is on screen."""
    opener = GrowingOpener()
    app = TorchprofApp(opener, cache=False)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: opener.receive_early is not None and opener._done is not None)
        opener.show(early or make_part())
        await until(pilot, lambda: isinstance(app.screen, ExplorerScreen))
        await pilot.pause()
        yield app, opener, pilot


def explorer_of(app: TorchprofApp) -> ExplorerScreen:
    screen = app.screen
    assert isinstance(screen, ExplorerScreen)
    return screen


def title_of(app: TorchprofApp) -> str:
    return explorer_of(app)._lanes_area.title.render_line(0).text


@pytest.fixture(autouse=True)
def _own_state(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


async def test_the_beginning_is_on_screen_with_a_sign_and_then_the_whole_trace() -> None:
    async with early_lanes() as (app, opener, pilot):
        assert "run · loading 34%: first 3 ms so far" in title_of(app)
        assert not app.lanes_ready.is_set()
        explorer = explorer_of(app)
        await until(pilot, lambda: explorer._panel_controller.scopes.is_ready)
        await until(pilot, lambda: "first 3 ms: " in explorer._panel_controller.scopes.verdict_line.render_line(0).text)
        whole = make_whole()
        opener.finish(whole)
        await until(pilot, app.lanes_ready.is_set)
        assert explorer_of(app).trace is whole
        assert explorer_of(app).view_state.viewport.is_whole
        assert "so far" not in title_of(app)
        assert len(app.screen_stack) == 2


@at_every_size
async def test_goldens(size: tuple[int, int]) -> None:
    async with early_lanes(size=size) as (app, _, pilot):
        screen = explorer_of(app)
        await until(pilot, lambda: screen._panel_controller.scopes.is_ready)
        await pilot.press("right", "down")
        await until(pilot, lambda: screen._panel_controller.chain_panel.chain is not None)
        for _ in range(3):
            await pilot.pause(0.05)  # the worker of the loading screen runs on: only the explorer's own are waited for
            await until(pilot, lambda: all(worker.is_finished for worker in app.workers if worker.node is screen))
        await pilot.pause()
        compare_golden("early-lanes", size, text_on_screen(screen))


@pytest.mark.long
async def test_view_selection_and_search_stay_where_they_were() -> None:
    async with early_lanes() as (app, opener, pilot):
        await pilot.press("/", *"gemm", "enter", "n", "m", "w", "w", "d", "l")
        part = explorer_of(app)
        state, shown = part.view_state, part.trace
        assert state.selected >= 0
        assert not state.viewport.is_whole
        whole = make_whole()
        opener.finish(whole)
        await until(pilot, app.lanes_ready.is_set)
        await pilot.pause()
        new = explorer_of(app).view_state
        assert whole.event(new.selected).name == "gemm"
        assert whole.start[new.selected] == shown.start[state.selected] + EARLIER
        assert (new.viewport.t0, new.viewport.t1) == (state.viewport.t0 + EARLIER, state.viewport.t1 + EARLIER)
        assert new.mark is not None
        assert state.mark is not None
        assert new.mark.start == state.mark.start + EARLIER
        assert new.search.matches is not None
        assert len(new.search.matches) == 10
        assert whole.lanes[new.lane].label == shown.lanes[state.lane].label
        assert explorer_of(app)._dock.active_name == part._dock.active_name


@pytest.mark.long
async def test_lanes_that_were_folded_stay_folded() -> None:
    async with early_lanes() as (app, opener, pilot):
        state = explorer_of(app).view_state
        await pilot.press("right", "space")
        folded = {state.trace.lanes[k].label for k in state.lane_view.arrangement.folded}
        assert folded
        opener.finish(make_whole())
        await until(pilot, app.lanes_ready.is_set)
        await pilot.pause()
        new = explorer_of(app).view_state
        assert {new.trace.lanes[k].label for k in new.lane_view.arrangement.folded} == folded


@pytest.mark.long
async def test_the_whole_trace_waits_until_the_user_is_back_at_the_lanes() -> None:
    async with early_lanes() as (app, opener, pilot):
        await pilot.press("t")
        await until(pilot, lambda: isinstance(app.screen, TableScreen))
        table = app.screen
        assert isinstance(table, TableScreen)
        await until(pilot, lambda: "first 3 ms" in table._summary.message)
        opener.finish(make_whole())
        await until(pilot, lambda: len(app._notifications) > 0)
        assert isinstance(app.screen, TableScreen)
        await pilot.press("escape")
        await until(pilot, app.lanes_ready.is_set)
        assert not explorer_of(app).trace.part


@pytest.mark.long
async def test_text_in_the_prompt_is_not_lost() -> None:
    async with early_lanes() as (app, opener, pilot):
        await pilot.press("/", *"ge")
        opener.finish(make_whole())
        await until(pilot, lambda: len(app._notifications) > 0)
        assert explorer_of(app).trace.part
        await pilot.press(*"mm", "enter")
        await until(pilot, app.lanes_ready.is_set)
        assert explorer_of(app).view_state.search.query == "gemm"


@pytest.mark.long
async def test_a_longer_part_takes_the_place_of_a_shorter_one() -> None:
    async with early_lanes() as (app, opener, pilot):
        opener.show(make_part(6))
        await until(pilot, lambda: "first 6 ms so far" in title_of(app))
        assert len(app.screen_stack) == 3
        opener.finish(make_whole())
        await until(pilot, app.lanes_ready.is_set)
        assert len(app.screen_stack) == 2


@pytest.mark.long
async def test_escape_twice_stops_loading() -> None:
    async with early_lanes() as (app, opener, pilot):
        await pilot.press("right", "escape", "escape")
        assert explorer_of(app)._status.message == CANCEL_HINT
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, StartScreen))
        await until(pilot, lambda: opener.cancelled)
        assert app.early_lanes is None


@pytest.mark.long
async def test_a_trace_that_was_left_before_it_could_be_shown_is_not_shown_later() -> None:
    async with early_lanes() as (app, opener, pilot):
        await pilot.press("/", *"ge")
        opener.finish(make_whole())
        await until(pilot, lambda: len(app._notifications) > 0)
        loading = await app.leave_early_lanes()
        assert loading is not None
        await loading.action_give_up()
        await until(pilot, lambda: isinstance(app.screen, StartScreen))
        await app.workers.wait_for_complete([worker for worker in app.workers if worker.group == "open"])
        await pilot.pause()
        assert isinstance(app.screen, StartScreen)
        assert opener.closed


async def test_q_and_ctrl_c_quit() -> None:
    for key in ("q", "ctrl+c"):
        async with early_lanes() as (app, opener, pilot):
            await pilot.press(key)
            await until(pilot, partial(getattr, app, "_exit"))
        assert opener.cancelled


async def test_a_failure_is_shown_in_place_of_the_beginning() -> None:
    async with early_lanes() as (app, opener, pilot):
        opener.finish(LoadError("the loading process was killed"))
        await until(pilot, lambda: isinstance(app.screen, LoadingScreen))
        await until(pilot, lambda: app.failure == "the loading process was killed")


async def test_a_part_is_not_compared() -> None:
    async with early_lanes() as (app, _, pilot):
        await pilot.press("D")
        assert "still loading" in explorer_of(app)._status.message
        assert not explorer_of(app).is_asking
