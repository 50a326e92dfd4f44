"""Play sessions of the app in this process: any keys, any size, and what is on the screen after them."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import sys
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np
from textual.binding import Binding
from textual.pilot import OutOfBounds, Pilot, WaitForScreenTimeout
from textual.screen import Screen
from textual.widget import Widget

import torchprof_tui.ui
from tests.helpers.explorer_app import press_at_once
from tests.hostile.cases import TRACE, ScreenCase
from tests.hostile.commands import captured, prepare_cache
from tests.hostile.oracle import FindingError, check_errors, check_strips, check_svg
from tests.hostile.world import World, build_world
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.loading.decode_and_store import decode_and_store
from torchprof_tui.trace.loading.load_in_process import split_into_blocks
from torchprof_tui.trace.loading.open_or_build import BuildResult, OpeningState
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.loading.progress import Report
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.specs.address import is_remote
from torchprof_tui.trace.storage.disk_cache import CacheEntry
from torchprof_tui.ui.common.screen_picture import draw_screen
from torchprof_tui.ui.start.loading_screen import SecondTraceScreen

SECONDS = 300
"""A session of some hundred keys that takes longer hangs: dozens of times what the slowest one takes."""

OPENING_ROUNDS = 500
"""How often to look, each 10 ms, whether the trace to compare with is open."""

NOT_PRESSED = ("ctrl+z",)
"""Keys that end or stop this process."""

TEXTS = ("0", "1", "9", "+", "-", ".", "*", "(", "[", "\\", "~", "/", ":", " ", "é", "λ", "x")


@cache
def list_keys() -> list[str]:
    """List every key that a screen, a widget or the app binds, and characters to type into prompts."""
    for module in pkgutil.walk_packages(torchprof_tui.ui.__path__, "torchprof_tui.ui."):
        importlib.import_module(module.name)
    keys = {"up", "down", "left", "right", "home", "end", "pageup", "pagedown", "tab", "shift+tab", "enter", "escape"}
    pending: list[type[Any]] = [Screen, Widget, TorchprofApp]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__module__.startswith("torchprof_tui"):
            for binding in kind.__dict__.get("BINDINGS", ()):
                bound = binding.key if isinstance(binding, Binding) else str(binding[0])
                keys |= {key.strip() for key in bound.split(",")}
    return sorted((keys - set(NOT_PRESSED)) | set(TEXTS))


class InProcessOpener(SingleTraceOpener):
    """Open one trace without a worker process, so that an error in the decoder ends the session."""

    def start(self) -> None:
        self._state = OpeningState(self.spec, self.label, self._use_cache)
        self.cached = self._state.cached

    async def _build(self, report: Report, entry: CacheEntry) -> BuildResult:
        return await asyncio.to_thread(partial(decode_and_store, self.spec, entry.folder, report, process_count=1))

    def split_into_blocks(self, trace: Trace) -> None:
        split_into_blocks(trace)


def play_screen_case(case: ScreenCase) -> tuple[str, ...]:
    """Play one session. Returns the titles of the screens that it showed, in order.

    Raises FindingError, or the exception that ended the app.
    """
    asks = any(key in ("enter", "ctrl+r") or key.startswith("click") for burst in case.bursts for key in burst)
    with build_world(case.inputs, named_outputs=asks) as world:
        prepare_cache(world, case.inputs)
        with captured("utf-8") as (_, err), np.errstate(over="raise", divide="raise", invalid="raise"):
            try:
                return asyncio.run(asyncio.wait_for(_play(case, world), SECONDS))
            except asyncio.TimeoutError as error:
                raise FindingError(f"the session does not end within {SECONDS} s") from error
            finally:
                sys.stderr.flush()
                text = err.getvalue().decode()
                if sys.exc_info()[1] is None:
                    check_errors(text, 0)


async def _play(case: ScreenCase, world: World) -> tuple[str, ...]:
    uses_cache = case.inputs.cache_flips is not None
    opener = None
    if case.opens_trace:
        path = resolve_specs([TRACE]).path
        opener = InProcessOpener(path, TRACE, cache=uses_cache)
        opener.start()
    app = TorchprofApp(opener, cache=uses_cache, at=case.at)
    if case.opens_trace:
        app._start_opener = partial(_start_in_process, uses_cache=uses_cache)  # type: ignore[method-assign]
    titles: list[str] = []
    try:
        async with app.run_test(size=case.size) as pilot:
            if opener is not None:
                await app.lanes_ready.wait()
            await pilot.pause()
            _check_screen(app, titles)
            for burst in case.bursts:
                if app._exit:
                    break
                await _play_burst(pilot, burst)
                await _wait_for_comparison(pilot)
                _check_screen(app, titles)
            if not app._exit:
                await pilot.pause(0.02)
                with suppress(asyncio.CancelledError):
                    await asyncio.wait_for(_settle(app), SECONDS / 2)
                await pilot.pause()
                _check_screen(app, titles)
                check_svg(draw_screen(app))
    finally:
        if opener is not None:
            opener.cancel()
    if "could not read the trace (" in (app.failure or ""):
        raise FindingError(f"an error of the program in place of a reason: {app.failure}")
    return tuple(titles)


def _start_in_process(specs: tuple[str, ...], captures: tuple[str, ...] = (), *, uses_cache: bool) -> InProcessOpener:
    """Start to open the trace to compare with, in place of the app's own method."""
    resolved = resolve_specs(specs)
    if resolved.rank_files or resolved.remote_names or is_remote(resolved.path):
        raise ValueError("no single trace on this machine")
    opener = InProcessOpener(resolved.path, specs[0], cache=uses_cache)
    opener.captures = captures
    opener.start()
    return opener


async def _wait_for_comparison(pilot: Pilot[None]) -> None:
    """Wait until the trace to compare with is open, or why it cannot be is on the screen."""
    for _ in range(OPENING_ROUNDS):
        is_started = any(worker.group == "second trace" and not worker.is_finished for worker in pilot.app.workers)
        screen = pilot.app.screen
        if not is_started and not (isinstance(screen, SecondTraceScreen) and not screen.has_class("failed")):
            return
        await pilot.pause(0.01)


async def _settle(app: TorchprofApp) -> None:
    """Wait for the workers that end by themselves: not those of a recording, which the screen polls."""
    workers = [worker for worker in app.workers if worker.node is app.screen and worker.group != "poll"]
    if workers and not getattr(app.screen, "busy", False):
        await app.workers.wait_for_complete(workers)


async def _play_burst(pilot: Pilot[None], burst: tuple[str, ...]) -> None:
    keys: list[str] = []
    for key in burst:
        kind, _, place = key.partition(":") if key.startswith(("resize:", "click:")) else (key, "", "")
        if not place:
            keys.append(key)
            continue
        await press_at_once(pilot, keys)
        keys = []
        x, y = (int(number) for number in place.replace("x", ",").split(","))
        if kind == "resize":
            await pilot.resize_terminal(x, y)
        else:
            with suppress(OutOfBounds):
                await pilot.click(offset=(x, y))
    with suppress(WaitForScreenTimeout):
        await press_at_once(pilot, keys)


def _check_screen(app: TorchprofApp, titles: list[str]) -> None:
    """The lines on the screen, and the title of the terminal's window."""
    screen = app.screen
    name = type(screen).__name__
    if titles[-1:] != [name]:
        titles.append(name)
    check_strips(strip.text for strip in screen._compositor.render_strips())
