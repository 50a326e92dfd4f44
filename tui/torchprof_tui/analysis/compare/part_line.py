"""Find the line of the program behind a part of the account."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.compare.account import GPU_CLASS, IDLE
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.dispatch.line_model import SourceLine
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine.largest_gaps import list_largest_gaps
from torchprof_tui.analysis.patterns.verdict.time_tree import COPIES, EXPOSED
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind

_MAX_EVENTS = 24
"""Events of a part whose lines are looked up, the longest; each takes up to a quarter of a millisecond."""

_MAX_GAPS = 10
"""Gaps among which one of the part's cause is looked for, the longest."""


def find_part_line(side: SideAnalysis, part_id: str) -> SourceLine | None:
    """Find the line that most of a part comes from: that of its GPU work, or of the longest gap; None if unknown."""
    view = side.checker.view(side.scope)
    if part_id.startswith(IDLE):
        gaps = list_largest_gaps(view, _MAX_GAPS)
        return next((gap.line for gap in gaps if gap.cause.id == part_id.removeprefix(IDLE)), None)
    rows = _select_work(side, part_id)
    return side.checker.tables.line_finder.find_common_line(rows, _MAX_EVENTS) if len(rows) else None


def _select_work(side: SideAnalysis, part_id: str) -> I64:
    """Select the GPU work of a part: rows of the trace, int64[k]; none for parts of the CPU's time."""
    work = side.checker.view(side.scope).work
    is_of_part = np.zeros(len(work), dtype=np.bool_)
    if part_id == COPIES:
        is_of_part = work.kind == Kind.COPY
    elif part_id == EXPOSED:
        is_of_part = work.kind == Kind.COLLECTIVE
    elif part_id.startswith(GPU_CLASS):
        numbers = [int(number) for number in KernelClass if number.label == part_id.removeprefix(GPU_CLASS)]
        is_of_part = np.isin(work.kernel_class, numbers) & (work.kind != Kind.COPY)
    rows: I64 = work.events.row[is_of_part]
    return rows
