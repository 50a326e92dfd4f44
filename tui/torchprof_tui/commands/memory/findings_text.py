"""Print the findings about memory as text."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from torchprof_tui.analysis.memory.findings.memory_finding import MemoryFinding, format_size
from torchprof_tui.ui.common.name_display import clean


def print_findings(console: Console, findings: list[MemoryFinding]) -> None:
    """Print each finding: what was seen, what to do and what that saves at the peak, a line to paste."""
    for finding in findings:
        console.print()
        console.print(Text(f"{finding.id}: {clean(finding.seen)}"))
        saves = f" (saves at most {format_size(finding.saved)} at the peak)" if finding.saved else ""
        console.print(Text(f"  → {finding.action}{saves}"))
        if finding.code:
            console.print(Text(f"  {finding.code}", style="dim"))
