"""The search prompt: after an error typing still reaches it, and ctrl+c closes it."""

from __future__ import annotations

from tests.helpers.explorer_app import explorer, settled, text_of, two_steps
from torchprof_tui.ui.common.status_line import Prompt


async def test_after_a_wrong_expression_typing_still_reaches_the_prompt() -> None:
    async with explorer(two_steps(), (120, 30)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("slash", *"/(/", "enter")
        await settled(pilot)
        prompt = screen.query_one(Prompt)
        assert prompt.is_open
        assert "missing )" in text_of(screen)
        await pilot.press("t", "q")
        assert prompt._input.value == "/(/tq"
        assert screen.is_current


async def test_ctrl_c_closes_the_prompt_and_copies_where_text_is_selected() -> None:
    async with explorer(two_steps(), (120, 30)) as (screen, pilot):
        copied: list[str] = []
        screen.app.copy_to_clipboard = copied.append  # type: ignore[assignment]
        await pilot.press("slash", *"mm", "shift+home", "ctrl+c")
        prompt = screen.query_one(Prompt)
        assert (copied, prompt.is_open) == (["mm"], True)
        await pilot.press("end", "ctrl+c")
        await settled(pilot)
        assert not prompt.is_open
        assert screen.app.is_running
        assert screen.view_state.search.query == ""
