"""`docs/patterns/`: a page for every pattern, as the registry has it. The pictures are not made again."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.helpers.command_line import call_main
from tools import pattern_pages
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS

MAX_BYTES = 4_000_000


def test_the_pages_are_as_the_registry_has_them() -> None:
    assert pattern_pages.find_differences() == [], "run: python -m tools.pattern_pages"


def test_every_listed_pattern_has_a_page_in_the_index(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call_main(capsys, "check", "--list")
    listed = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    index = (pattern_pages.FOLDER / pattern_pages.INDEX).read_text("utf-8")
    assert re.findall(r"\]\((.+)\.md\)", index) == listed == list(PATTERNS)


def test_a_page_says_how_it_is_decided_and_what_to_do() -> None:
    for pattern in PATTERNS.values():
        page = (pattern_pages.FOLDER / f"{pattern.id}.md").read_text("utf-8")
        assert page.startswith(f"# {pattern.title}\n")
        headings = [line for line in page.splitlines() if line.startswith("## ")]
        assert headings == ["## Meaning", "## Rule", "## Fix", "## Check for it"]
        for limit in pattern.thresholds:
            assert f"| {pattern_pages.format_threshold(limit)} |" in page
        assert pattern.code in page


def test_the_pictures_show_their_pattern_and_no_folder() -> None:
    folder = pattern_pages.FOLDER
    assert sum(path.stat().st_size for path in folder.iterdir()) < MAX_BYTES
    for name in pattern_pages.read_sources():
        tree = ElementTree.parse(folder / f"{name}.svg")
        text = "".join(tree.getroot().itertext()).replace("\xa0", " ").replace("\n", "")
        assert f"▶ {name}" in text, name
        assert not re.search(r"/(work|home|root|Users)/", text), name


def test_a_difference_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in pattern_pages.FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(pattern_pages, "FOLDER", tmp_path)
    assert pattern_pages.find_differences() == []
    (tmp_path / "hotspot.md").write_text("old")
    (tmp_path / "idle-gap.svg").unlink()
    (tmp_path / "gone.md").write_text("of a pattern that is gone")
    assert pattern_pages.find_differences() == ["gone.md", "hotspot.md", "idle-gap.svg"]
