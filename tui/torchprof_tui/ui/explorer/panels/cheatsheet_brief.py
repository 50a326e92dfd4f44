"""The brief cheatsheet: the patterns that fire, one line each, beside the panels on wide screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.text_panel import Lines, TextPanel
from torchprof_tui.ui.explorer.panels.cheatsheet_text import ID_CELLS, choose_sign, format_counts

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import CheckResult


class CheatsheetBrief(TextPanel):
    """List the patterns that fire, one line each."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._checked: CheckResult | None = None
        self._scope_label = ""

    def set_checked(self, checked: CheckResult, scope_label: str) -> None:
        self._checked, self._scope_label = checked, scope_label
        self.refresh_content(top=False)

    def content(self, width: int) -> Lines:
        palette, checked = self.palette, self._checked
        head = [("cheatsheet", palette.heading)]
        if checked is None:
            return [[*head, ("  looking for patterns …", palette.muted)]]
        lines: Lines = [
            [*head, (f" {self._scope_label} · {format_counts(checked)}  ", palette.text), ("c", palette.key)]
        ]
        for finding in checked.findings:
            if finding.has_fired:
                sign, style = choose_sign(finding, palette)
                lines.append(
                    [
                        (f"{sign} ", style),
                        (f"{truncate(finding.id, ID_CELLS - 1):<{ID_CELLS}}", palette.strong),
                        (truncate(clean(finding.answer.seen), width - 2 - ID_CELLS), palette.text),
                    ]
                )
        return lines
