"""Replace unprintable characters in text from traces before it is displayed or exported.

Names come from untrusted files, and a control character in one must not reach the terminal.
"""

from __future__ import annotations

import unicodedata

_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Mn", "Me"})
"""Unicode categories drawn as nothing or outside their cell: controls, direction marks, combining marks."""


class _PrintableCharacters(dict[int, int | str]):
    """What `str.translate` puts in place of each character, which is looked up once."""

    def __missing__(self, code: int) -> int | str:
        printable = "·" if unicodedata.category(chr(code)) in _UNPRINTABLE else code
        if len(self) < MAX_KEPT_CHARACTERS:
            self[code] = printable
        return printable


MAX_KEPT_CHARACTERS = 4096  # so that a file with all of Unicode in it takes no memory

_PRINTABLE = _PrintableCharacters()


def clean(text: str) -> str:
    """Return one line of printable characters; unprintable characters and line breaks become `·`."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_PRINTABLE)
