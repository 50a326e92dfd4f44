"""`docs/diff.md`: every output is what the program prints."""

from __future__ import annotations

from tools import diff_page


def test_the_outputs_of_the_page_are_as_printed() -> None:
    text = diff_page.PAGE.read_text(encoding="utf-8")
    assert text.count("$ torchprof-tui diff ") == 6
    assert diff_page.build_page(text) == text, "run: python -m tools.diff_page"
