"""Test that text from traces has no character that a terminal acts on, or that is drawn outside its cell."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from torchprof_tui.trace.core.printable import _PRINTABLE, MAX_KEPT_CHARACTERS, clean


@pytest.mark.parametrize(
    "character",
    [
        *("\0", "\t", "\n", "\r", "\x1b", "\x7f", "\x9b"),  # controls of 7 and 8 bits
        *("\u202e", "\u2066", "\u200f", "\u061c"),  # change the direction of the text around them
        *("\u200b", "\u200d", "\ufeff", "\u00ad"),  # have no width
        *("\u0301", "\u20dd"),  # combine with the character before
        *("\u2028", "\u2029"),  # line breaks
        *("\ud800", "\ue000", "\uffff"),  # a lone surrogate, private use, no character
    ],
)
def test_unprintable_characters_become_a_dot(character: str) -> None:
    assert clean(f"a{character}b") == "a·b"
    assert clean(f"é{character}") == "é·"


@pytest.mark.parametrize(
    "text", ["", "aten::mm", "void f<T>(int *)", "größe µs", "前向传播", "Обучение", "a b", "→ 🙂"]
)
def test_printable_text_is_kept(text: str) -> None:
    assert clean(text) == text


def test_every_character_is_one_printable_character_afterwards() -> None:
    text = "".join(map(chr, range(sys.maxunicode + 1)))
    cleaned = clean(text)
    assert len(cleaned) == len(text)
    categories = {unicodedata.category(character) for character in set(cleaned)}
    assert not any(category[0] == "C" or category in ("Zl", "Zp", "Mn", "Me") for category in categories)
    assert all(character == "·" or character == before for character, before in zip(cleaned, text, strict=True))
    assert len(_PRINTABLE) == MAX_KEPT_CHARACTERS
