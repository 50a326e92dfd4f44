"""The line under the title: what the whole trace is bound by, and the one thing to do first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.strip import Strip

from torchprof_tui.ui.common.name_display import clean, cut
from torchprof_tui.ui.common.painted_widget import Painted, line

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.verdict import Verdict


class VerdictLine(Painted):
    """Set `learn` when the trace has been looked through."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._verdict: Verdict | None = None
        self._whose = ""

    def learn(self, verdict: Verdict, whose: str = "") -> None:
        """`whose`: which of several ranks it is on."""
        self._verdict, self._whose = verdict, f"{whose}: " if whose else ""
        self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette, verdict = self.palette, self._verdict
        if verdict is None:
            return line([], width, palette.text)
        if verdict.busy is None:
            return line(
                [(f" {cut(clean(self._whose + verdict.first), width - 2)}", palette.muted)], width, palette.text
            )
        regime = f" {self._whose}{verdict.regime.value}"
        rest = cut(f" · {clean(verdict.first)}", max(width - len(regime) - 1, 0))
        return line([(regime, palette.warning), (rest, palette.text)], width, palette.text)
