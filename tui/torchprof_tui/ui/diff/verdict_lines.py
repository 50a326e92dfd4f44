"""The lines above the lanes: how much longer or shorter a step is, whether by chance, and the largest cause."""

from __future__ import annotations

from rich.cells import cell_len
from textual.strip import Strip

from torchprof_tui.analysis.compare.account import Account
from torchprof_tui.analysis.compare.comparison import Comparison, describe_cause
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.common.name_display import truncate
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, wrap_text
from torchprof_tui.ui.diff.marked_timeline import LEGEND

SAME_RECORDING = "the same recording: nothing differs"
WAYS_TO_COMPARE = "D compares another trace, two steps (step 3/4) or two ranks (rank 0/3)"

VERDICT_LINES = 3


class VerdictLines(TextPanel):
    """Show `VERDICT_LINES` lines; the headline comes first and may take two."""

    DEFAULT_CSS = f"VerdictLines {{ height: {VERDICT_LINES}; width: 100%; }}"

    def __init__(self) -> None:
        super().__init__(id="diff-verdict")
        self._comparison: Comparison | None = None
        self._progress = "finding the steady steps of both …"

    def show_progress(self, text: str) -> None:
        """Show what is being computed."""
        self._progress = text
        self.refresh_content()

    def show_comparison(self, comparison: Comparison) -> None:
        """Show the answer, once its account is computed."""
        self._comparison = comparison
        self.refresh_content()

    def content(self, width: int) -> Lines:
        if self._comparison is None:
            return [[(self._progress, self.palette.muted)]]
        comparison, palette = self._comparison, self.palette
        if comparison.is_same_recording:
            return [
                [(SAME_RECORDING, palette.strong)],
                *wrap_text(WAYS_TO_COMPARE, width, palette.text),
            ][:VERDICT_LINES]
        verdict = comparison.verdict
        headline = describe_certainty(comparison.account) + verdict.headline
        lines = wrap_text(clean(headline), width, palette.strong)
        lines = lines[: VERDICT_LINES - 1]
        rows = VERDICT_LINES - len(lines)
        causes = verdict.causes
        cause = f"largest cause: {describe_cause(causes[0])}" if causes else "no part of the step changed noticeably"
        texts = [cause, verdict.regimes] if rows > 1 else [cause]
        return [*lines, *([(truncate(clean(text), width), palette.text)] for text in texts)]

    def prepare(self, size: object) -> None:
        self._content = self.content(max(self.size.width - 2, 1))
        self._top = 0


def describe_certainty(account: Account) -> str:
    """Say first that the change of a step is no chance; the headline itself says where it may be, or cannot be told."""
    return "beyond the noise: " if account.delta and account.is_within_noise is False else ""


class DiffTitle(PaintedWidget):
    """Show "A name → B name" on the left and the legend on the right, which is never cut."""

    DEFAULT_CSS = "DiffTitle { height: 1; width: 100%; }"

    def __init__(self, label_a: str, label_b: str) -> None:
        super().__init__(id="diff-title")
        self._labels = clean(label_a), clean(label_b)

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        room = width - cell_len(LEGEND) - 4
        names = room - cell_len("A  → B ")
        shorter = min(names // 2, min(map(cell_len, self._labels)))
        cells = [max(min(cell_len(label), names - shorter), shorter) for label in self._labels]
        runs: list[TextRun] = [(" ", palette.text)]
        for letter, label, size, arrow in zip("AB", self._labels, cells, (" → ", ""), strict=True):
            runs += [(f"{letter} ", palette.heading), (_keep_end(label, size), palette.strong), (arrow, palette.muted)]
        used = sum(cell_len(text) for text, _ in runs)
        gap = " " * max(width - used - cell_len(LEGEND) - 1, 1)
        return build_strip([*runs, (gap, palette.text), (LEGEND, palette.muted)], width, palette.text)


def _keep_end(label: str, cells: int) -> str:
    """Shorten a label from its beginning: its end says which trace it is."""
    if cell_len(label) <= cells:
        return label
    return truncate("…" + label[max(len(label) - cells + 1, 0) :], max(cells, 0))
