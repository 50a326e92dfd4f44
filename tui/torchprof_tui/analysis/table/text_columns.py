"""Columns of text with many repeats: sorted and searched by their distinct values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.search.name_search import BadPattern, compile_matcher
from torchprof_tui.trace.core.arrays import I64, Bool


class TextColumn:
    """One column, of k texts. What sorting and filtering need is worked out when first asked, and kept."""

    def __init__(self, texts: Sequence[str]) -> None:
        place: dict[str, int] = {}
        self.codes: I64 = np.fromiter((place.setdefault(text, len(place)) for text in texts), np.int64, len(texts))
        self.distinct = list(place)

    @cached_property
    def sort_ranks(self) -> I64:
        """int64[k]: where each text stands among the distinct ones, upper and lower case together."""
        names = self.distinct
        folded = [name.casefold() for name in names]
        order = sorted(sorted(range(len(names)), key=names.__getitem__), key=folded.__getitem__)
        rank = np.empty(len(names), np.int64)
        rank[order] = np.arange(len(names))
        return rank[self.codes]

    def match_text(self, text: str) -> Bool | BadPattern:
        """bool[k]: which have `text` in them; `/text/` is a regular expression. An empty text never does."""
        matches = compile_matcher(text)
        if isinstance(matches, BadPattern):
            return matches
        hit = np.fromiter((each != "" and matches(each) for each in self.distinct), np.bool_, len(self.distinct))
        found: Bool = hit[self.codes]
        return found


def match_rows(columns: Sequence[TextColumn], size: int, text: str) -> Bool | BadPattern:
    """bool[size]: rows that have `text` in one of these columns; all rows for ""."""
    if not text:
        return np.ones(size, np.bool_)
    found = np.zeros(size, np.bool_)
    for column in columns:
        hits = column.match_text(text)
        if isinstance(hits, BadPattern):
            return hits
        found |= hits
    return found
