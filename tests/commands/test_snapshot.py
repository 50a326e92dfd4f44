"""`snapshot`: the real app without a terminal."""

from __future__ import annotations

import json
import re
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.helpers.command_line import read_error_line
from torchprof_tui.app import TorchprofApp
from torchprof_tui.cli import main
from torchprof_tui.commands.snapshot.main import is_key
from torchprof_tui.ui.diff.diff_screen import DiffScreen

SAMPLE = "sample:matmul_add_64_cold_eager"


def taken(output: Path, *arguments: str) -> str:
    assert main(["snapshot", *arguments, "-o", str(output)]) == 0
    return output.read_text(encoding="utf-8")


@pytest.mark.long
def test_text_is_the_screen(tmp_path: Path) -> None:
    screen = taken(tmp_path / "out.txt", SAMPLE, "--size", "120x30")
    lines = screen.splitlines()
    assert len(lines) == 30
    assert max(map(len, lines)) <= 120
    for words in ("aten::matmul", "ProfilerStep#2", "stream 7", "NVIDIA H200"):
        assert words in screen


@pytest.mark.long
def test_keys_are_pressed(tmp_path: Path) -> None:
    screen = taken(tmp_path / "out.txt", SAMPLE, "--size", "120x40", "--keys", "slash,t,r,i,x,enter")
    assert screen != taken(tmp_path / "plain.txt", SAMPLE, "--size", "120x40")
    assert "trix" in screen


@pytest.mark.long
def test_a_comparison_is_drawn_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def delay(owner: type, method: str, seconds: float) -> None:
        original = getattr(owner, method)

        def run(*of: object) -> None:
            time.sleep(seconds)
            original(*of)

        monkeypatch.setattr(owner, method, run)

    delay(TorchprofApp, "_show_comparison", 0.3)
    delay(DiffScreen, "_compare_inputs", 0.5)
    keys = ",".join(["D", *"sample", "colon", *"geglu", "underscore", *"mlp", "underscore", *"compile", "enter"])
    screen = taken(tmp_path / "out.txt", "sample:geglu_mlp_eager", "--size", "120x40", "--keys", keys)
    assert "A geglu_mlp_eager → B geglu_mlp_compile" in screen
    assert "GPU: elementwise" in screen  # a part of the account, which is computed last


def test_a_key_that_there_is_not_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", SAMPLE, "--keys", "w,rihgt", "-o", str(tmp_path / "out.txt")]) == 2
    assert capsys.readouterr().err.startswith("torchprof-tui: --keys: unknown key 'rihgt'")
    named = ["right", "f5", "full_stop", "left_square_bracket", "escape", "pagedown", "question_mark", "space"]
    keys = ["w", "A", "1", "]", "ctrl+p", "shift+tab", *named]
    assert [key for key in keys if not is_key(key)] == []


def test_svg_needs_nothing_from_anywhere(tmp_path: Path) -> None:
    svg = taken(tmp_path / "out.svg", SAMPLE, "--size", "100x30")
    ElementTree.fromstring(svg)
    addresses = set(re.findall(r"https?://[^\"'\s)<]+", svg))
    assert addresses <= {"http://www.w3.org/2000/svg", "https://www.textualize.io/rich", "https://www.textualize.io"}
    assert "@font-face" not in svg
    assert "matmul_add" in svg


def test_without_a_trace_it_is_the_start_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    screen = taken(tmp_path / "out.txt", "--size", "80x24")
    assert "matmul_add_64_cold_eager" in screen
    assert "enter open" in screen


@pytest.mark.long
def test_colours_are_the_same_whatever_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    colours = []
    for name, colorterm in (("xterm", ""), ("xterm-256color", "truecolor")):
        monkeypatch.setenv("TERM", name)
        monkeypatch.setenv("COLORTERM", colorterm)
        colours.append(set(re.findall("#[0-9a-f]{6}", taken(tmp_path / "out.svg", SAMPLE, "--keys", "t"))))
    assert colours[0] == colours[1]


@pytest.mark.long
def test_the_light_theme_has_other_colours(tmp_path: Path) -> None:
    dark = taken(tmp_path / "dark.svg", SAMPLE, "--size", "80x24")
    light = taken(tmp_path / "light.svg", SAMPLE, "--size", "80x24", "--theme", "light")
    assert "#121212" in dark
    assert "#121212" not in light


def test_a_trace_that_cannot_be_opened_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "prose.json"
    path.write_text("hello, world")
    output = tmp_path / "out.svg"
    assert main(["snapshot", str(path), "-o", str(output)]) == 2
    assert capsys.readouterr().err.startswith("torchprof-tui: ")
    assert not output.exists()


@pytest.mark.long
def test_of_lanes_and_devices_beyond_counting_it_is_said_how_many(tmp_path: Path) -> None:
    entries = [
        {"ph": "X", "cat": "kernel", "name": f"k{k}", "pid": k % 300, "tid": k // 300, "ts": k, "dur": 1}
        | {"args": {"device": k % 300, "stream": k // 300}}
        for k in range(15_000)
    ]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}))
    screen = taken(tmp_path / "out.txt", str(path), "--size", "160x40", "--no-cache")
    assert "GPU busy (256 of 300 GPUs)" in screen
    screen = taken(
        tmp_path / "out.txt", str(path), "--size", "160x40", "--keys", "colon,d,o,c,t,o,r,enter", "--no-cache"
    )
    assert "merged lanes" in screen


@pytest.mark.parametrize(
    ("name", "words"),
    [("folder.svg", "that is a folder"), ("no/a.svg", "no such folder"), ("é" * 130 + ".svg", "longer than 255 bytes")],
)
def test_a_target_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    (tmp_path / "folder.svg").mkdir()
    line = read_error_line(capsys, "snapshot", "no/such/trace.json", "-o", tmp_path / name)
    assert words in line
