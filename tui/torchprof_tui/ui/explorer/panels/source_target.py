"""The line of the program that a panel names: the line, or None where it cannot be opened, its rank, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.analysis.patterns.engine.code_location import find_code_line
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.ui.explorer.panels.doctor_panel import RECORD_STACKS_HINT

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.source_line import SourceLine
    from torchprof_tui.trace.model.ranks import Rank

NO_SOURCE_PANEL = "L opens the source line of a finding (c) or of an event's chain (l): open one of them"


def find_line_of_finding(rank: Rank, finding: Finding | None) -> tuple[SourceLine | None, Rank, str]:
    """Find the line of a finding of a rank."""
    if finding is None or not finding.is_problem:
        return None, rank, "only problems have a source line"
    return check_line(find_code_line(finding), rank, finding.id)


def check_line(line: SourceLine | None, rank: Rank, owner: str) -> tuple[SourceLine | None, Rank, str]:
    """Check whether a line can be opened; `owner`: what it is the line of."""
    if line is None:
        return None, rank, f"{owner}: no source line known; {RECORD_STACKS_HINT}"
    if line.file is None:
        return None, rank, f"the file of this {line.kind} is unknown; {RECORD_STACKS_HINT}"
    return line, rank, ""
