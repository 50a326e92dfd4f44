"""Find tandem repeats in a sequence: the same group of values several times in a row, without anything between.

find_tandem_repeats(np.array([7, 1, 2, 1, 2, 1, 2, 9]), min_rounds=3, max_period=16)
# start [1], period [2], rounds [3]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Bool


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

    Where two overlap, the one of more values keeps them, of equal ones that of the shorter period; the other keeps what
    is left of it. For a period p, a run of l indices i with values[i] = values[i + p] is a repeat of (l + p) // p
    rounds.
    """
    parts = [_find_runs(values, period, min_rounds) for period in range(1, max_period + 1)]
    start, stop, period = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    is_free = np.ones(len(values), dtype=np.bool_)
    kept: list[tuple[int, int, int]] = []
    for index in np.lexsort((period, start - stop)).tolist():
        step = int(period[index])
        for first, last in _find_stretches(is_free[start[index] : stop[index]]) + start[index]:
            rounds = int(last - first) // step
            if rounds >= min_rounds:
                is_free[first : first + rounds * step] = False
                kept.append((int(first), step, rounds))
    columns = np.array(sorted(kept), dtype=np.int64).reshape(-1, 3)
    return TandemRepeats(columns[:, 0], columns[:, 1], columns[:, 2])


def _find_runs(values: I64, period: int, min_rounds: int) -> tuple[I64, I64, I64]:
    """Find the repeats of one period: (start, stop, period), int64[k] each; the last round may not be whole."""
    stretches = _find_stretches(values[:-period] == values[period:])
    start, stop = stretches[:, 0], stretches[:, 1] + period
    is_long = stop - start >= min_rounds * period
    return start[is_long], stop[is_long], np.full(int(is_long.sum()), period, dtype=np.int64)


def _find_stretches(mask: Bool) -> I64:
    """Find where a mask is true: (start, stop) of each stretch, int64[k, 2]."""
    padded = np.concatenate([[False], mask, [False]])
    return np.flatnonzero(padded[1:] != padded[:-1]).reshape(-1, 2).astype(np.int64)
