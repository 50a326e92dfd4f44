"""The flame graph by its keys: zooming, searching, its scopes, writing files, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.strip import Strip

from tests.analysis.flame.test_fold import training
from tests.helpers.explorer_app import explorer, settled, two_steps, until
from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import cpu, python, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.flame.flame_screen import FlameScreen
from torchprof_tui.ui.flame.icicle import Icicle

pytestmark = pytest.mark.painted


def lines(flame: FlameScreen) -> list[str]:
    return [strip.text.rstrip() for strip in flame._compositor.render_strips()]


def frame_line(flame: FlameScreen) -> str:
    """Return the name of the frame under the cursor, below the icicle."""
    return lines(flame)[-4].strip()


def summary(flame: FlameScreen) -> str:
    return lines(flame)[-2].strip()


async def opened(screen: ExplorerScreen, pilot: Pilot[None]) -> FlameScreen:
    await pilot.press("F")
    flame = screen.app.screen
    assert isinstance(flame, FlameScreen)
    await settled(pilot)
    return flame


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


async def test_opens_with_stacks_and_moves_by_arrows_and_wasd() -> None:
    async with explorer(training(), (80, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        assert "[stacks]" in lines(flame)[0]
        assert summary(flame) == "GPU time 341.0 µs · whole trace · 6.2 % without a stack · 11 paths"
        await press(pilot, "down")
        assert frame_line(flame) == "train.py(3): main"
        assert "320.0 µs, 94 % · 2 events" in lines(flame)[-3]
        assert lines(flame)[-3].endswith("▌your code ▌modules ▌packages ▌torch, Python ▌GPU")  # each colour has a name
        await press(pilot, "down")
        assert frame_line(flame) == "nn.Module: Net_0"
        await press(pilot, "up", "d")
        assert "GPU work without a recorded launch" in frame_line(flame)
        await press(pilot, "d", "d", "d")
        assert "the last frame of this row" in lines(flame)[-1]
        await press(pilot, "home")
        assert frame_line(flame) == "train.py(3): main"
        await press(pilot, "pagedown")
        assert frame_line(flame) == "gemm"
        await press(pilot, "up", "pageup", "up")
        assert "nothing is above it" in lines(flame)[-1]


async def test_enter_zooms_and_escape_and_backspace_return() -> None:
    async with explorer(training(), (80, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        await press(pilot, "down", "down", "down", "enter")
        assert "zoomed in" in summary(flame)
        assert frame_line(flame) == "nn.Module: Linear_0"
        box = flame.icicle.box
        assert box is not None
        assert box.width == 80
        await press(pilot, "backspace")
        assert "zoomed in" not in summary(flame)
        assert frame_line(flame) == "nn.Module: Linear_0"
        await press(pilot, "enter", "escape")
        assert "zoomed in" not in summary(flame)
        assert flame.is_current
        await press(pilot, "escape")
        assert screen.app.screen is screen


@pytest.mark.parametrize("keys", keep_some([(("enter", "enter"),), (("w", "enter"),)], 1))
async def test_a_frame_is_shown_on_the_lanes(keys: tuple[str, ...]) -> None:
    async with explorer(training(), (80, 24)) as (screen, pilot):
        await opened(screen, pilot)
        await press(pilot, "down", "down", *keys)
        assert screen.app.screen is screen
        selected = screen.trace.event(screen.view_state.selected)
        assert (selected.name, selected.start) == ("nn.Module: Net_0", 20_000)


async def test_a_leaf_is_shown_on_the_lanes_by_enter() -> None:
    async with explorer(training(), (80, 24)) as (screen, pilot):
        await opened(screen, pilot)
        await press(pilot, "pagedown", "enter")
        assert screen.app.screen is screen
        assert screen.trace.event(screen.view_state.selected).name == "gemm"


async def test_tabs_and_x_change_frames_and_time() -> None:
    async with explorer(training(), (80, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        await press(pilot, "tab")
        assert "[modules]" in lines(flame)[0]
        assert "6.2 % in no module" in summary(flame)
        await press(pilot, "tab", "x")
        assert "[ops]" in lines(flame)[0]
        assert summary(flame).startswith("CPU time ")
        await press(pilot, "backspace", "backspace")
        assert "[modules]" in lines(flame)[0]
        assert summary(flame).startswith("GPU time ")


async def test_a_search_marks_frames_and_sums_them_once() -> None:
    async with explorer(training(), (80, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        await press(pilot, "n")
        assert "no search yet" in lines(flame)[-1]
        await press(pilot, "slash", *"nn.module", "enter")
        assert "match 1 of 2 for 'nn.module' · together 320.0 µs, 94 %" in lines(flame)[-1]
        assert frame_line(flame) == "nn.Module: Net_0"
        await press(pilot, "n")
        assert frame_line(flame) == "nn.Module: Linear_0"
        await press(pilot, "N")
        assert frame_line(flame) == "nn.Module: Net_0"
        await press(pilot, "slash", *"nothing", "enter")
        assert "no match for 'nothing'" in lines(flame)[-1]
        await press(pilot, "slash", *"/(/", "enter")
        assert flame._prompt.is_open
        assert "not a regular expression" in lines(flame)[-1]
        await press(pilot, "escape", "n")  # escape ends the search before it, too
        assert "no search yet" in lines(flame)[-1]


async def test_a_search_before_the_graph_is_read() -> None:
    async with explorer(training(), (80, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        await press(pilot, "slash")
        flame.icicle.flame = None
        flame._preview_search("net")
        await pilot.pause()
        assert "no graph to search yet" in lines(flame)[-1]


async def test_a_match_that_is_too_narrow_is_zoomed_into() -> None:
    ops = [cpu(f"op {number}", number * 1000, 900 - number) for number in range(400)]
    async with explorer(trace(*ops, cpu("tiny", 500_000, 1)), (80, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        await press(pilot, "slash", *"tiny", "enter")
        assert frame_line(flame) == "tiny"
        await press(pilot, "enter")
        assert screen.trace.event(screen.view_state.selected).name == "tiny"


async def test_the_rest_is_zoomed_into() -> None:
    ops = [cpu(f"op {number}", number * 1000, 900 - number) for number in range(400)]
    async with explorer(trace(*ops), (80, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        await press(pilot, "down", "end")
        assert frame_line(flame) == "400 frames too narrow to draw"
        await press(pilot, "w")
        assert frame_line(flame) == "op 0"
        assert any("▶op 0" in line for line in lines(flame))


async def test_scopes_are_those_of_the_table() -> None:
    async with explorer(two_steps(), (80, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        assert "GPU time 57.0 µs · whole trace" in summary(flame)
        await press(pilot, "escape")
        await press(pilot, "{")  # selects a step
        flame = await opened(screen, pilot)
        assert "GPU time 40.0 µs · ProfilerStep#0" in summary(flame)
        for _ in range(4):  # the scopes go round
            if "whole trace" not in summary(flame):
                await press(pilot, "v")
        assert "GPU time 57.0 µs · whole trace" in summary(flame)


@pytest.mark.parametrize(
    ("shown", "text"),
    keep_some(
        [
            (trace(cpu("aten::mm", 0, 10)), "no Python stacks: record it with with_stack=True. shift+tab: ops."),
            (trace(python("a.py(1): f", 0, 10)), "no ops"),
            (trace(), "no ops"),
        ],
        1,
    ),
)
async def test_an_empty_graph_says_what_to_record(shown: Trace, text: str) -> None:
    async with explorer(shown, (120, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        for _ in range(3):
            if any(text in line for line in lines(flame)):
                break
            await press(pilot, "tab")
        assert any(text in line for line in lines(flame))
        await press(pilot, "down")
        assert "nothing to see here" in lines(flame)[-1]


@pytest.mark.long
async def test_writes_folded_stacks_and_speedscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with explorer(training(), (80, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        await press(pilot, "e", "enter")
        assert "wrote 4 stacks" in lines(flame)[-1]
        await press(pilot, "e", "enter")
        assert flame._prompt.is_open  # not overwritten
        await press(pilot, "escape", "e", *["backspace"] * 20, *"a.txt", "enter")
        assert flame._prompt.is_open
        await press(pilot, *["backspace"] * 20, *"a.speedscope.json", "enter")
    assert sum(int(line.rsplit(" ", 1)[1]) for line in (tmp_path / "flame.folded").read_text().splitlines()) == 341_000
    assert json.loads((tmp_path / "a.speedscope.json").read_text())["profiles"][0]["endValue"] == 341_000


async def test_screens_lead_to_each_other() -> None:
    async with explorer(training(), (80, 24)) as (screen, pilot):
        for key, name in (("t", "TableScreen"), ("F", "FlameScreen"), ("T", "TreeScreen"), ("F", "FlameScreen")):
            await press(pilot, key)
            assert type(screen.app.screen).__name__ == name
        await press(pilot, "q")
        assert screen.app.screen is screen


async def test_a_click_selects_and_a_second_one_zooms() -> None:
    async with explorer(training(), (80, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        await pilot.click(flame.icicle, offset=(5, 2))
        await settled(pilot)
        assert frame_line(flame) == "nn.Module: Net_0"
        await pilot.click(flame.icicle, offset=(5, 2))
        await settled(pilot)
        assert "zoomed in" in summary(flame)
        await until(pilot, lambda: flame.is_current)


async def test_a_move_within_the_rows_on_screen_paints_two_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with explorer(training(), (80, 24)) as (screen, pilot):
        flame = await opened(screen, pilot)
        painted: list[int] = []
        paint = Icicle.paint

        def note_line(icicle: Icicle, y: int, width: int) -> Strip:
            painted.append(y)
            return paint(icicle, y, width)

        monkeypatch.setattr(Icicle, "paint", note_line)
        await press(pilot, "down")
        assert sorted(painted) == [0, 1]
        before = lines(flame)
        flame.query_one(Icicle).repaint()
        await settled(pilot)
        assert lines(flame) == before
