"""Helpers of the diff screen's tests: an app around two traces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from tests.helpers.explorer_app import settled
from tests.helpers.paths import SAMPLES
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.ordered_keys import HelpApp, OrderedKeysApp
from torchprof_tui.ui.diff.diff_screen import ComparedInput, DiffScreen


class DiffApp(OrderedKeysApp, HelpApp):
    """An app that shows one comparison."""

    def __init__(self, a: Trace, b: Trace) -> None:
        super().__init__()
        self.inputs = ComparedInput(a, a, "before"), ComparedInput(b, b, "after")
        self.copied = ""

    def on_mount(self) -> None:
        self.push_screen(DiffScreen(*self.inputs))

    def copy_to_clipboard(self, text: str) -> None:
        self.copied = text


@asynccontextmanager
async def comparison(
    a: Trace, b: Trace, size: tuple[int, int] = (100, 30)
) -> AsyncIterator[tuple[DiffScreen, Pilot[None]]]:
    """Run the app around two traces; yield the screen, with all answers, and the pilot."""
    app = DiffApp(a, b)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        screen = app.screen
        assert isinstance(screen, DiffScreen)
        yield screen, pilot


def load_sample(name: str) -> Trace:
    return load_trace(str(SAMPLES / f"{name}.pt.trace.json.gz"), cache=False)


def lines_of(screen: DiffScreen) -> list[str]:
    """Return the lines on the app's screen, without trailing blanks."""
    return [strip.text.rstrip() for strip in screen.app.screen._compositor.render_strips()]


def status_of(screen: DiffScreen) -> str:
    return screen._status.message
