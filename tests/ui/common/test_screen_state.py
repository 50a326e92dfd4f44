"""A resize that a screen handles after it was closed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from textual import events
from textual.geometry import Size
from textual.screen import Screen

from tests.helpers.explorer_app import explorer
from tests.helpers.trace_builder import cpu, step, trace
from torchprof_tui.ui.common.screen_state import is_removed
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.record.record_screen import RecordScreen

SCREENS: dict[str, Callable[[], Screen[Any]]] = {
    "record": RecordScreen,
    "lanes": lambda: ExplorerScreen(trace(step(0, 0, 100), cpu("aten::mm", 20, 40))),
}


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("size", [(10, 4), (80, 24)])
async def test_a_resize_after_the_screen_was_closed(name: str, size: tuple[int, int]) -> None:
    async with explorer(trace(step(0, 0, 100), cpu("aten::mm", 20, 40)), (80, 24)) as (_, pilot):
        screen = SCREENS[name]()
        await pilot.app.push_screen(screen)
        assert not is_removed(screen)
        await pilot.app.pop_screen()
        assert is_removed(screen)
        assert not screen.children
        takes = len(inspect.signature(screen.on_resize).parameters)  # type: ignore[attr-defined]
        screen.on_resize(*[events.Resize(Size(*size), Size(*size))][:takes])  # type: ignore[attr-defined]
