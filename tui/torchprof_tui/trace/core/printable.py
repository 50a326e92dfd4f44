"""Replace unprintable characters in text from traces before it is displayed or exported.

Names come from untrusted files, and a control character in one must not reach the terminal.
"""

from __future__ import annotations

import unicodedata

_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Mn", "Me"})
"""Unicode categories drawn as nothing or outside their cell: controls, direction marks, combining marks."""


def clean(text: str) -> str:
    """Return one line of printable characters; unprintable characters and line breaks become `·`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("·" if unicodedata.category(character) in _UNPRINTABLE else character for character in text)
