"""Escape text from traces before it reaches a terminal, a file or a picture.

Names come from files that other people wrote; a control character in one must not reach the terminal.
"""

from __future__ import annotations

import unicodedata

_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Mn", "Me"})
"""Categories that draw nothing, or draw outside their own cell: controls, direction marks, combining marks."""


def clean(text: str) -> str:
    """One line of printable characters: what cannot be shown is `·`, and ends of lines are too."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("·" if unicodedata.category(character) in _UNPRINTABLE else character for character in text)
