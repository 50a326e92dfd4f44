"""The points of counters, one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.trace.model.raw_events import CounterPoints


def list_points(counters: CounterPoints) -> list[tuple[int, str, float]]:
    """List the points: (ordinal, series name, value)."""
    names = [counters.names[code] for code in counters.series.tolist()]
    return list(zip(counters.entry.tolist(), names, counters.value.tolist(), strict=True))


def build_points(points: Sequence[tuple[int, str, float]]) -> CounterPoints:
    """Make the columns of a few points: (ordinal, series name, value)."""
    codes = {name: code for code, name in enumerate(dict.fromkeys(name for _, name, _ in points))}
    return CounterPoints(
        np.array([ordinal for ordinal, _, _ in points], np.int32),
        np.array([codes[name] for _, name, _ in points], np.int32),
        np.array([value for _, _, value in points], np.float64),
        list(codes),
    )
