"""The cheatsheet panel: the verdict on the current scope, where its time went, and the patterns that fire in it.

The entry under the cursor is explained in full, and its evidence is highlighted on the lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.analysis.patterns.engine.pattern import Finding, State
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import describe_group, group_undecidable
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, wrap_text
from torchprof_tui.ui.explorer.panels.cheatsheet_text import (
    format_counts,
    format_entry,
    format_verdict,
)
from torchprof_tui.ui.explorer.panels.evidence_cursor import EvidenceCursor, EvidencePlace

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import CheckResult
    from torchprof_tui.trace.model.trace import Trace


VERDICT_MIN_HEIGHT = 8
"""Panel height from which the lines above the first entry are shown together with it."""


class CheatsheetPanel(TextPanel):
    """List the findings given to `set_checked`. `move_cursor` changes the entry; `finding` is the current one."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._checked: CheckResult | None = None
        self._scope_label = ""
        self._cursor_id = ""  # the id of an entry, so that it stays when the order changes
        self._evidence = EvidenceCursor()
        self._reveals_cursor = True  # in the next frame
        self._is_verdict_above = False
        self._lines_by_id: dict[str, tuple[int, int]] = {}

    def set_checked(self, checked: CheckResult, scope_label: str) -> None:
        """Set the findings and the label of their scope; the cursor stays on its pattern while it fires."""
        fired = [finding.id for finding in checked.findings if finding.has_fired]
        self._checked, self._scope_label = checked, scope_label
        if self._cursor_id not in fired:
            self._cursor_id = fired[0] if fired else ""
            self._evidence.reset()
            self._reveals_cursor = True
        self.refresh_content(top=False)

    @property
    def checked(self) -> CheckResult | None:
        """The findings shown, None until they are known."""
        return self._checked

    @property
    def finding(self) -> Finding | None:
        """The fired pattern under the cursor, None for none."""
        return next((finding for finding in self._fired_findings() if finding.id == self._cursor_id), None)

    def _fired_findings(self) -> list[Finding]:
        return [] if self._checked is None else [finding for finding in self._checked.findings if finding.has_fired]

    def move_cursor(self, distance: int) -> bool:
        """Move the cursor down by `distance` entries (up where negative); return False at an end."""
        ids = [finding.id for finding in self._fired_findings()]
        if self._cursor_id not in ids:
            return False
        index = ids.index(self._cursor_id) + distance
        if not 0 <= index < len(ids):
            return False
        self._cursor_id = ids[index]
        self._evidence.reset()
        self._reveals_cursor = True
        self.refresh_content(top=False)
        return True

    def find_id(self, number: int) -> str | None:
        """Return the id of an entry by its number from 1, None where there are fewer."""
        fired = self._fired_findings()
        return fired[number - 1].id if 1 <= number <= len(fired) else None

    def move_to(self, finding_id: str) -> None:
        """Move the cursor to the entry of this id."""
        self._cursor_id = finding_id
        self._evidence.reset()
        self._reveals_cursor = True
        self.refresh_content(top=False)

    def show_top(self) -> bool:
        """Scroll to the first line, above the first entry. Returns whether it moved."""
        moved, self._top = self._top > 0, 0
        self.repaint()
        return moved

    def set_verdict_above(self, is_above: bool) -> None:
        """Set whether the verdict on the whole trace is on screen above the lanes, and need not be repeated here."""
        if is_above != self._is_verdict_above:
            self._is_verdict_above = is_above
            self.refresh_content(top=False)

    def next_evidence(self, distance: int, trace: Trace) -> EvidencePlace | None:
        """Return the next place of the evidence, the previous one for a negative distance; None without evidence."""
        finding = self.finding
        return None if finding is None else self._evidence.move(finding, trace, distance)

    def prepare(self, size: object) -> None:
        super().prepare(self.size)
        if not self._reveals_cursor or not self._lines_by_id:
            return
        self._reveals_cursor = False
        first, last = self._lines_by_id.get(self._cursor_id, (0, 0))
        height = self.size.height
        if first == min(start for start, _ in self._lines_by_id.values()) and height >= VERDICT_MIN_HEIGHT:
            self._top = 0  # the verdict stands above the first entry
            return
        if last >= self._top + height:
            self._top = last - height + 1
        if first < self._top:
            self._top = first if first > 2 else 0

    def content(self, width: int) -> Lines:
        palette = self.palette
        self._lines_by_id = {}
        checked = self._checked
        if checked is None:
            return [[("looking for patterns …", palette.muted)]]
        lines: Lines = [
            [
                (self._scope_label, palette.strong),
                (f" · {format_counts(checked)}", palette.text),
                ("  v: other scope", palette.muted),
            ]
        ]
        with_text = not (self._is_verdict_above and checked.scope.is_whole_trace)
        lines += format_verdict(checked.verdict, width, self.size.height, palette, with_text)
        tree = checked.verdict.divided_tree
        for finding in self._fired_findings():
            first = len(lines)
            lines += format_entry(finding, width, finding.id == self._cursor_id, palette, tree)
            self._lines_by_id[finding.id] = (first, len(lines) - 1)
        for reason, ids in group_undecidable(checked.findings):
            lines += wrap_text(f"? {clean(describe_group(reason, ids))}", width, palette.muted, "  ")
        absent = ", ".join(finding.id for finding in checked.findings if finding.state is State.ABSENT)
        if absent:
            lines += wrap_text(f"not present: {absent}", width, palette.muted, "  ")
        return lines
