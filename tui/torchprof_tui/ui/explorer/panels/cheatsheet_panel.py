"""The cheatsheet beside the lanes: which patterns fire in what is on screen, with this trace's numbers, and what to do.

The entry under the cursor explains itself; its evidence is marked on the lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.style import Style

from torchprof_tui.analysis.patterns import Finding, State, Weight
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.name_display import clean, cut
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Run
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, wrap

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import Checked

SIGNS = {Weight.PROBLEM: "●", Weight.NOTICE: "○", Weight.ARTEFACT: "·"}
ID_CELLS, STAKE_CELLS = 20, 16


class Cheatsheet(TextPanel):
    """Set `learn` with what was found; `move` the cursor; `finding` is what it is on."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._checked: Checked | None = None
        self._following = ""
        self._cursor = ""  # the id of an entry, so that it stays when the order changes
        self._instance = -1
        self._line_of: dict[str, tuple[int, int]] = {}

    def learn(self, checked: Checked, following: str) -> None:
        """What was found, and which scope the panel follows, in words."""
        fired = [found.id for found in checked.findings if found.fired]
        self._checked, self._following = checked, following
        if self._cursor not in fired:
            self._cursor, self._instance = (fired[0] if fired else ""), -1
        self.renew(top=False)

    @property
    def finding(self) -> Finding | None:
        """The fired pattern under the cursor."""
        return next((found for found in self._fired() if found.id == self._cursor), None)

    def _fired(self) -> list[Finding]:
        return [found for found in self._checked.findings if found.fired] if self._checked is not None else []

    def move(self, distance: int) -> bool:
        """The cursor so many entries down; False at an end."""
        ids = [found.id for found in self._fired()]
        if self._cursor not in ids:
            return False
        place = ids.index(self._cursor) + distance
        if not 0 <= place < len(ids):
            return False
        self._cursor, self._instance = ids[place], -1
        self.renew(top=False)
        return True

    def instance(self, distance: int) -> tuple[int, int, int]:
        """(the next event of evidence, which it is from 1, of how many); (-1, 0, 0) without any."""
        found = self.finding
        if found is None or not len(found.answer.events):
            return -1, 0, 0
        count = len(found.answer.events)
        first = 0 if distance > 0 else count - 1
        self._instance = (self._instance + distance) % count if self._instance >= 0 else first
        return int(found.answer.events[self._instance]), self._instance + 1, count

    def prepare(self, size: object) -> None:
        super().prepare(self.size)
        first, last = self._line_of.get(self._cursor, (0, 0))
        height = self.size.height
        if last >= self._top + height:
            self._top = last - height + 1
        if first < self._top:
            self._top = first if first > 2 else 0

    def content(self, width: int) -> Lines:
        palette = self.palette
        self._line_of = {}
        checked = self._checked
        if checked is None:
            return [[("looking for patterns …", palette.muted)]]
        lines: Lines = [
            [
                (self._following, palette.strong),
                (f" · {counts(checked)}", palette.text),
                ("  v: other scope", palette.muted),
            ]
        ]
        lines += wrap(checked.verdict.line, width, palette.accent)
        for found in checked.findings:
            if found.fired:
                first = len(lines)
                chosen = found.id == self._cursor
                lines += self._entry(found, width, chosen)
                self._line_of[found.id] = (first, len(lines) - 1)
        for found in checked.findings:
            if found.state is State.CANNOT_TELL:
                lines += _labelled("?", found.id, found.answer.reason, width, palette)
        absent = ", ".join(found.id for found in checked.findings if found.state is State.ABSENT)
        if absent:
            lines += wrap(f"absent: {absent}", width, palette.muted, "  ")
        return lines

    def _entry(self, found: Finding, width: int, chosen: bool) -> Lines:
        palette, pattern, said = self.palette, found.pattern, found.answer
        seen = clean(said.seen)
        head: list[Run] = [
            ("▶ " if chosen else f"{SIGNS[pattern.weight]} ", _ink(found, palette)),
            (f"{cut(found.id, ID_CELLS - 1):<{ID_CELLS}}", palette.active if chosen else palette.strong),
            (f"{_stake(found):>{STAKE_CELLS}}  ", palette.text),
        ]
        room = width - 2 - ID_CELLS - STAKE_CELLS - 2
        if not chosen:
            if room < 20:
                return [head]
            return [[*head, (cut(seen, room), palette.text)]]
        lines: Lines = [head if room < 20 else [*head, (cut(clean(pattern.title), room), palette.text)]]
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
                lines += _labelled(" ", label, clean(text), width, palette, 11)
        return lines


class CheatsheetBrief(TextPanel):
    """What fires now, a line each: stands beside the panels where there is room, and follows without a key."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._checked: Checked | None = None
        self._following = ""

    def learn(self, checked: Checked, following: str) -> None:
        self._checked, self._following = checked, following
        self.renew(top=False)

    def content(self, width: int) -> Lines:
        palette, checked = self.palette, self._checked
        head = [("cheatsheet", palette.heading)]
        if checked is None:
            return [[*head, ("  looking for patterns …", palette.muted)]]
        lines: Lines = [[*head, (f" {self._following} · {counts(checked)}  ", palette.text), ("c", palette.key)]]
        for found in checked.findings:
            if found.fired:
                room = width - 2 - ID_CELLS
                lines.append(
                    [
                        (f"{SIGNS[found.pattern.weight]} ", _ink(found, palette)),
                        (f"{cut(found.id, ID_CELLS - 1):<{ID_CELLS}}", palette.strong),
                        (cut(clean(found.answer.seen), room), palette.text),
                    ]
                )
        return lines


def counts(checked: Checked) -> str:
    states = [found.state for found in checked.findings]
    return (
        f"{states.count(State.FIRED)} fired · {states.count(State.ABSENT)} absent · "
        f"{states.count(State.CANNOT_TELL)} cannot tell"
    )


def _ink(found: Finding, palette: Palette) -> Style:
    weight = found.pattern.weight
    return palette.warning if weight is Weight.PROBLEM else palette.accent if weight is Weight.NOTICE else palette.muted


def _stake(found: Finding) -> str:
    if not found.answer.at_stake:
        return ""
    return f"{format_duration(found.answer.at_stake)}, {format_share(found.share)}"


def _labelled(sign: str, label: str, text: str, width: int, palette: Palette, cells: int = ID_CELLS) -> Lines:
    wrapped = wrap(text, max(width - cells - 2, 10), palette.text)
    name = cut(label, cells - 1)
    out: Lines = [[(f"{sign} {name}{' ' * (cells - cell_len(name))}", palette.muted), *wrapped[0]]]
    out.extend([(" " * (cells + 2), palette.text), *runs] for runs in wrapped[1:])
    return out
