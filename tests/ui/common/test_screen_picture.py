"""Test `:export`: on each screen it writes that screen, and the picture of its answer, as new files."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import settled, until
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.core.atomic_file import make_file_stem
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.ui.common.comparison_request import ComparisonRequest
from torchprof_tui.ui.common.screen_picture import write_new_pictures

SAMPLE = "sample:train_gpt_stack_memory"


async def export(pilot: Pilot[None]) -> str:
    """Export the screen by its name behind `:`; return what the app says."""
    before = type(pilot.app.screen)
    await pilot.press(":", *"export", "enter")
    await settled(pilot)
    assert type(pilot.app.screen) is before
    return [note.message for note in pilot.app._notifications][-1]


def read_words(path: Path) -> str:
    """Read the texts of a picture, without the blanks between them."""
    return "".join("".join(ElementTree.parse(path).getroot().itertext()).split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.long
async def test_each_screen_is_written_under_its_name(folder: Path) -> None:
    opener = resolve_specs([SAMPLE]).create_opener(True)
    opener.start()
    app = TorchprofApp(opener)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.lanes_ready.wait()
        await settled(pilot)
        assert await export(pilot) == f"wrote train_gpt_stack_memory-explorer.svg to {folder}"
        assert "train_gpt_stack_memory-explorer2.svg" in await export(pilot)
        await pilot.press("M")
        await settled(pilot)
        said = await export(pilot)
        assert "train_gpt_stack_memory-memory.svg and train_gpt_stack_memory-memory-curve.svg" in said
        await pilot.press("t")
        await settled(pilot)
        assert "train_gpt_stack_memory-table.svg" in await export(pilot)
    names = {path.name.removeprefix("train_gpt_stack_memory-") for path in folder.iterdir()}
    assert names == {"explorer.svg", "explorer2.svg", "memory.svg", "memory-curve.svg", "table.svg"}
    words = {name: read_words(folder / f"train_gpt_stack_memory-{name}") for name in names}
    assert "ProfilerStep#2" in words["explorer.svg"]
    assert "goto:export" not in words["explorer.svg"]  # the prompt is closed
    assert "wrote" not in words["explorer2.svg"]  # neither is the message about the first one in it
    assert "optimizerstate" in words["memory.svg"]
    assert "peak131.4MiBat5.21ms" in words["memory-curve.svg"]
    assert "aten::" in words["table.svg"]


@pytest.mark.long
async def test_a_comparison_is_written_with_its_waterfall(folder: Path) -> None:
    opener = resolve_specs(["sample:geglu_mlp_eager"]).create_opener(True)
    opener.start()
    app = TorchprofApp(opener, comparison=ComparisonRequest("sample:geglu_mlp_compile"))
    async with app.run_test(size=(120, 40)) as pilot:
        await app.lanes_ready.wait()
        await settled(pilot)
        assert app.screen.TITLE == "diff"
        assert "geglu_mlp_eager-diff.svg and geglu_mlp_eager-waterfall.svg" in await export(pilot)
    assert "308.3µs→351.7µs" in read_words(folder / "geglu_mlp_eager-waterfall.svg")


@pytest.mark.long
async def test_the_palette_exports_the_start_screen(folder: Path) -> None:
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "start")
        await settled(pilot)
        await pilot.press("ctrl+p")
        await pilot.press(*"as pictures")
        await settled(pilot)
        await pilot.press("down", "enter")  # the first enter runs what is highlighted
        await until(pilot, lambda: any(folder.iterdir()))
    assert [path.name for path in folder.iterdir()] == ["torchprof-tui-start.svg"]


def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    line, written = write_new_pictures("trace.json", {"screen": "<svg/>"})
    assert not written
    assert "no such folder" in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("label", "stem"),
    [
        ("host:/runs/a.pt.trace.json.gz", "a"),
        ("sample:x", "x"),
        ("/runs/ddp/", "ddp"),
        ("C:\\a\\b.json", "b"),
        ("../\x1b[31m<b>.json", "_31m_b_"),
        ("", "trace"),
        ("é" * 300, "é" * 80),
    ],
)
def test_file_names_are_made_of_safe_characters(label: str, stem: str) -> None:
    assert make_file_stem(label) == stem
