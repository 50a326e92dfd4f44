"""Repetitions found in the order of the kernels: tokens, iterations, layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from torchprof_tui.analysis.repetition.repetitions import Difference, Pattern, find_repetitions
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True)
class Repetition:
    """What repeats r times, by time: `torchprof-tui table --of repetitions`.

    `label`: "1" for the outermost, "2" for what repeats in it, "2a", "2b" if several do; `level`: from 1; `parent`:
    label of the one around it, None for none. `is_unit`: gone through like steps on the screen. `unit`: "kernels" or
    "ops". `first`, `last` int32[r]: rows of the first and the last kernel. `start_ns`, `end_ns` int64[r]: from the
    first kernel to the last. `run` int32[r]: repetitions of one run follow each other directly. `position` int32[r]:
    index in the run (the number of the layer). `differs` bool[r]: other kernels than those of `shown`, the typical one.
    `coverage`: share of the time of all kernels of the stream. `events`: kernels of one, the median. `differences`: in
    what, with how many repetitions have more and fewer.
    """

    label: str
    level: int
    parent: str | None
    is_unit: bool
    unit: str
    first: I32
    last: I32
    start_ns: I64
    end_ns: I64
    run: I32
    position: I32
    differs: Bool
    shown: int
    events: int
    coverage: float
    differences: tuple[Difference, ...]

    def __len__(self) -> int:
        return len(self.first)

    def __repr__(self) -> str:
        return f"<repetition {self.label}: {len(self)} × {self.events:,} {self.unit}, p50 {self.p50_ns / 1000:.1f} µs>"

    @property
    def duration_ns(self) -> I64:
        """Duration of each: int64[r]."""
        return self.end_ns - self.start_ns

    @property
    def p50_ns(self) -> float:
        """Median duration."""
        return float(np.quantile(self.duration_ns, 0.5))

    @property
    def p95_ns(self) -> float:
        """Duration that 95 % of them do not exceed."""
        return float(np.quantile(self.duration_ns, 0.95))

    def to_records(self) -> list[dict[str, Any]]:
        """Return one dictionary per repetition, for `pandas.DataFrame(repetition.to_records())` and others."""
        names = ("run", "position", "first", "last", "start_ns", "duration_ns", "differs")
        rows = zip(*(getattr(self, name).tolist() for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]


def list_repetitions(trace: Trace) -> tuple[Repetition, ...]:
    """List what repeats in a trace of one process, outermost first; () if nothing does."""
    found = find_repetitions(trace)
    labels = [pattern.label for pattern in found.patterns]

    def build(index: int, pattern: Pattern) -> Repetition:
        names = ("label", "level", "run", "position", "shown", "coverage", "differences")
        return Repetition(
            parent=labels[pattern.parent] if pattern.parent >= 0 else None,
            is_unit=index == found.unit,
            unit=found.sequence.unit,
            first=found.sequence.events[pattern.first],
            last=found.sequence.events[pattern.last - 1],
            start_ns=pattern.start,
            end_ns=pattern.end,
            differs=pattern.variant != 0,
            **{name: getattr(pattern, name) for name in names},
            events=pattern.period,
        )

    return tuple(build(index, pattern) for index, pattern in enumerate(found.patterns))
