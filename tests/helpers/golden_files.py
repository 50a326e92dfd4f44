"""Goldens: the text of a screen at six terminal sizes, one file for each size in `tests/snapshots`.

Each push compares PUSH_SIZES, and of many cases each at one of them; the long run (`pytest -m long`) the others.
`UPDATE_GOLDENS=1 pytest -k golden` rewrites the files of all six. Read the difference before you commit it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from rich.cells import cell_len
from textual.screen import Screen

from tests.helpers.paths import SAMPLES, SNAPSHOTS
from torchprof_tui.trace.loading.load_in_process import load_opened_trace
from torchprof_tui.trace.model.trace import Trace

SIZES = [(80, 24), (100, 30), (120, 40), (160, 48), (240, 60), (320, 90)]
"""Columns and lines of the terminals that every screen is drawn on."""

PUSH_SIZES = [(80, 24), (160, 48)]
"""The smallest terminal, where most is left out, and one where the side panels have room."""

UPDATES_GOLDENS = bool(os.environ.get("UPDATE_GOLDENS"))


def format_size(size: tuple[int, int]) -> str:
    """Format a size as in the file names: "80x24"."""
    return f"{size[0]}x{size[1]}"


def mark_size(size: tuple[int, int]) -> Any:
    """Leave a size to the long run unless each push tests it or the goldens are rewritten."""
    is_long = size not in PUSH_SIZES and not UPDATES_GOLDENS
    return pytest.param(size, marks=pytest.mark.long if is_long else (), id=format_size(size))


at_every_size = pytest.mark.parametrize("size", [mark_size(size) for size in SIZES])


def cases_at_every_size(names: str, cases: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize a test by cases (whose first value is a name) and sizes; a push has one size of each, in turn."""
    parameters = []
    for position, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        for size in SIZES:
            is_long = size != PUSH_SIZES[position % len(PUSH_SIZES)] and not UPDATES_GOLDENS
            marks = pytest.mark.long if is_long else ()
            parameters.append(pytest.param(*values, size, marks=marks, id=f"{values[0]}-{format_size(size)}"))
    return pytest.mark.parametrize(f"{names},size", parameters)


@cache
def load_sample(name: str) -> Trace:
    """Load a sample once for all goldens of a process, apart from what other tests load."""
    return load_opened_trace(str(SAMPLES / f"{name}.pt.trace.json.gz"), None, False).trace


def text_on_screen(screen: Screen[Any]) -> str:
    """Return the lines on a screen, without trailing blanks, with a line break after each."""
    return "".join(f"{strip.text.rstrip()}\n" for strip in screen._compositor.render_strips())


def compare_golden(name: str, size: tuple[int, int], drawn: str) -> None:
    """Compare a screen's text with its golden, or rewrite the golden. Raises AssertionError if they differ."""
    assert max(map(cell_len, drawn.splitlines())) <= size[0]
    golden = SNAPSHOTS / f"{name}-{format_size(size)}.txt"
    if UPDATES_GOLDENS:
        golden.write_text(drawn, encoding="utf-8")
    expected = golden.read_text(encoding="utf-8")
    changed = difflib.unified_diff(expected.splitlines(), drawn.splitlines(), golden.name, "drawn", n=0, lineterm="")
    assert drawn == expected, "\n".join(changed)  # pytest itself shows the beginning and the end of both
