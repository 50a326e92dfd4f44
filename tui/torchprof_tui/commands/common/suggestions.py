"""Suggest the word that was most likely meant in place of an unknown one. Imported only for that."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(word: str, known: Iterable[str]) -> str:
    """Return `did you mean X?` for the closest known word; "" where none is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else ""
