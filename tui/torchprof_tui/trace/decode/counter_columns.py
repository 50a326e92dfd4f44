"""Columns of the points of counters, `C` entries, filled chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I32, I64, Array, take_chunked
from torchprof_tui.trace.core.growable_array import ArrayFiller, GrowableArray
from torchprof_tui.trace.model.raw_events import CounterPoints

MAX_COUNTER_VALUE = 1e30
"""Points beyond are dropped: differences of values must be finite, also as float32."""


@dataclass(frozen=True, slots=True)
class CounterPart:
    """`count` points of one part of a file, without the columns. `names`: of the series, in the order of its codes."""

    count: int
    names: list[str]


class CounterColumns:
    """Points of counters: the ordinal of the entry, the code of the series, the value."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._entry = GrowableArray(np.int32)
        self._series = GrowableArray(np.int32)
        self._value = GrowableArray(np.float64)

    def intern(self, name: str) -> int:
        """Return the code of a series, the key of a value in the args of a counter."""
        return self._codes.setdefault(name, len(self._codes))

    def append(self, entries: I64, series: I32, values: F64) -> None:
        """Append points in the order of their entries."""
        self._entry.extend(entries)
        self._series.extend(series)
        self._value.extend(values)

    def append_args(self, ordinals: list[int], args: list[dict[str, Any]]) -> None:
        """Append the numbers in the args of entries; everything else there is left out."""
        points = [
            (ordinal, self.intern(name), value)
            for ordinal, series in zip(ordinals, args, strict=True)
            for name, value in series.items()
            if type(value) in (int, float) and abs(value) <= MAX_COUNTER_VALUE
        ]
        if points:
            entries, series_codes, values = zip(*points, strict=True)
            self.append(np.array(entries, np.int64), np.array(series_codes, np.int32), np.array(values, np.float64))

    def finish_part(self) -> CounterPart:
        """Return what was appended, for `append_part`; the columns follow from `drain_arrays`."""
        return CounterPart(len(self._entry), list(self._codes))

    def drain_arrays(self) -> Iterator[Array]:
        """Yield the columns of a part, for `append_part` to fill in."""
        for column in (self._entry, self._series, self._value):
            yield column.finish()

    def make_room(self, parts: list[CounterPart]) -> None:
        """Make room for these parts, before the first is appended."""
        for column in (self._entry, self._series, self._value):
            column.make_room(sum(part.count for part in parts))

    def append_part(self, part: CounterPart, fill: ArrayFiller, first: int) -> None:
        """Append the points of a part whose entries begin at ordinal `first`."""
        codes = np.array([*map(self.intern, part.names)], np.int32)
        fill(self._entry.reserve(part.count), lambda entries: np.add(entries, first, out=entries, casting="unsafe"))
        fill(self._series.reserve(part.count), lambda series: take_chunked(codes, series, series))
        fill(self._value.reserve(part.count), None)

    def finish(self) -> CounterPoints:
        """Return the columns, the series numbered by their first point; nothing can be appended afterwards."""
        series, names = self._series.finish(), list(self._codes)
        used, first = np.unique(series, return_index=True)
        order = used[np.argsort(first)]
        code_of = np.zeros(len(names), np.int32)
        code_of[order] = np.arange(len(order))
        return CounterPoints(
            self._entry.finish(), code_of[series], self._value.finish(), [names[code] for code in order.tolist()]
        )
