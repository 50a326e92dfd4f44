"""`docs/diff.md` and the README: every output is what the program prints."""

from __future__ import annotations

from tests.helpers.paths import ROOT
from tools import diff_page


def test_the_outputs_of_the_page_are_as_printed() -> None:
    text = diff_page.PAGE.read_text(encoding="utf-8")
    assert text.count("$ torchprof-tui diff ") == 5
    assert diff_page.build_page(text) == text, "run: python -m tools.diff_page"


def test_the_output_of_the_readme_is_a_part_of_what_is_printed() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.split("$ torchprof-tui diff ", 1)[1].split("```", 1)[0]
    arguments, shown = block.split("\n", 1)
    printed = diff_page.print_diff(arguments)
    parts = shown.strip("\n").split("\n...\n")
    assert all(part in printed for part in parts)
