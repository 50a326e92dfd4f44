"""The cheatsheet beside the lanes: which patterns fire in what is on screen, with this trace's numbers, and what to do.

The entry under the cursor explains itself; its evidence is marked on the lanes.
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

WEIGHT_SIGNS = {Severity.PROBLEM: "●", Severity.NOTICE: "○", Severity.ARTEFACT: "·"}
ID_CELLS, STAKE_CELLS = 20, 16


class CheatsheetPanel(TextPanel):
    """Set `learn` with what was found; `move` the cursor; `finding` is what it is on."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._checked: CheckResult | None = None
        self._scope_label = ""
        self._cursor_id = ""  # the id of an entry, so that it stays when the order changes
        self._evidence_index = -1
        self._lines_by_id: dict[str, tuple[int, int]] = {}

    def set_checked(self, checked: CheckResult, scope_label: str) -> None:
        """What was found, and which scope the panel follows, in words."""
        fired = [found.id for found in checked.findings if found.has_fired]
        self._checked, self._scope_label = checked, scope_label
        if self._cursor_id not in fired:
            self._cursor_id, self._evidence_index = (fired[0] if fired else ""), -1
        self.refresh_content(top=False)

    @property
    def finding(self) -> Finding | None:
        """The fired pattern under the cursor."""
        return next((found for found in self._fired_findings() if found.id == self._cursor_id), None)

    def _fired_findings(self) -> list[Finding]:
        return [found for found in self._checked.findings if found.has_fired] if self._checked is not None else []

    def move_cursor(self, distance: int) -> bool:
        """The cursor so many entries down; False at an end."""
        ids = [found.id for found in self._fired_findings()]
        if self._cursor_id not in ids:
            return False
        place = ids.index(self._cursor_id) + distance
        if not 0 <= place < len(ids):
            return False
        self._cursor_id, self._evidence_index = ids[place], -1
        self.refresh_content(top=False)
        return True

    def next_evidence(self, distance: int) -> tuple[int, int, int]:
        """(the next event of evidence, which it is from 1, of how many); (-1, 0, 0) without any."""
        found = self.finding
        if found is None or not len(found.answer.events):
            return -1, 0, 0
        count = len(found.answer.events)
        first = 0 if distance > 0 else count - 1
        self._evidence_index = (self._evidence_index + distance) % count if self._evidence_index >= 0 else first
        return int(found.answer.events[self._evidence_index]), self._evidence_index + 1, count

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
        for found in checked.findings:
            if found.has_fired:
                first = len(lines)
                chosen = found.id == self._cursor_id
                lines += self._format_entry(found, width, chosen)
                self._lines_by_id[found.id] = (first, len(lines) - 1)
        for found in checked.findings:
            if found.state is State.CANNOT_TELL:
                lines += _format_labelled_text("?", found.id, found.answer.reason, width, palette)
        absent = ", ".join(found.id for found in checked.findings if found.state is State.ABSENT)
        if absent:
            lines += wrap_text(f"absent: {absent}", width, palette.muted, "  ")
        return lines

    def _format_entry(self, found: Finding, width: int, chosen: bool) -> Lines:
        palette, pattern, said = self.palette, found.pattern, found.answer
        seen = clean(said.seen)
        head: list[TextRun] = [
            ("▶ " if chosen else f"{WEIGHT_SIGNS[pattern.severity]} ", _weight_style(found, palette)),
            (f"{truncate(found.id, ID_CELLS - 1):<{ID_CELLS}}", palette.active if chosen else palette.strong),
            (f"{_format_stake(found):>{STAKE_CELLS}}  ", palette.text),
        ]
        room = width - 2 - ID_CELLS - STAKE_CELLS - 2
        if not chosen:
            if room < 20:
                return [head]
            return [[*head, (truncate(seen, room), palette.text)]]
        lines: Lines = [head if room < 20 else [*head, (truncate(clean(pattern.title), room), palette.text)]]
        rows = [("seen", seen), ("means", pattern.meaning), ("do", pattern.action), ("code", pattern.code)]
        rows += [("decided", pattern.decided)]
        rows += [
            ("threshold" if not place else "", f"{each.name} {each.value:g} {each.unit}: {each.reason}")
            for place, each in enumerate(pattern.thresholds)
        ]
        count = len(said.events)
        if count:
            rows.append(
                ("evidence", f"{count:,} event{'s' if count != 1 else ''}, marked on the lanes: enter, then n N")
            )
        for label, text in rows:
            if text:
                lines += _format_labelled_text(" ", label, clean(text), width, palette, 11)
        return lines


class CheatsheetBrief(TextPanel):
    """What fires now, a line each: stands beside the panels where there is room, and follows without a key."""

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
        for found in checked.findings:
            if found.has_fired:
                room = width - 2 - ID_CELLS
                lines.append(
                    [
                        (f"{WEIGHT_SIGNS[found.pattern.severity]} ", _weight_style(found, palette)),
                        (f"{truncate(found.id, ID_CELLS - 1):<{ID_CELLS}}", palette.strong),
                        (truncate(clean(found.answer.seen), room), palette.text),
                    ]
                )
        return lines


def format_counts(checked: CheckResult) -> str:
    states = [found.state for found in checked.findings]
    return (
        f"{states.count(State.FIRED)} fired · {states.count(State.ABSENT)} absent · "
        f"{states.count(State.CANNOT_TELL)} cannot tell"
    )


def _weight_style(found: Finding, palette: Palette) -> Style:
    weight = found.pattern.severity
    return (
        palette.warning
        if weight is Severity.PROBLEM
        else palette.accent
        if weight is Severity.NOTICE
        else palette.muted
    )


def _format_stake(found: Finding) -> str:
    if not found.answer.at_stake:
        return ""
    return f"{format_duration(found.answer.at_stake)}, {format_share(found.share)}"


def _format_labelled_text(
    sign: str, label: str, text: str, width: int, palette: Palette, cells: int = ID_CELLS
) -> Lines:
    wrapped = wrap_text(text, max(width - cells - 2, 10), palette.text)
    name = truncate(label, cells - 1)
    out: Lines = [[(f"{sign} {name}{' ' * (cells - cell_len(name))}", palette.muted), *wrapped[0]]]
    out.extend([(" " * (cells + 2), palette.text), *runs] for runs in wrapped[1:])
    return out
