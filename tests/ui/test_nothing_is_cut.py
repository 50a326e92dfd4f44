"""At six terminal sizes no text on a screen is cut off without a mark, and no panel is empty.

All text is laid out by `build_strip`, which cuts what is too long for its line. A text that ends with `…`, or a
separate mark for what is off screen, was shortened on purpose before it came there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from tests.helpers.explorer_app import explorer, settled, until
from tests.helpers.fleet_app import fleet_screen, make_source, sketch_job
from tests.helpers.golden_files import SIZES, at_every_size, format_size, load_sample
from tests.helpers.long_run import keep_some
from tests.helpers.memory_fixtures import MEMORY
from torchprof_fleet.ui.fleet_screen import FleetScreen
from torchprof_tui.ui.common import painted_widget
from torchprof_tui.ui.common.help_screen import HelpScreen
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.flame.flame_screen import FlameScreen
from torchprof_tui.ui.memory.memory_screen import MemoryScreen
from torchprof_tui.ui.memory.snapshot_screen import SnapshotScreen
from torchprof_tui.ui.table.table_screen import TableScreen
from torchprof_tui.ui.tree.tree_screen import TreeScreen

LATER_SCREENS = (HelpScreen, TableScreen, TreeScreen, FlameScreen, MemoryScreen, FleetScreen, SnapshotScreen)
"""Imported here, so that the fixture finds their modules."""

FILLERS = set(" ─━═│┬┴├┤▁▂▃▄▅▆▇█░▒▓")
"""Rules, bars and blanks: a line of them goes on to the edge."""


@pytest.fixture
def cut_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the texts that were cut while a line was built."""
    cut: list[str] = []
    build = painted_widget.build_strip

    def build_and_check(runs: Sequence[TextRun], width: int, blank: Style) -> Strip:
        room = width
        for text, _ in runs:
            size = cell_len(text)
            lost = text[max(room, 0) :] if size > room else ""
            if set(lost) - FILLERS:
                cut.append("".join(text for text, _ in runs))
                break
            room -= size
        return build(runs, width, blank)

    for name, module in list(sys.modules.items()):
        if name.startswith("torchprof_tui.") and getattr(module, "build_strip", None) is build:
            monkeypatch.setattr(module, "build_strip", build_and_check)
    return cut


def test_a_cut_is_noticed(cut_texts: list[str]) -> None:
    painted_widget.build_strip([("abc", Style()), ("def", Style())], 5, Style())
    painted_widget.build_strip([("abc", Style()), ("──────", Style())], 5, Style())
    assert cut_texts == ["abcdef"]


STATES = {
    "opened": (),
    "kernel": ("/", *"nvjet", "enter", "k"),
    "details": ("/", *"nvjet", "enter"),
    "chain": ("/", *"nvjet", "enter", "l"),
    "cheatsheet": ("c", "down", "down"),
    "range": ("m", "d", "d", "m"),
    "doctor": ("!",),
    "panels only": ("z", "z"),
    "table": ("t",),
    "tree": ("T",),
    "flame": ("F",),
    "memory": ("M",),
    "memory-lines": ("M", "v", "tab", "tab", "tab"),
    "flame-empty": ("F", "g", "v"),
    "help": ("?",),
}


@pytest.mark.parametrize("size", keep_some(map(pytest.param, SIZES), 1), ids=format_size)
async def test_no_text_is_cut_without_a_mark(size: tuple[int, int], cut_texts: list[str]) -> None:
    found: dict[str, list[str]] = {}
    async with explorer(load_sample("train_gpt_stack_memory"), size) as (screen, pilot):
        await settled(pilot)
        for state, keys in STATES.items():
            cut_texts.clear()
            for key in keys:
                await pilot.press("slash" if key == "/" else "question_mark" if key == "?" else key)
            await settled(pilot)
            if cut_texts:
                found[state] = sorted(set(cut_texts))[:3]
            panel = screen._dock.active_panel
            if screen.app.screen is screen:
                assert any(text.strip() for line in panel.content(panel.size.width - 2) for text, _ in line), state
            while screen.app.screen is not screen:
                await pilot.press("escape")
                await pilot.pause()
            for _ in range(4):
                await pilot.press("escape")
            await pilot.press("0")
    assert not found


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), pytest.param((160, 48), marks=pytest.mark.long)], ids=format_size)
async def test_no_text_of_a_fleet_is_cut_without_a_mark(size: tuple[int, int], cut_texts: list[str]) -> None:
    found: dict[str, list[str]] = {}
    async with fleet_screen(make_source(sketch_job()), size) as (screen, pilot):
        for key in ("J", *["tab"] * 7, "m", "m", "w", "g", "g", "enter", "space"):
            cut_texts.clear()
            await pilot.press(key)
            await settled(pilot)
            if cut_texts:
                found[f"{key} {screen.which.value} {screen.grouping_name}"] = sorted(set(cut_texts))[:3]
    assert not found


@at_every_size
async def test_no_text_of_a_snapshot_is_cut_without_a_mark(size: tuple[int, int], cut_texts: list[str]) -> None:
    found: dict[str, list[str]] = {}
    async with explorer(load_sample("matmul_add_64_cold_eager"), size) as (_, pilot):
        screen = SnapshotScreen(MEMORY / "snapshot.pickle.gz", lambda _: None)
        await pilot.app.push_screen(screen)
        await until(pilot, lambda: screen.read is not None)
        for key in ("w", *["tab"] * 6, "down", "enter"):
            cut_texts.clear()
            await pilot.press(key)
            await settled(pilot)
            if cut_texts:
                found[f"{key} {screen.shown_list.value}"] = sorted(set(cut_texts))[:3]
    assert not found
