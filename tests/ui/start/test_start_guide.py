"""The guide of the start screen, and the way back with backspace."""

from __future__ import annotations

import ast
import shutil
import textwrap
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.widgets import OptionList

from tests.ui.start.test_start_screen import SAMPLE, alone, explored, options, until
from torchprof_samples import SAMPLES
from torchprof_tui.app import TorchprofApp
from torchprof_tui.commands.common.parsers import build_parser
from torchprof_tui.ui.common.compare_asked import TraceAsked
from torchprof_tui.ui.start.start_screen import GUIDE, PathInput, StartScreen, parent_of_remote_folder

__all__ = ["alone"]  # a fixture


def test_the_guides_lines_fit_beside_the_list_and_its_code_is_python() -> None:
    lines = GUIDE.plain.split("\n")
    assert max(map(cell_len, lines)) <= 60
    begin = lines.index("For code that you cannot start this way:") + 1
    code = textwrap.dedent("\n".join(lines[begin : begin + 3]))
    ast.parse(code)
    assert "export_chrome_trace" in code
    assert lines.index("  torchprof-tui run python train.py") < begin  # the plain line comes first


def test_the_guides_command_line_is_understood() -> None:
    (line,) = [line for line in GUIDE.plain.split("\n") if " run " in line and line.startswith("  torchprof-tui")]
    assert build_parser("run").parse_args(line.split()[2:]).command == ["python", "train.py"]


@pytest.mark.long
async def test_the_guide_is_shown_where_there_is_room_and_reached_by_a_key_elsewhere() -> None:
    for size in ((80, 24), (100, 30), (120, 40), (160, 48), (240, 60)):
        app = TorchprofApp()
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: len(options(app)) > len(SAMPLES))  # noqa: B023

            def text() -> str:
                return "\n".join(strip.text for strip in app.screen._compositor.render_strips())  # noqa: B023

            if size[0] < 150:
                assert "Record your own loop" not in text()
                assert "i guide" in text()
                await pilot.press("i")
            await until(pilot, lambda: "Record your own loop in one line" in text())
            assert "torchprof-tui run python train.py" in text()
            assert 'prof.export_chrome_trace("trace.json.gz")' in text()


async def test_on_a_narrow_screen_the_guide_is_one_key_away() -> None:
    app = TorchprofApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(options(app)) > len(SAMPLES))

        def text() -> str:
            return "\n".join(strip.text for strip in app.screen._compositor.render_strips())

        assert "i guide" in text()
        assert "What this does" not in text()
        await pilot.press("i")
        await until(pilot, lambda: "What this does" in text())
        for _ in range(20):
            await pilot.press("down")
        await until(pilot, lambda: "Without this screen" in text())
        await pilot.press("escape")
        await until(pilot, lambda: "What this does" not in text())
        before = app.screen.query_one(OptionList).highlighted
        await pilot.press("down")
        assert app.screen.query_one(OptionList).highlighted != before  # arrow keys move in the list again


async def test_backspace_lists_the_parent_folder(alone: Path) -> None:
    shutil.copy(SAMPLE, alone / "upper.json.gz")
    (alone / "sub").mkdir()
    shutil.copy(SAMPLE, alone / "sub" / "lower.json.gz")
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await app.switch_screen(StartScreen(folder=alone / "sub"))
        await until(pilot, lambda: any("lower.json.gz" in line for line in options(app)))
        assert not any("upper.json.gz" in line for line in options(app))
        await pilot.press("backspace")
        await until(pilot, lambda: any("upper.json.gz" in line for line in options(app)))
        assert any("lower.json.gz" in line and line.endswith("  sub/") for line in options(app))
        app.screen.query_one(PathInput).focus()
        await pilot.press("x", "backspace")
        assert app.screen.query_one(PathInput).value == ""  # it edits there


@pytest.mark.long
async def test_backspace_leaves_the_list_for_the_trace_below() -> None:
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        app.post_message(TraceAsked(f"sample:{SAMPLES[0].name}"))
        await until(pilot, lambda: explored(app))
        await pilot.press("o")
        await until(pilot, lambda: isinstance(app.screen, StartScreen))
        await pilot.press("backspace")
        await until(pilot, lambda: explored(app))


@pytest.mark.parametrize(
    ("spec", "parent"),
    [
        ("gpu-box:runs/ddp/", "gpu-box:runs/"),
        ("gpu-box:/data/runs/", "gpu-box:/data/"),
        ("https://host/a/b/", "https://host/a/"),
        ("https://host/a/", "https://host/"),
        ("gpu-box:runs/", None),
        ("gpu-box:/data/", None),
        ("https://host/", None),
    ],
)
def test_the_parent_of_a_remote_folder(spec: str, parent: str | None) -> None:
    assert parent_of_remote_folder(spec) == parent
