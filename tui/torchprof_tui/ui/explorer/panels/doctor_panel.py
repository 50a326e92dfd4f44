"""The trace doctor's panel: what was lost, repaired, odd or not recorded, with the entry under the cursor in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Size

from torchprof_tui.analysis.doctor.read_problems import Diagnosis, Remark, Section
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.painted_widget import Lines, TextRun, hang_text, wrap_text
from torchprof_tui.ui.explorer.panels.panel import RECORD_STACKS_HINT, Panel

if TYPE_CHECKING:
    from torchprof_tui.ui.explorer.background_queries import DiagnosisReady, TraceChecked


SECTION_SIGNS = {Section.LOST: "✗", Section.REPAIRED: "~", Section.ODD: "○", Section.MISSING: "–"}
SECTION_TITLES = {
    Section.LOST: "Lost",
    Section.REPAIRED: "Repaired",
    Section.ODD: "Odd, but valid",
    Section.MISSING: "Not recorded",
}
KIND_CELLS, COUNT_CELLS, LABEL_CELLS = 28, 8, 9


class DoctorPanel(Panel):
    """List the remarks on the trace. `remark`: the one under the cursor."""

    NAME = "doctor"

    _is_requested = False
    _diagnosis: Diagnosis | None = None
    _cursor_index = 0
    _cursor_lines = (0, 0)

    def request(self) -> None:
        """Request the diagnosis, once: after the verdict, which it would delay."""
        if not self._is_requested:
            self._is_requested = True
            self.context.worker.submit("doctor", self.context.queries.diagnose_trace)

    def on_trace_checked(self, _message: TraceChecked) -> None:
        self.request()

    def on_diagnosis_ready(self, message: DiagnosisReady) -> None:
        self._diagnosis = message.diagnosis
        self.refresh_content()

    def list_next_keys(self) -> list[tuple[str, str]]:
        remark = self.remark
        if remark is None:
            return [] if self._diagnosis is None else [("c", "findings")]
        goes = [("enter", "show it")] if remark.event >= 0 else []
        return [*goes, *([("r", "record again")] if remark.section is Section.MISSING else []), ("c", "findings")]

    @property
    def has_keys(self) -> bool:
        return self.remark is not None

    @property
    def remark(self) -> Remark | None:
        remarks = self._diagnosis.remarks if self._diagnosis is not None else []
        return remarks[self._cursor_index] if remarks else None

    def move(self, distance: int) -> str:
        index = self._cursor_index + distance
        if self._diagnosis is None or not 0 <= index < len(self._diagnosis.remarks):
            return f"the {'last' if distance > 0 else 'first'} row of the trace doctor; tab leaves the panel"
        self._cursor_index = index
        self.refresh_content(top=False)
        return ""

    def enter(self) -> None:
        """Select the event of the remark, which is then fitted."""
        if self.remark is not None and self.remark.event >= 0:
            self.context.view_state.select(self.remark.event)

    def prepare(self, size: Size) -> None:
        super().prepare(size)
        first, last = self._cursor_lines
        if last >= self._top + size.height:
            self._top = last - size.height + 1
        if first < self._top:
            self._top = first if first > 2 else 0

    def content(self, width: int) -> Lines:
        palette, diagnosis = self.palette, self._diagnosis
        if diagnosis is None:
            return [[("checking the trace …", palette.muted)]]
        if not diagnosis.remarks:
            return wrap_text("No problems: nothing was lost or repaired, and nothing is unusual.", width, palette.text)
        lines: Lines = wrap_text(f"trace doctor · {diagnosis.summary}", width, palette.strong)
        section: Section | None = None
        for index, remark in enumerate(diagnosis.remarks):
            if remark.section is not section:
                section = remark.section
                lines.append([(SECTION_TITLES[section], palette.strong)])
            first = len(lines)
            current = index == self._cursor_index
            lines += self._format_entry(remark, width, current)
            if current:
                self._cursor_lines = (first, len(lines) - 1)
        return lines

    def _format_entry(self, remark: Remark, width: int, current: bool) -> Lines:
        palette = self.palette
        kind_width = min(KIND_CELLS, max(width // 3, 12))
        is_missing = remark.section is Section.MISSING
        count = "" if is_missing else f"{remark.count:>{COUNT_CELLS},}  "
        section_style = {Section.LOST: palette.warning, Section.ODD: palette.strong}.get(remark.section, palette.text)
        kind = f"{truncate(clean(remark.kind), kind_width - 1):<{kind_width}}"
        head: list[TextRun] = [
            ("▶ " if current else f"{SECTION_SIGNS[remark.section]} ", section_style),
            (kind, palette.active if current else palette.text),
            (count, palette.strong),
        ]
        if not current:
            brief = remark.action if is_missing else remark.meaning
            text_width = width - 2 - kind_width - (0 if is_missing else COUNT_CELLS + 2)
            return [[*head, (truncate(clean(brief), text_width), palette.muted)]]
        lines: Lines = [head]
        key_hint = RECORD_STACKS_HINT if is_missing and "with_stack" in remark.action else ""
        rows = (("why", remark.meaning), ("example", remark.example), ("do", remark.action), ("here", key_hint))
        cells = 2 + LABEL_CELLS
        for label, text in rows:
            if text:
                lines += hang_text(f"  {label}", cells, clean(text), width - cells, palette)
        if remark.event >= 0:
            lines.append([(" " * cells, palette.text), ("enter", palette.key), (" goes there", palette.muted)])
        return lines
