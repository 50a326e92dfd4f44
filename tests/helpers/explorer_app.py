"""Helpers of the explorer's tests: an app around one trace, and the text on its screen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot

from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import annotation, cpu, kernel, runtime, step, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.ordered_keys import HelpApp, OrderedKeysApp
from torchprof_tui.ui.common.screen_styles import ScreenStylesApp
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen

TRACES = SHARED_TRACES


class ExplorerApp(OrderedKeysApp, HelpApp, ScreenStylesApp):
    def __init__(self, shown: Trace) -> None:
        super().__init__()
        self.shown = shown

    def on_mount(self) -> None:
        self.push_screen(ExplorerScreen(self.shown))


@asynccontextmanager
async def explorer(
    shown: Trace, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[ExplorerScreen, Pilot[None]]]:
    """Run the app around one trace; yield the explorer screen, painted, and the pilot."""
    app = ExplorerApp(shown)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, ExplorerScreen)
        yield screen, pilot


async def press_at_once(pilot: Pilot[None], keys: Sequence[str]) -> None:
    """Send keys (with a name of one letter, or of textual's) without waiting between them, as a paste or ssh does."""
    for key in keys:
        is_character = len(key) == 1
        name = _character_to_key(key) if is_character else key
        pilot.app.post_message(events.Key(name, key if is_character else None))
    await pilot.pause()


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Wait for work on threads or a later frame. Raises AssertionError after about two minutes."""
    for _ in range(12_000):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError("it never happened")


async def settled(pilot: Pilot[None]) -> None:
    """Wait until no debounced call and no worker is left; a result may start further ones, so look twice."""
    quiet_looks = 0
    while quiet_looks < 2:
        await pilot.pause()
        screens = pilot.app.screen_stack
        timers = [timer for screen in screens for timer in screen._timers if timer._repeat == 0]
        is_waiting = any(timer._task is not None and not timer._task.done() for timer in timers)
        quiet_looks = 0 if is_waiting or len(pilot.app.workers) else quiet_looks + 1
        await pilot.app.workers.wait_for_complete()


def text_of(screen: ExplorerScreen) -> str:
    """Return the text on the screen, line by line, without trailing blanks."""
    return "\n".join(strip.text.rstrip() for strip in screen._compositor.render_strips())


def two_steps() -> Trace:
    """Build two steps of ops that launch kernels; times in µs.

    ```
    ProfilerStep#0 0..100        ProfilerStep#1 100..220
      work 10..80                  work 110..200
        aten::mm 20..60              aten::mm 120..150   aten::add 160..190
          cudaLaunchKernel 30..40      … 130..135          … 170..175
    stream 7:         gemm 50..90                  gemm 140..155         add 180..182
    ```
    """
    return trace(
        step(0, 0, 100),
        annotation("work", 10, 70),
        cpu("aten::mm", 20, 40),
        runtime("cudaLaunchKernel", 30, 10, corr=1),
        kernel("gemm", 50, 40, corr=1),
        step(1, 100, 120),
        annotation("work", 110, 90),
        cpu("aten::mm", 120, 30),
        runtime("cudaLaunchKernel", 130, 5, corr=2),
        kernel("gemm", 140, 15, corr=2),
        cpu("aten::add", 160, 30),
        runtime("cudaLaunchKernel", 170, 5, corr=3),
        kernel("add", 180, 2, corr=3),
    )


def event_of(shown: Trace, name: str, nth: int = 0) -> int:
    """Return the nth event (in time order) of a name."""
    name_id = shown.names.index(name)
    events = sorted((int(shown.start[event]), event) for event in range(len(shown)) if shown.name[event] == name_id)
    return events[nth][1]
