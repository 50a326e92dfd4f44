"""Test the screen of `hang`: where it begins, its keys, and what is shown of a rank."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import settled
from tests.helpers.paths import FIXTURES
from torchprof_hang.analysis.evidence import Evidence
from torchprof_hang.answers import build_hang
from torchprof_hang.command.files import read_evidence
from torchprof_hang.ui.hang_screen import HangScreen
from torchprof_tui.ui.common.ordered_keys import HelpApp, OrderedKeysApp

pytestmark = pytest.mark.painted


class HangScreenApp(OrderedKeysApp, HelpApp):
    def __init__(self, evidence: Evidence) -> None:
        super().__init__()
        self.evidence, self.copied = evidence, ""

    def on_mount(self) -> None:
        self.push_screen(HangScreen(self.evidence, build_hang(self.evidence, 12)))

    def copy_to_clipboard(self, text: str) -> None:
        self.copied = text


@asynccontextmanager
async def opened(name: str, size: tuple[int, int] = (100, 30)) -> AsyncIterator[tuple[HangScreen, Pilot[None]]]:
    app = HangScreenApp(read_evidence([str(FIXTURES / "hang" / f"{name}.tar.xz")]))
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        assert isinstance(app.screen, HangScreen)
        yield app.screen, pilot


def read_rows(screen: HangScreen, width: int = 100) -> list[str]:
    return screen.rows.visible_text(width).split("\n")


@pytest.mark.parametrize("size", [(80, 24), (160, 48), (240, 60)])
async def test_it_begins_at_the_fault(size: tuple[int, int]) -> None:
    async with opened("skip_all_reduce", size) as (screen, _):
        lines = ["".join(text for text, _ in screen._verdict.content(size[0] - 2)[0])]
        assert lines[0].startswith("rank 1 skipped all_reduce [64] at program.py:")
        rows = read_rows(screen, size[0])
        assert "▼#7" in rows[0]
        assert [each.split()[-1] for each in rows[1:]] == ["start", "op", "start"]
        assert screen.rows.cursor == 1
        assert screen._stack_title == "rank 1: #7 all_gather [10] started"
        assert any("program.py" in each for each in screen._lines)


async def test_n_goes_to_the_next_disagreement_and_g_to_the_next_group() -> None:
    async with opened("group_of_half") as (screen, pilot):
        assert screen.group is not None
        assert screen.group.label == "group 2"
        await pilot.press("}")
        await settled(pilot)
        assert screen.group.label == "the default group"
        await pilot.press("n")
        await settled(pilot)
        assert (screen._members[screen.rows.cursor], screen._numbers[screen.column]) == (6, 4)
        assert "absent" in screen._stack_title
        await pilot.press("left")
        await settled(pilot)
        assert screen._numbers[screen.column] == 3


async def test_enter_opens_the_stack_and_escape_leaves_it() -> None:
    async with opened("skip_all_reduce", (80, 24)) as (screen, pilot):
        await pilot.press("enter", "down")
        await settled(pilot)
        assert not screen.rows.display
        assert screen._stack.cursor == 1
        assert screen.rows.cursor == 1
        await pilot.press("escape")
        await settled(pilot)
        assert screen.rows.display


@pytest.mark.long
async def test_a_rank_is_found_and_copied() -> None:
    async with opened("skip_in_branch") as (screen, pilot):
        await pilot.press("slash", *"7", "enter")
        await settled(pilot)
        assert screen._members[screen.rows.cursor] == 7
        await pilot.press("y")
        await settled(pilot)
        copied = screen.app.copied  # type: ignore[attr-defined]
        assert copied.startswith("rank 5 skipped broadcast [10]")
        assert "rank 7: " in copied
        await pilot.press("Y")
        await settled(pilot)
        assert screen.app.copied.count("\n") == 8  # type: ignore[attr-defined]
