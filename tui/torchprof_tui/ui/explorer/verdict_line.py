"""The verdict line below the title: what the whole trace is bound by, and what to do first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.strip import Strip

from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.painted_widget import PaintedWidget, build_strip

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.verdict.verdict import Verdict


class VerdictLine(PaintedWidget):
    """Show the verdict; empty until `set_verdict` is called."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._verdict: Verdict | None = None
        self._rank_prefix = ""

    def set_verdict(self, verdict: Verdict, rank_label: str = "") -> None:
        """Show a verdict. `rank_label`: its rank, where there are several."""
        self._verdict, self._rank_prefix = verdict, f"{rank_label}: " if rank_label else ""
        self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette, verdict = self.palette, self._verdict
        if verdict is None:
            return build_strip([], width, palette.text)
        if verdict.busy is None:
            return build_strip(
                [(f" {truncate(clean(self._rank_prefix + verdict.first), width - 2)}", palette.muted)],
                width,
                palette.text,
            )
        regime = f" {self._rank_prefix}{verdict.regime.value}"
        rest = truncate(f" · {clean(verdict.first)}", max(width - len(regime) - 1, 0))
        return build_strip([(regime, palette.warning), (rest, palette.text)], width, palette.text)
