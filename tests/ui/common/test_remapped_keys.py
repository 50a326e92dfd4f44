"""Test remapped keys: they work, the help and the hints show them, conflicts and unknown ids are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.binding import Binding

from tests.helpers.explorer_app import settled, until
from tests.helpers.long_run import keep_some
from torchprof_samples import find
from torchprof_tui.app import TorchprofApp
from torchprof_tui.program.settings import Configuration, Problem
from torchprof_tui.trace.core.extensions import list_command_names
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.ui.all_bindings import check_keymap, find_bindings, list_remappable_keys
from torchprof_tui.ui.common.bindings import SECTION_TITLES, find_keymap_problems, rename_hint
from torchprof_tui.ui.common.help_screen import HelpScreen
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.table.table_screen import TableScreen
from torchprof_tui.ui.tree.tree_screen import TreeScreen

SAMPLE = find("matmul_add_64_cold_eager").path


def configure(keys: dict[str, str], *problems: str) -> Configuration:
    return Configuration(Path("config.toml"), {}, keys, tuple(Problem("", line) for line in problems))


def start_app(configuration: Configuration) -> TorchprofApp:
    opener = resolve_specs([str(SAMPLE)]).create_opener(cache=False)
    opener.start()
    return TorchprofApp(opener, cache=False, configuration=configuration)


async def test_a_remapped_key_works_and_is_shown_everywhere() -> None:
    app = start_app(configure({"screens.table": "f2", "time.zoom-in": "e,+", "program.help": "f3"}))
    async with app.run_test(size=(160, 48)) as pilot:
        await app.lanes_ready.wait()
        await settled(pilot)
        hints = "".join(segment.text for segment in app.screen.query_one(StatusLine).paint(0, 160))
        assert "f3 help" in hints
        assert "f2 table" in hints
        assert "e a s d zoom, pan" in hints or "easd zoom, pan" in hints
        viewport = app.screen.view_state.viewport  # type: ignore[attr-defined]
        for key in ("e", "plus"):
            await pilot.press(key)
            zoomed = app.screen.view_state.viewport  # type: ignore[attr-defined]
            assert zoomed.span < viewport.span
            viewport = zoomed
        await pilot.press("w")
        assert app.screen.view_state.viewport == viewport  # type: ignore[attr-defined]
        await pilot.press("f3")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        listed = {
            entry.text: entry.label
            for section in app.screen._text._pages["Keys"]  # type: ignore[attr-defined]
            for entry in section.entries
        }
        assert listed["zoom in at the cursor"] == "e +"
        await pilot.press("escape")
        await pilot.press("f2")
        await until(pilot, lambda: isinstance(app.screen, TableScreen))


async def test_a_key_of_the_lanes_is_explained_by_its_new_name() -> None:
    app = start_app(configure({"view.repeat": "O"}))
    async with app.run_test(size=(120, 40)) as pilot:
        await app.lanes_ready.wait()
        await pilot.press("T")
        await until(pilot, lambda: isinstance(app.screen, TreeScreen))
        await pilot.press("O")
        await pilot.pause()
        assert [each.message for each in app._notifications] == ["O (one repeat) works only on the lanes"]


async def test_of_keys_that_do_nothing_only_the_last_is_explained() -> None:
    app = start_app(configure({}))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await app.lanes_ready.wait()
        for reason in ("d works only on the lanes", "d works only on the lanes", "w has no use here"):
            app.say(reason)  # as of keys that were pressed while a trace opens: nothing is drawn between them
        await until(pilot, lambda: len(app.screen.query("ToastHolder")) > 0)
        await pilot.pause()
        assert [each.message for each in app._notifications] == ["w has no use here"]
        assert len(app.screen.query("ToastHolder")) == 1


@pytest.mark.parametrize("problems", keep_some([1, 4], 1))
async def test_mistakes_are_one_notification(problems: int) -> None:
    app = start_app(configure({"time.fit": "t", "time.fits": "z"}, *("config.toml: theme: must be …",) * problems))
    async with app.run_test(size=(160, 48)) as pilot:
        await app.lanes_ready.wait()
        await until(pilot, lambda: len(app._notifications) == 1)
        (told,) = (notification.message.splitlines() for notification in app._notifications)
        assert told[0] == "config.toml: theme: must be …"
        if problems == 1:
            assert 'keys."time.fits": no binding has this id' in told[1]
            assert "t is also the key of screens.table (explorer" in told[2]
        else:
            assert told[3:] == ["3 more: torchprof-tui config --check"]


def test_the_default_keys_have_no_problems() -> None:
    assert check_keymap(TorchprofApp, {}) == []


@pytest.mark.parametrize(
    ("keymap", "problem"),
    [
        ({"a.one": "y"}, 'keys."a.one": y is also the key of a.two (lanes)'),
        ({"a.one": "z"}, 'keys."a.one": z is also the key of app.leave (lanes)'),
        ({"app.leave": "x"}, 'keys."app.leave": x is also the key of a.one (lanes)'),
        ({"a.one": "y", "a.two": "x"}, ""),
        ({"a.one": "x"}, ""),
        ({"a.one": "?", "a.two": "question_mark"}, 'keys."a.one": ? is also the key of a.two (lanes)'),
        ({"nothing": "q"}, 'keys."nothing": no binding has this id; torchprof-tui config --keys lists them'),
    ],
)
def test_conflicts_of_one_screen_and_the_app(keymap: dict[str, str], problem: str) -> None:
    lanes = [Binding("x", "one", id="a.one"), Binding("y", "two", id="a.two")]
    app = [Binding("z", "leave", id="app.leave")]
    assert find_keymap_problems(keymap, {"lanes": lanes}, app) == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("w", "e"),
        ("wasd", "easd"),
        ("f 0", "ctrl+f 0"),
        ("space", "space"),
        ("page up, down", "page up, down"),
        ("sf", "s ctrl+f"),
    ],
)
def test_the_keys_of_a_hint_are_renamed(hint: str, shown: str) -> None:
    assert rename_hint(hint, {"w": "e", "f": "ctrl+f"}) == shown


def test_every_binding_of_the_program_has_an_id_with_a_known_section() -> None:
    own = [binding for bindings in find_bindings().values() for binding in bindings if binding.tooltip]
    assert [binding for binding in own if not binding.id] == []
    sections = {name.partition(".")[0] for name, _, _ in list_remappable_keys(TorchprofApp, {})}
    assert sections <= {*SECTION_TITLES, *list_command_names(), "prompt"}
