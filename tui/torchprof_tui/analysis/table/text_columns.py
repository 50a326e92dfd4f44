"""Sort and search columns of text with many repeats by their distinct values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.search.name_search import BadPattern, compile_matcher
from torchprof_tui.trace.core.arrays import I64, Bool


class TextColumn:
    """One column of k texts. What sorting and filtering need is computed on first use and kept."""

    def __init__(self, texts: Sequence[str]) -> None:
        code_of_text: dict[str, int] = {}
        self.codes: I64 = np.fromiter(
            (code_of_text.setdefault(text, len(code_of_text)) for text in texts), np.int64, len(texts)
        )
        self.distinct = list(code_of_text)

    @cached_property
    def sort_ranks(self) -> I64:
        """int64[k]: the rank of each text among the distinct ones, case-insensitive."""
        names = self.distinct
        folded = [name.casefold() for name in names]
        order = sorted(sorted(range(len(names)), key=names.__getitem__), key=folded.__getitem__)
        ranks = np.empty(len(names), np.int64)
        ranks[order] = np.arange(len(names))
        return ranks[self.codes]

    def match_text(self, text: str) -> Bool | BadPattern:
        """Return which texts contain `text`: bool[k]; `/text/` is a regular expression. An empty text never matches."""
        matches = compile_matcher(text)
        if isinstance(matches, BadPattern):
            return matches
        distinct_hits = np.fromiter(
            (candidate != "" and matches(candidate) for candidate in self.distinct), np.bool_, len(self.distinct)
        )
        mask: Bool = distinct_hits[self.codes]
        return mask


def match_rows(columns: Sequence[TextColumn], size: int, text: str) -> Bool | BadPattern:
    """Return which rows contain `text` in one of these columns: bool[size]; all rows for ""."""
    if not text:
        return np.ones(size, np.bool_)
    mask = np.zeros(size, np.bool_)
    for column in columns:
        hits = column.match_text(text)
        if isinstance(hits, BadPattern):
            return hits
        mask |= hits
    return mask
