"""The two lines below the flame graph: the name and the time of the frame under the cursor."""

from __future__ import annotations

from rich.cells import cell_len
from textual.strip import Strip

from torchprof_tui.analysis.flame.flame_tree import FlameTree
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import PaintedWidget, build_strip
from torchprof_tui.ui.flame.icicle_layout import Box


class FrameLines(PaintedWidget):
    """Show the frame, or the rest, under the cursor."""

    DEFAULT_CSS = "FrameLines { height: 2; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._frame_name = ("", "")  # full, short
        self._numbers = ""

    def show_box(self, tree: FlameTree | None, box: Box | None, name: tuple[str, str]) -> None:
        """Show a box, whose node has the names (full, short)."""
        lines = (("", ""), "") if tree is None or box is None else (_name_box(box, name), describe_box(tree, box))
        if lines != (self._frame_name, self._numbers):
            self._frame_name, self._numbers = lines
            self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        full, short = self._frame_name
        text = (full if cell_len(full) <= width - 2 else short) if y == 0 else self._numbers
        style = self.palette.strong if y == 0 else self.palette.text
        return build_strip([(" ", self.palette.text), (truncate(text, width - 2), style)], width, self.palette.text)


def describe_box(tree: FlameTree, box: Box) -> str:
    """Describe the time of a frame: all of it and its own, with their shares of the scope, and its calls."""
    total = f"{format_duration(box.total_ns)}, {format_share(box.total_ns / tree.total)}"
    if box.merged:
        return f"{total} together · enter: zoom into them"
    own, count = int(tree.value_ns[box.node]), int(tree.count[box.node])
    own_text = f" · self {format_duration(own)}, {format_share(own / tree.total)}" if 0 < own < box.total_ns else ""
    calls = f" · {count:,} {'event' if count == 1 else 'events'}" if count else ""
    return f"{total}{own_text}{calls}"


def _name_box(box: Box, name: tuple[str, str]) -> tuple[str, str]:
    if not box.merged:
        return name
    frames = "1 frame" if box.merged == 1 else f"{box.merged:,} frames"
    text = f"{frames} too narrow to draw"
    return text, text
