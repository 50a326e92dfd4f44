"""Test what-if in the app (`P`): the prompt, the forecast in the panel of the critical path, and wrong scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from tests.analysis.rank_path.simulated_ranks import write_late_run
from tests.helpers.explorer_app import explorer, settled, text_of
from tests.helpers.golden_files import at_every_size, compare_golden, load_sample, text_on_screen
from tests.helpers.merged_ranks import load_merged_ranks
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen


def what_is_asked(screen: ExplorerScreen) -> str:
    return screen._prompt.query_one(Input).value


async def ask(screen: ExplorerScreen, pilot, text: str) -> None:  # type: ignore[no-untyped-def]
    await pilot.press(":", *"what-if", "enter")
    await settled(pilot)
    screen._prompt.query_one(Input).value = text
    await pilot.pause()
    await pilot.press("enter")
    await settled(pilot)


@pytest.mark.long
async def test_scenarios_stack_and_are_listed_with_what_each_wins_alone() -> None:
    async with explorer(load_sample("train_gpt_eager"), (160, 48)) as (screen, pilot):
        await ask(screen, pilot, "class=gemm*0.5; launch=graph")
        text = text_of(screen)
        assert "what if, ProfilerStep#" in text
        assert "alone" in text
        assert "class=gemm*0.5" in text
        assert "launch=graph" in text
        assert "then limited by" in text
        assert "next:" in text
        await pilot.press(":", *"what-if", "enter")
        await settled(pilot)
        assert what_is_asked(screen).startswith("class=gemm*0.5; launch=graph")
        await pilot.press("escape")
        await ask(screen, pilot, "")
        assert "what if, ProfilerStep#" not in text_of(screen)


async def test_a_wrong_scenario_says_what_is_accepted_and_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async with explorer(load_sample("train_gpt_eager"), (240, 60)) as (screen, pilot):
        hints: list[str] = []
        monkeypatch.setattr(screen._prompt, "show_hint", hints.append)
        await ask(screen, pilot, "clas=gemm*0.5")
        assert "it begins with class, op, kernel" in hints[-1]
        assert screen._prompt.is_open
        screen._prompt.query_one(Input).value = "class=gem*0.5"
        await pilot.press("enter")
        await settled(pilot)
        assert "the classes: other, gemm" in hints[-1]


@pytest.mark.long
async def test_the_selected_event_is_suggested() -> None:
    trace = load_sample("train_gpt_eager")
    async with explorer(trace, (160, 48)) as (screen, pilot):
        row = next(row for row in range(len(trace)) if trace.event(row).name == "aten::addmm")
        screen.view_state.select(row)
        await pilot.press(":", *"what-if", "enter")
        await settled(pilot)
        assert what_is_asked(screen) == f"event={row}*0.5"


@pytest.mark.long
async def test_the_late_rank_can_be_left_out(tmp_path: Path) -> None:
    async with explorer(load_merged_ranks(write_late_run(tmp_path)), (160, 48)) as (screen, pilot):
        await ask(screen, pilot, "late-rank=0")
        text = text_of(screen)
        assert "what if, ProfilerStep#0" in text
        assert "on rank 0" in text
        assert "late-rank=0" in text
        await ask(screen, pilot, "rank=1*0.5")
        assert "rank=1*0.5" in text_of(screen)


@at_every_size
async def test_goldens(size: tuple[int, int]) -> None:
    async with explorer(load_sample("train_gpt_eager"), size) as (screen, pilot):
        await ask(screen, pilot, "class=gemm*0.5; launch=graph")
        await pilot.pause()
        drawn = text_on_screen(screen)
    compare_golden("explorer-what-if", size, drawn)
