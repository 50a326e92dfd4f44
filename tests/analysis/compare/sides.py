"""Build sides to compare from traces and files."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace


def side_of(trace: Trace, first: int = 0, last: int | None = None) -> Side:
    """A side of the steps `first:last` of a trace, of the whole trace where it has none."""
    steps = tuple(trace.steps)[first:last]
    window = (steps[0].start, steps[-1].start + steps[-1].duration) if steps else trace.span
    return Side(trace, "label", window, steps)


@lru_cache(maxsize=16)
def load_side(path: Path) -> Side:
    """A side of all steps of a file."""
    return side_of(load_trace(str(path), cache=False))
