"""Find tandem repeats in a sequence: the same group of values several times in a row, without anything between.

    find_tandem_repeats(np.array([7, 1, 2, 1, 2, 1, 2, 9]), min_rounds=3, max_period=16)
    # start [1], period [2], rounds [3]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I64


@dataclass(frozen=True, slots=True)
class TandemRepeats:
    """k repeats that do not overlap, by start: int64[k] each.

    `start`: index of the first value of the first round. `period`: values of a round. `rounds`: whole rounds in a row.
    """

    start: I64
    period: I64
    rounds: I64

    def __len__(self) -> int:
        return len(self.start)

    @property
    def stop(self) -> I64:
        """The index after the last value of the last whole round."""
        return self.start + self.period * self.rounds


def find_tandem_repeats(values: I64, min_rounds: int, max_period: int) -> TandemRepeats:
    """Find the repeats of at least `min_rounds` rounds of 1 to `max_period` values each in `values` int64[n].

    Where candidates overlap, the one of most values is kept; of equal ones, that of the shortest period. For a period
    p, a run of l indices i with values[i] = values[i + p] is a repeat of (l + p) // p rounds.
    """
    parts = [_find_runs(values, period, min_rounds) for period in range(1, max_period + 1)]
    start, period, rounds = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    is_taken = np.zeros(len(values), dtype=np.bool_)
    kept = []
    for index in np.lexsort((period, -period * rounds)).tolist():
        covered = slice(int(start[index]), int(start[index] + period[index] * rounds[index]))
        if not is_taken[covered].any():
            is_taken[covered] = True
            kept.append(index)
    chosen = np.array(sorted(kept, key=lambda index: int(start[index])), dtype=np.int64)
    return TandemRepeats(start[chosen], period[chosen], rounds[chosen])


def _find_runs(values: I64, period: int, min_rounds: int) -> tuple[I64, I64, I64]:
    """Find the repeats of one period: (start, period, rounds), int64[k] each."""
    is_same = np.concatenate([[False], values[:-period] == values[period:], [False]])
    edges = np.flatnonzero(is_same[1:] != is_same[:-1])
    start, length = edges[::2], edges[1::2] - edges[::2]
    rounds = (length + period) // period
    is_long = rounds >= min_rounds
    start, rounds = start[is_long].astype(np.int64), rounds[is_long].astype(np.int64)
    return start, np.full(len(start), period, dtype=np.int64), rounds
