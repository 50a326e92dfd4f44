"""Find the line of the program behind a part of the account."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from torchprof_tui.analysis.compare.account import GPU_CLASS, IDLE, PartChange
from torchprof_tui.analysis.compare.idle_sections import find_changed_section, measure_gaps_in_section
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.dispatch.line_model import ANNOTATION, SourceLine, build_annotation_line
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.largest_gaps import find_gap_line
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.verdict.tree_model import COPIES, EXPOSED
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind

_MAX_EVENTS = 24
"""Events of a part whose lines are looked up, the longest; each takes up to a quarter of a millisecond."""

_MAX_GAPS = 10
"""Gaps whose lines are looked up, the longest of those in question."""


def find_part_line(a: SideAnalysis, b: SideAnalysis, part: PartChange) -> SourceLine | None:
    """Find the line that a change comes from, on the side that takes longer for the part; None if unknown.

    Of GPU work, the line with most of it. Of idle time, the section in which it changed; with recorded stacks, the line
    of most of it there.
    """
    side = b if part.delta > 0 else a
    if not part.id.startswith(IDLE):
        rows = _select_work(side, part.id)
        return side.checker.tables.line_finder.find_common_line(rows, _MAX_EVENTS) if len(rows) else None
    cause = next((cause for cause in IdleCause if cause.id == part.id.removeprefix(IDLE)), None)
    if cause is None:
        return None
    section = find_changed_section(a, b, cause)
    gap_line = _find_gap_line(side.view, cause, section)
    if gap_line is not None and gap_line.kind != ANNOTATION:
        return gap_line
    return None if section is None else build_annotation_line(section)


def _find_gap_line(view: ScopeView, cause: IdleCause, section: str | None) -> SourceLine | None:
    """Find the line with most of a cause's time among the longest gaps, in a section of the program if one is named."""
    time = measure_gaps_in_section(view, cause, section)
    longest = np.argsort(-time, kind="stable")[:_MAX_GAPS]
    time_by_line: dict[SourceLine | None, int] = defaultdict(int)
    for gap in longest[time[longest] > 0].tolist():
        time_by_line[find_gap_line(view, gap)] += int(time[gap])
    return max(time_by_line, key=lambda line: time_by_line[line], default=None)


def _select_work(side: SideAnalysis, part_id: str) -> I64:
    """Select the GPU work of a part: rows of the trace, int64[k]; none for parts of the CPU's time."""
    work = side.view.work
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
