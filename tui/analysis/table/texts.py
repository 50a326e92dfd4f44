"""Columns of text with many repeats: sorted and searched by their distinct values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tui.analysis.search import BadPattern, matcher
from tui.trace.arrays import I64, Bool


def ranks(texts: Sequence[str]) -> I64:
    """int64[k]: where each text stands among the distinct ones, upper and lower case together."""
    distinct = sorted(sorted(set(texts)), key=str.casefold)
    place = {text: number for number, text in enumerate(distinct)}
    return np.fromiter((place[text] for text in texts), np.int64, len(texts))


def matching(columns: Sequence[Sequence[str]], size: int, text: str) -> Bool | BadPattern:
    """bool[size]: rows that have `text` in one of these columns; `/text/` is a regular expression. All rows for ""."""
    if not text:
        return np.ones(size, np.bool_)
    matches = matcher(text)
    if isinstance(matches, BadPattern):
        return matches
    found = np.zeros(size, np.bool_)
    for column in columns:
        hit = {each for each in set(column) if each and matches(each)}
        if hit:
            found |= np.fromiter((each in hit for each in column), np.bool_, size)
    return found
