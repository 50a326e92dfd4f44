"""Find the rows of events by what the answers say about them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from torchprof_tui.trace.model.trace import Trace

MAX_NAMES = 1000
"""Names that are looked up for one answer: each reads the column of names."""


def find_longest_events(trace: Trace, names: Iterable[str]) -> dict[str, int]:
    """Find the longest event of each name; names that no event has, as those of groups, are left out."""
    indexes = {name: index for index, name in enumerate(trace.names)}
    found = {}
    for name in list(dict.fromkeys(names))[:MAX_NAMES]:
        if (index := indexes.get(name)) is not None:
            rows = np.flatnonzero(trace.name == index)
            if len(rows):
                found[name] = int(rows[np.argmax(trace.duration[rows])])
    return found


def split_row(trace: Trace, row: int) -> tuple[Trace, int, int | None]:
    """Return the trace that a row is of, its row there, and the number of its rank; None without several ranks."""
    if trace.merged_ranks is None:
        return trace, row, None
    rank = next(each for each in trace.merged_ranks.all if each.first <= row < each.last)
    return rank.trace, row - rank.first, rank.number
