"""Rows of events as a trace holds them, made by hypothesis or by hand, and a slow answer to what a cell shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from torchprof_tui.trace.model.row_index import RowIndex

FAR = 10**15
"""Half a month in ns: where a double would have lost the last digits of a sum with a few more."""


class Bar(NamedTuple):
    event: int
    start: int
    duration: int

    @property
    def end(self) -> int:
        """Where it ends on the screen: nothing is shorter than 1 ns there."""
        return self.start + max(self.duration, 1)


class Columns(NamedTuple):
    start: np.ndarray
    duration: np.ndarray
    row_order: np.ndarray
    row_first: np.ndarray


def columns(rows: Sequence[Sequence[Bar]]) -> Columns:
    """What `RowIndex.build` asks of a trace. The bars' events are 0..n-1, in any order."""
    bars = [bar for row in rows for bar in row]
    start, duration = np.zeros(len(bars), dtype=np.int64), np.zeros(len(bars), dtype=np.int64)
    for bar in bars:
        start[bar.event], duration[bar.event] = bar.start, bar.duration
    return Columns(
        start,
        duration,
        np.array([bar.event for bar in bars], dtype=np.int32),
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
    )


def index(rows: Sequence[Sequence[Bar]]) -> RowIndex:
    return RowIndex.build(columns(rows))


@st.composite
def bar_rows(draw: st.DrawFn, most_rows: int = 3, most_bars: int = 40) -> list[list[Bar]]:
    """Rows as they come: bars that touch, bars without a duration, long and short ones, far from zero or around it."""
    base = draw(st.sampled_from([0, -30, FAR]))
    longest = draw(st.sampled_from([2, 40, 3000]))
    gap = st.one_of(st.just(0), st.integers(0, longest))
    shape = st.lists(st.tuples(gap, st.one_of(st.sampled_from([0, 1]), st.integers(0, longest))), max_size=most_bars)
    shapes = draw(st.lists(shape, min_size=1, max_size=most_rows))
    numbers = iter(draw(st.permutations(range(sum(map(len, shapes))))))
    rows = []
    for bars in shapes:
        time, row = base, []
        for wait, duration in bars:
            row.append(Bar(next(numbers), time + wait, duration))
            time = row[-1].end
        rows.append(row)
    return rows


class Shown(NamedTuple):
    event: int
    busy: float
    count: int


def slow_cells(row: Sequence[Bar], t0: int, t1: int, width: int) -> list[Shown]:
    """Every bar against every cell."""
    found = []
    for cell in range(width):
        left = t0 + (t1 - t0) * cell // width
        right = max(t0 + (t1 - t0) * (cell + 1) // width, left + 1)
        parts = [(min(bar.end, right) - max(bar.start, left), bar) for bar in row]
        parts = [(part, bar) for part, bar in parts if part > 0]
        fullest = max(parts, key=lambda pair: (pair[0], pair[1].end - pair[1].start, -pair[1].start), default=None)
        busy = sum(part for part, _ in parts) / (right - left)
        found.append(Shown(fullest[1].event if fullest else -1, busy, len(parts)))
    return found
