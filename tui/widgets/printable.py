"""Text as a terminal may show it: escaped, and cut by cells.

Names come from a file that somebody else wrote; a control character in one must not reach the terminal. On the way to
the first frame: what names mean (`names.py`) is not imported here.
"""

from __future__ import annotations

import unicodedata

from rich.cells import cell_len, get_character_cell_size

_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Mn", "Me"})
"""Categories that draw nothing, or draw outside their own cell: controls, direction marks, combining marks."""


def clean(text: str) -> str:
    """One line of printable characters: what cannot be shown is `·`, and ends of lines are too."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("·" if unicodedata.category(character) in _UNPRINTABLE else character for character in text)


def cut(text: str, width: int) -> str:
    """At most `width` cells of cleaned text, ending in `…` where something is missing."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += get_character_cell_size(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"
