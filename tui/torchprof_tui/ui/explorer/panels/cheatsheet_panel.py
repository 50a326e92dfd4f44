"""The cheatsheet panel: the patterns that fire in the current scope, with this trace's numbers, and what to do.

The entry under the cursor is explained in full, and its evidence is highlighted on the lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.style import Style

from torchprof_tui.analysis.patterns.engine.pattern import Finding, Severity, State
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, wrap_text

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import CheckResult

SEVERITY_SIGNS = {Severity.PROBLEM: "●", Severity.NOTICE: "○", Severity.ARTEFACT: "·"}
ID_CELLS, STAKE_CELLS, ROW_LABEL_CELLS = 20, 16, 11
MIN_TEXT_CELLS = 20
"""Minimum width of the text after an entry's id and time at stake; in less it is left out."""


class CheatsheetPanel(TextPanel):
    """List the findings given to `set_checked`. `move_cursor` changes the entry; `finding` is the current one."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._checked: CheckResult | None = None
        self._scope_label = ""
        self._cursor_id = ""  # the id of an entry, so that it stays when the order changes
        self._evidence_index = -1
        self._lines_by_id: dict[str, tuple[int, int]] = {}

    def set_checked(self, checked: CheckResult, scope_label: str) -> None:
        """Set the findings and the label of their scope; the cursor stays on its pattern while it fires."""
        fired = [finding.id for finding in checked.findings if finding.has_fired]
        self._checked, self._scope_label = checked, scope_label
        if self._cursor_id not in fired:
            self._cursor_id, self._evidence_index = (fired[0] if fired else ""), -1
        self.refresh_content(top=False)

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
        self._cursor_id, self._evidence_index = ids[index], -1
        self.refresh_content(top=False)
        return True

    def next_evidence(self, distance: int) -> tuple[int, int, int]:
        """Return (next event of the evidence, its number from 1, number of events); (-1, 0, 0) without evidence."""
        finding = self.finding
        if finding is None or not len(finding.answer.events):
            return -1, 0, 0
        count = len(finding.answer.events)
        first = 0 if distance > 0 else count - 1
        self._evidence_index = (self._evidence_index + distance) % count if self._evidence_index >= 0 else first
        return int(finding.answer.events[self._evidence_index]), self._evidence_index + 1, count

    def prepare(self, size: object) -> None:
        super().prepare(self.size)
        first, last = self._lines_by_id.get(self._cursor_id, (0, 0))
        height = self.size.height
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
        lines += wrap_text(checked.verdict.line, width, palette.accent)
        for finding in checked.findings:
            if finding.has_fired:
                first = len(lines)
                lines += self._format_entry(finding, width, current=finding.id == self._cursor_id)
                self._lines_by_id[finding.id] = (first, len(lines) - 1)
        for finding in checked.findings:
            if finding.state is State.CANNOT_TELL:
                lines += _format_labelled_text("?", finding.id, finding.answer.reason, width, palette)
        absent = ", ".join(finding.id for finding in checked.findings if finding.state is State.ABSENT)
        if absent:
            lines += wrap_text(f"absent: {absent}", width, palette.muted, "  ")
        return lines

    def _format_entry(self, finding: Finding, width: int, current: bool) -> Lines:
        palette, pattern, answer = self.palette, finding.pattern, finding.answer
        seen = clean(answer.seen)
        head: list[TextRun] = [
            ("▶ " if current else f"{SEVERITY_SIGNS[pattern.severity]} ", _severity_style(pattern.severity, palette)),
            (f"{truncate(finding.id, ID_CELLS - 1):<{ID_CELLS}}", palette.active if current else palette.strong),
            (f"{_format_stake(finding):>{STAKE_CELLS}}  ", palette.text),
        ]
        text_width = width - 2 - ID_CELLS - STAKE_CELLS - 2
        if not current:
            if text_width < MIN_TEXT_CELLS:
                return [head]
            return [[*head, (truncate(seen, text_width), palette.text)]]
        title = truncate(clean(pattern.title), text_width)
        lines: Lines = [head if text_width < MIN_TEXT_CELLS else [*head, (title, palette.text)]]
        rows = [
            ("seen", seen),
            ("means", pattern.meaning),
            ("do", finding.remedy.action),
            ("code", finding.remedy.code),
        ]
        rows += [("decided", pattern.decided)]
        rows += [
            ("threshold" if not k else "", f"{threshold.name} {threshold.value:g} {threshold.unit}: {threshold.reason}")
            for k, threshold in enumerate(pattern.thresholds)
        ]
        count = len(answer.events)
        if count:
            rows.append(
                ("evidence", f"{count:,} event{'s' if count != 1 else ''}, marked on the lanes: enter, then n N")
            )
        for label, text in rows:
            if text:
                lines += _format_labelled_text(" ", label, clean(text), width, palette, ROW_LABEL_CELLS)
        return lines


class CheatsheetBrief(TextPanel):
    """List the patterns that fire, one line each, beside the panels on wide screens."""

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
                severity = finding.pattern.severity
                lines.append(
                    [
                        (f"{SEVERITY_SIGNS[severity]} ", _severity_style(severity, palette)),
                        (f"{truncate(finding.id, ID_CELLS - 1):<{ID_CELLS}}", palette.strong),
                        (truncate(clean(finding.answer.seen), width - 2 - ID_CELLS), palette.text),
                    ]
                )
        return lines


def format_counts(checked: CheckResult) -> str:
    """Format how many patterns fired, are absent and cannot be told."""
    states = [finding.state for finding in checked.findings]
    return (
        f"{states.count(State.FIRED)} fired · {states.count(State.ABSENT)} absent · "
        f"{states.count(State.CANNOT_TELL)} cannot tell"
    )


def _severity_style(severity: Severity, palette: Palette) -> Style:
    if severity is Severity.PROBLEM:
        return palette.warning
    return palette.accent if severity is Severity.NOTICE else palette.muted


def _format_stake(finding: Finding) -> str:
    if not finding.answer.at_stake:
        return ""
    return f"{format_duration(finding.answer.at_stake)}, {format_share(finding.share)}"


def _format_labelled_text(
    sign: str, label: str, text: str, width: int, palette: Palette, cells: int = ID_CELLS
) -> Lines:
    wrapped = wrap_text(text, max(width - cells - 2, 10), palette.text)
    name = truncate(label, cells - 1)
    lines: Lines = [[(f"{sign} {name}{' ' * (cells - cell_len(name))}", palette.muted), *wrapped[0]]]
    lines.extend([(" " * (cells + 2), palette.text), *runs] for runs in wrapped[1:])
    return lines
