"""Writing the marked range as a trace of its own (`e`)."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Input

from tests.helpers.explorer_app import explorer, until
from tests.helpers.paths import SAMPLES
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.explorer.slice_export import export_slice, suggest_file_name

SAMPLE = "matmul_add_64_cold_eager.pt.trace.json.gz"


@pytest.mark.long
async def test_a_marked_range_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trace = load_trace(str(SAMPLES / "matmul_add_64_cold_eager.pt.trace.json.gz"), cache=False)
    async with explorer(trace) as (screen, pilot):
        await pilot.press("right_curly_bracket", "m", "m", "e")
        await pilot.pause()
        shown = screen.query_one("#prompt Input", Input).value
        mark = screen.view_state.mark
        assert mark is not None
        assert shown == suggest_file_name(trace, mark.start, mark.end)
        assert shown.startswith("matmul_add_64_cold_eager_")
        await pilot.press("enter")
        status = screen.query_one(StatusLine)
        await until(pilot, lambda: status.message.startswith("wrote "))
        sliced = json.loads(gzip.decompress((tmp_path / shown).read_bytes()))
        assert sliced["torchprof_tui_slice"]["range_ns"] == [mark.start, mark.end]
        assert "ProfilerStep#2" in {entry["name"] for entry in sliced["traceEvents"]}

        before = (tmp_path / shown).read_bytes()
        await pilot.press("e", "enter")
        await until(pilot, lambda: "was not overwritten" in status.message)
        assert (tmp_path / shown).read_bytes() == before

        await pilot.press("e", "x", "enter")
        await until(pilot, lambda: "must end in .json or .json.gz" in status.message)
        assert [path.name for path in tmp_path.iterdir()] == [shown]


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("runs/a.pt.trace.json.gz", "a_1-20us.json.gz"),
        ("box:runs/b.json", "b_1-20us.json.gz"),
        ("stdin", "stdin_1-20us.json.gz"),
        ("https://host/x y?z.json.zst", "x_y_z_1-20us.json.gz"),
        ("/", "trace_1-20us.json.gz"),
    ],
)
def test_the_name_says_which_part_of_which_trace(label: str, name: str) -> None:
    class Labelled:
        def __init__(self) -> None:
            self.label = label

    assert suggest_file_name(Labelled(), 1000, 20_000) == name  # type: ignore[arg-type]


def test_a_suggested_name_fits_the_file_system() -> None:
    trace = replace(load_trace(str(SAMPLES / SAMPLE), cache=False), label=f"{'跟' * 200}.json")
    name = suggest_file_name(trace, 0, 10**18)
    assert len(name.encode()) <= 255
    assert name.endswith("us.json.gz")


def test_each_failure_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    trace = load_trace(str(SAMPLES / SAMPLE), cache=False)
    (tmp_path / "folder.json").mkdir()
    for name, words in (
        (str(tmp_path / "folder.json"), "that is a folder"),
        (str(tmp_path / "none" / "a.json"), "no such folder"),
        (str(tmp_path / ("é" * 200 + ".json")), "longer than 255 bytes"),
        ("a\0b.json", "not a valid file name"),
    ):
        line, failed = export_slice(trace, 0, 10**9, name)
        assert failed
        assert words in line
    monkeypatch.setattr(Path, "expanduser", fail)
    assert "the home folder is unknown" in export_slice(trace, 0, 10**9, "~/a.json")[0]
    assert [path.name for path in tmp_path.iterdir()] == ["folder.json"]
