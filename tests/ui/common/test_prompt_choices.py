"""What a prompt offers: filtered while typing, chosen with the arrows, completed with tab; and what `:` takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from tests.helpers.explorer_app import ExplorerApp, explorer, settled, text_of, two_steps, until
from tests.helpers.long_run import keep_some
from torchprof_tui.ui.common.compare_asked import CompareAsked
from torchprof_tui.ui.common.comparison_request import list_own_choices, parse_request
from torchprof_tui.ui.common.status_line import Choice, Prompt, find_choices
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.memory.memory_screen import MemoryScreen
from torchprof_tui.ui.tree.tree_screen import TreeScreen

CHOICES = [Choice("memory"), Choice("sample:gpt"), Choice("gpt.json"), Choice("sample:gpt_compile")]


def value(screen: ExplorerScreen) -> str:
    return screen.query_one(Prompt).query_one(Input).value


def test_choices_contain_the_text_and_those_that_begin_with_it_come_first() -> None:
    assert [choice.text for choice in find_choices(CHOICES, "GPT")] == ["gpt.json", "sample:gpt", "sample:gpt_compile"]
    assert find_choices(CHOICES, "") == CHOICES
    assert find_choices(CHOICES, "nothing") == []


def test_a_comparison_with_itself_offers_requests_that_can_be_parsed() -> None:
    offered = [text for text, _ in list_own_choices(two_steps(), [0, 1, 3])]
    assert {"step 0 against step 1", "rank 0 against rank 1", "rank 0 against rank 3"} <= set(offered)
    assert len(offered) == len(set(offered))
    for text in offered:
        assert not parse_request(text).other
    assert not any(text.startswith("rank") for text, _ in list_own_choices(two_steps(), [0]))


@pytest.mark.long
async def test_tab_completes_and_arrows_choose() -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        await pilot.press(":", *"mem", "tab")
        assert value(screen) == "memory"
        await pilot.press("escape", ":", *"fold-", "down")
        assert value(screen) == "fold-all"
        await pilot.press("down", "down")
        assert value(screen) == "fold-"
        await pilot.press("tab", "escape")
        assert not screen.query_one(Prompt).has_class("choosing")


@pytest.mark.long
@pytest.mark.parametrize("key", keep_some(["t", "T", "F", "M"], 1))
async def test_a_comparison_is_asked_for_with_the_same_choices_on_all_screens(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[CompareAsked] = []
    monkeypatch.setattr(ExplorerApp, "on_compare_asked", lambda _app, message: asked.append(message), raising=False)
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        await pilot.press(key)
        await until(pilot, lambda: pilot.app.screen is not screen)
        await pilot.press("D")
        prompt = pilot.app.screen.query_one(Prompt)
        assert "step 0 against step 1" in prompt.found
        await pilot.press(*"step 1/1", "enter")
        await pilot.pause()
        assert prompt.is_open  # says what is wrong with it
        await pilot.press("backspace", "backspace", "backspace", *"0/1", "enter")
        await until(pilot, lambda: bool(asked))
        assert pilot.app.screen is screen
        assert asked[0].trace is screen.trace
        assert asked[0].request == parse_request("step 0/1")


async def test_names_lead_to_panels_and_screens_from_any_screen() -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        await pilot.press(":", *"tree", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, TreeScreen))
        await pilot.app.screen.run_action("go_to")
        await pilot.press(*"memory", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, MemoryScreen))
        await pilot.app.screen.run_action("go_to")
        await pilot.press(*"doctor", "enter")
        await until(pilot, lambda: pilot.app.screen is screen and screen.help_topic == "doctor")
        await settled(pilot)
        await pilot.press(":", *"nowhere", "enter")
        assert screen.query_one(Prompt).is_open


def test_a_choice_whose_file_begins_with_the_text_comes_first() -> None:
    choices = [Choice("sample:my_mlp"), Choice("/runs/mlp_b.json"), Choice("mlp")]
    assert [choice.text for choice in find_choices(choices, "mlp")] == ["/runs/mlp_b.json", "mlp", "sample:my_mlp"]


@pytest.mark.long
async def test_what_a_choice_is_stays_beside_a_long_name(tmp_path: Path) -> None:
    names = [str(tmp_path / f"{'long_' * 12}{letter}.pt.trace.json.gz") for letter in "ab"]
    async with explorer(two_steps(), (80, 24)) as (screen, pilot):
        await pilot.press("D")
        screen.query_one(Prompt).offer([Choice(name, "the same, compiled") for name in names])
        await settled(pilot)
        assert text_of(screen).count("the same, compiled") == 2
        assert "long_b.pt.trace.json.gz" in text_of(screen)


async def test_tab_completes_the_path_of_a_trace_to_compare_with(tmp_path: Path) -> None:
    for name in ("mlp.json", "mlp.key_averages.json", "mlp.py"):
        (tmp_path / name).touch()
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        await pilot.press("D")
        screen.query_one(Prompt).query_one(Input).value = f"{tmp_path}/m"
        await pilot.press("tab")
        await until(pilot, lambda: value(screen) == f"{tmp_path}/mlp.json")


@pytest.mark.long
async def test_the_prompt_lists_first_what_its_hint_names() -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        await pilot.press(":")
        assert screen.query_one(Prompt).found[:2] == ["memory", "doctor"]
