"""Test that opening a screen parses its style sheet alone, with the same rules as textual's own way."""

from __future__ import annotations

from typing import Any

import pytest
from textual.app import App
from textual.css import stylesheet
from textual.css.parse import parse
from textual.css.stylesheet import Stylesheet

from tests.helpers.explorer_app import explorer, two_steps, until
from torchprof_tui.app import TorchprofApp
from torchprof_tui.ui.common.screen_styles import THEMES, ScreenStylesApp
from torchprof_tui.ui.memory.memory_screen import MemoryScreen


def test_textual_has_the_method_that_is_replaced() -> None:
    assert hasattr(App, "_load_screen_css")
    assert "_load_screen_css" in vars(ScreenStylesApp)


async def test_no_style_sheet_is_parsed_twice_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The theme of the program differs from textual's first one, with whose colours nothing is parsed."""
    monkeypatch.setattr(Stylesheet, "reparse", lambda self: pytest.fail("all style sheets are parsed again"))
    app = TorchprofApp(theme="light")
    async with app.run_test():
        assert app.screen.styles.background.hex == THEMES["light"].background.upper()


async def test_only_the_style_sheet_of_a_new_screen_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse_and_note(scope: str, css: str, read_from: tuple[str, str], *args: Any, **more: Any) -> Any:
        parsed.append(read_from[0])
        return parse(scope, css, read_from, *args, **more)

    # tests/conftest.py keeps rules for all apps; an app whose own cache they do not fill would parse all sheets again
    parse_rules = getattr(Stylesheet._parse_rules, "__wrapped__", Stylesheet._parse_rules)
    monkeypatch.setattr(Stylesheet, "_parse_rules", parse_rules)
    async with explorer(two_steps()) as (_, pilot):
        monkeypatch.setattr(stylesheet, "parse", parse_and_note)
        monkeypatch.setattr(Stylesheet, "reparse", lambda self: pytest.fail("all style sheets are parsed again"))
        await pilot.press("M")
        await until(pilot, lambda: isinstance(pilot.app.screen, MemoryScreen))
        assert sum(path.endswith("memory_screen.tcss") for path in parsed) == 1
        assert not any(path.endswith("explorer_screen.tcss") for path in parsed)
        rules = [str(rule.selectors) for rule in pilot.app.stylesheet.rules]
        monkeypatch.undo()
        pilot.app.stylesheet.reparse()
        assert [str(rule.selectors) for rule in pilot.app.stylesheet.rules] == rules
