"""Make sketches of ranks by hand: only what a test names differs between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchprof_fleet.analysis.rank_sketch import (
    DurationQuantiles,
    RankSketch,
    SketchCollectives,
    SketchSteps,
)
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause


def make_sketch(rank: int, times: np.ndarray, compute: float = 10.0, **fields: Any) -> RankSketch:
    """Make the sketch of a rank whose steps take `times` ms, of which it computes `compute` ms in each."""
    ends = np.cumsum(times * 1e6).astype(np.int64)
    count = len(ends)
    zeros = np.zeros(count, np.int64)
    steps = SketchSteps(
        number=np.arange(count, dtype=np.int64),
        start=np.concatenate([[0], ends[:-1]]),
        end=ends,
        busy=np.full(count, int(compute * 1e6)),
        compute=np.full(count, int(compute * 1e6)),
        communication=zeros,
        exposed=zeros,
        cpu=zeros,
        idle=np.zeros((count, len(IdleCause)), np.int64),
        collective_count=zeros,
    )
    values: dict[str, Any] = {
        "file": f"rank{rank}.json",
        "rank": rank,
        "world_size": 0,
        "host": "",
        "device": "NVIDIA H200",
        "device_count": 1,
        "torch_version": "2.9.0",
        "time_zero": 0,
        "memory_peak": -1,
        "regime": "mixed",
        "causes": (),
        "groups": (),
        "problems": (),
        "steps": steps,
        "collectives": make_collectives([]),
        "kernels": make_durations(),
        "ops": make_durations(),
    }
    return RankSketch(**(values | fields))


def make_collectives(rows: list[tuple[int, str, str, int, int, int]]) -> SketchCollectives:
    """Make collectives of rows: index of the step, group, operation, order, start and end in ns."""
    texts = list(dict.fromkeys(text for row in rows for text in row[1:3]))

    def column(at: int) -> np.ndarray:
        return np.array([texts.index(str(row[at])) if isinstance(row[at], str) else row[at] for row in rows], np.int64)

    step, group, operation, order = (column(at).astype(np.int32) for at in range(4))
    return SketchCollectives(
        step, group, operation, order, column(4), column(5), np.zeros(len(rows), np.int64), tuple(texts)
    )


def make_durations() -> DurationQuantiles:
    """Make an empty table of durations."""
    none, index = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return DurationQuantiles(index, index, none, none, none, none, none, ())
