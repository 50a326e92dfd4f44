"""Cut text to a width in terminal cells, and to what texts share.

A module of its own, because the first frame needs it and must not import `name_display`, which decodes kernel names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len, get_character_cell_size, set_cell_size


def truncate(text: str, width: int) -> str:
    """Cut cleaned text to at most `width` cells, ending in `…` if something is cut off."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    return text[: count_fitting(text, width - 1)] + "…"


def count_fitting(text: str, width: int) -> int:
    """Count the characters at the start of cleaned text that fit into `width` cells."""
    if text[: width + 1].isascii():
        return min(width, len(text))
    used = 0
    for count, character in enumerate(text):
        used += get_character_cell_size(character)
        if used > width:
            return count
    return len(text)


def cut_clauses(text: str, width: int) -> str:
    """Cut cleaned text to at most `width` cells after a whole clause, outside of parentheses; else as `truncate`."""
    if cell_len(text) <= width:
        return text
    ends = [
        found.start()
        for found in re.finditer(r"[,;:.] | \(", text)
        if cell_len(text[: found.start()]) <= width
        and text.count("(", 0, found.start()) == text.count(")", 0, found.start())
    ]
    return text[: ends[-1]] if ends else truncate(text, width)


def truncate_start(text: str, width: int) -> str:
    """Cut cleaned text to at most `width` cells at its start, as of a path whose end tells it from others."""
    if cell_len(text) <= width:
        return text
    return f"…{truncate(text[::-1], width)[:-1][::-1]}" if width > 0 else ""


def fit_column(text: str, width: int) -> str:
    """Cut or pad cleaned text to a column of `width` cells, the last one blank."""
    return set_cell_size(text if cell_len(text) < width else f"{set_cell_size(text, width - 2)}…", width)


def find_common_prefix(texts: Sequence[str]) -> str:
    """Return the longest beginning that all texts share, character by character as in a shell."""
    first, last = min(texts, default=""), max(texts, default="")
    length = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:length]
