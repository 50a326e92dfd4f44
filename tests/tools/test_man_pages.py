"""Test the man pages: up to date, well-formed for groff and mandoc, and complete."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.long_run import keep_some
from tools.man_pages import FOLDER, format_pages
from torchprof_tui.commands.common.parsers import build_parser, list_commands

PAGES = format_pages()


def test_the_pages_are_up_to_date() -> None:
    stored = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.1")}
    assert stored == PAGES, "run: python -m tools.man_pages"


@pytest.mark.parametrize("name", keep_some(PAGES, 6))
def test_a_page_is_well_formed(name: str, tmp_path: Path) -> None:
    page = tmp_path / name
    page.write_text(PAGES[name], encoding="utf-8")
    checkers = {"groff": ["-man", "-Tutf8", "-ww", "-z"], "mandoc": ["-T", "lint", "-W", "warning"]}
    installed = [checker for checker in checkers if shutil.which(checker)]
    if not installed:
        pytest.skip("neither groff nor mandoc is here")
    for checker in installed:
        done = subprocess.run([checker, *checkers[checker], str(page)], capture_output=True, text=True, check=False)
        told = [line for line in (done.stdout + done.stderr).splitlines() if "missing date" not in line]
        assert told == []


@pytest.mark.parametrize("name", keep_some(list_commands(), 6))
def test_every_option_is_shown(name: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff here")
    page = PAGES[f"torchprof-tui-{name}.1"]
    command = ["groff", "-man", "-Tascii", "-P-cbou"]
    shown = subprocess.run(command, input=page, capture_output=True, text=True, check=True).stdout
    for action in build_parser(name)._actions:
        for flag in action.option_strings:
            assert flag in shown
