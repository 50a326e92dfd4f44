"""The line under the title: what the whole trace is bound by, and the one thing to do first."""

from __future__ import annotations

from textual.strip import Strip

from tui.analysis.patterns import Verdict
from tui.widgets.names import clean, cut
from tui.widgets.painted import Painted, line


class VerdictLine(Painted):
    """Set `learn` when the trace has been looked through."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._verdict: Verdict | None = None

    def learn(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette, verdict = self.palette, self._verdict
        if verdict is None:
            return line([], width, palette.text)
        if verdict.busy is None:
            return line([(f" {cut(clean(verdict.first), width - 2)}", palette.muted)], width, palette.text)
        regime = f" {verdict.regime.value}"
        rest = cut(f" · {clean(verdict.first)}", max(width - len(regime) - 1, 0))
        return line([(regime, palette.warning), (rest, palette.text)], width, palette.text)
