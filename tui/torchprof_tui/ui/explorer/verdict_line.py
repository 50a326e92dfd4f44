"""The verdict line below the title: what the whole trace is bound by, and what to do first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.strip import Strip

from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip
from torchprof_tui.ui.common.text_panel import wrap_text

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.verdict.verdict import Verdict


class VerdictLine(PaintedWidget):
    """Show the verdict; empty until `set_verdict` is called."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._verdict: Verdict | None = None
        self._rank_prefix = ""

    def set_verdict(self, verdict: Verdict, rank_label: str = "") -> None:
        """Show a verdict. `rank_label`: its rank, where there are several, or the part of the trace that it is of."""
        self._verdict, self._rank_prefix = verdict, f"{rank_label}: " if rank_label else ""
        self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette, verdict = self.palette, self._verdict
        if verdict is None:
            return build_strip([], width, palette.text)
        lines = self._wrap_lines(width - 2)
        if y >= len(lines):
            return build_strip([], width, palette.text)
        text = lines[y]
        if y == self.size.height - 1 and len(lines) > self.size.height:
            text = truncate(" ".join(lines[y:]), width - 2)
        regime = "" if verdict.busy is None or y else f"{self._rank_prefix}{verdict.regime.value}"
        rest_style = palette.muted if verdict.busy is None else palette.text
        runs: list[TextRun] = [(" ", palette.text), (regime, palette.warning), (text[len(regime) :], rest_style)]
        return build_strip(runs, width, palette.text)

    @property
    def shows_all(self) -> bool:
        """Whether the whole text is on screen."""
        return self._verdict is not None and len(self._wrap_lines(self.size.width - 2)) <= self.size.height

    def _wrap_lines(self, width: int) -> list[str]:
        """Wrap the rank, the regime and what to do first."""
        assert self._verdict is not None
        regime = "" if self._verdict.busy is None else f"{self._verdict.regime.value} · "
        wrapped = wrap_text(clean(f"{self._rank_prefix}{regime}{self._verdict.first}"), width, self.palette.text)
        return ["".join(text for text, _ in runs) for runs in wrapped]
