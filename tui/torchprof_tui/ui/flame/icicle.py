"""The widgets of a flame graph: an icicle of frames, the outermost on top, with a cursor; below it the frame there."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from torchprof_tui.analysis.dispatch.frame_names import MODULE_CALL_PREFIX, FrameOrigin, parse_frame
from torchprof_tui.analysis.flame.flame_tree import FlameTree
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.ui.common.event_styles import CellForm, Emphasis, style_index
from torchprof_tui.ui.common.name_display import DisplayNames, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import (
    Lines,
    PaintedWidget,
    TextRun,
    build_strip,
    scroll_to_cursor,
    wrap_text,
)
from torchprof_tui.ui.flame.frame_search import FrameMatches
from torchprof_tui.ui.flame.icicle_layout import Box, IcicleLayout, Zoom, lay_out

FRAME_KINDS = {
    FrameOrigin.USER: Kind.ANNOTATION,
    FrameOrigin.LIBRARY: Kind.RUNTIME,
    FrameOrigin.INTERNAL: Kind.PROFILER,
}
"""Kinds in whose colours Python frames are painted: nearly all frames of a stack are of one kind.

Stacks hold no ops or runtime calls, whose colours differ most from the others.
"""

LEGEND = (
    ("your code", Kind.ANNOTATION), ("modules", Kind.OP), ("packages", Kind.RUNTIME),
    ("torch, Python", Kind.PROFILER), ("GPU", Kind.KERNEL),
)  # fmt: skip

REST_MARK = "░"  # fills the rest: frames that are too narrow to draw
ROWS_ABOVE_ZOOM = 3  # rows of callers that stay on screen above the frame that was zoomed into


@dataclass
class BoxPicked(Message):
    """A click on a box, which has the cursor now; `opened`: it had the cursor before."""

    opened: bool


class Icicle(PaintedWidget):
    """Paint a flame graph. `set_tree` and `show_zoom` change what is shown; the cursor is on a box of the layout."""

    DEFAULT_CSS = "Icicle { height: 1fr; }"
    WHEEL_LINES = 3

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.flame: FlameTree | None = None
        self.matches: FrameMatches | None = None
        self.zoom = Zoom()
        self.empty_text = ""
        self._names = DisplayNames([])
        self._labels: dict[int, str] = {}  # of GPU work, by name
        self._boxes = IcicleLayout(self.zoom)
        self._frame_kinds: dict[int, int] = {}  # of Python frames, by name
        self._node = 0  # the node of the cursor, or the first one of its rest
        self._depth = 0
        self._index = 0
        self._top = 0
        self._empty_lines: Lines = []

    def set_tree(self, tree: FlameTree | None, labels: dict[int, str], empty_text: str) -> None:
        """Show another tree, or a text where there is none, with the cursor on the root."""
        self.flame, self._labels, self.empty_text = tree, labels, empty_text
        self._names = DisplayNames([] if tree is None else tree.names)
        self._frame_kinds = {}
        self.matches, self._top = None, 0
        self.show_zoom(Zoom(), 0)

    def show_zoom(self, zoom: Zoom, node: int) -> None:
        """Zoom, with the cursor on a node or on the box around it."""
        self.zoom, self._node = zoom, node
        if self.flame is not None:
            above = int(self.flame.depth[zoom.node]) + (zoom.first_child >= 0)
            self._top = max(above - ROWS_ABOVE_ZOOM, 0)
        self._update_layout()

    def show_matches(self, matches: FrameMatches | None) -> None:
        self.matches = matches
        self.repaint()

    @property
    def has_frames(self) -> bool:
        """Return whether there is any time to show."""
        return self.flame is not None and self.flame.total > 0

    @property
    def box(self) -> Box | None:
        rows = self._boxes.rows
        return rows[self._depth][self._index] if self.has_frames and rows else None

    def label(self, node: int) -> tuple[str, str]:
        """Return (the full name, the short name) of a node, both cleaned."""
        assert self.flame is not None
        index = int(self.flame.name[node])
        full, short = self._names[index]
        return full, self._labels.get(index, short)

    def label_of_name(self, index: int) -> str:
        """Return what is shown in place of a name: the label of GPU work, else the short name."""
        return self._labels.get(index) or self._names[index][1]

    def _update_layout(self) -> None:
        if self.flame is not None:
            self._boxes = lay_out(self.flame, self.zoom, max(self.size.width, 1))
            self._depth, self._index = self._boxes.find_box(self.flame, self._node)
        self._scroll_to_cursor()
        self.repaint()

    def _scroll_to_cursor(self) -> None:
        self._top = scroll_to_cursor(self._top, self._depth, max(self.size.height, 1), len(self._boxes.rows))

    def on_resize(self) -> None:
        self._update_layout()

    def move_to(self, depth: int, index: int) -> bool:
        """Move the cursor to a box. Returns whether it moved."""
        if (depth, index) == (self._depth, self._index):
            return False
        rows, top = (self._depth, depth), self._top
        self._depth, self._index = depth, index
        self._node = self._boxes.rows[depth][index].node
        self._scroll_to_cursor()
        self.repaint([row - top for row in rows] if self._top == top else None)
        return True

    def move_up(self) -> bool:
        """Move to the caller; False at the root."""
        if self._depth == 0 or self.flame is None:
            return False
        return self.move_to(*self._boxes.find_box(self.flame, int(self.flame.parent[self._node])))

    def move_down(self) -> bool:
        """Move to the heaviest frame below; False where there is none."""
        child = self._boxes.find_first_child(self._depth, self._index)
        return child >= 0 and self.move_to(self._depth + 1, child)

    def move_beside(self, distance: int) -> bool:
        """Move along the row, to its ends at most."""
        last = len(self._boxes.rows[self._depth]) - 1
        return self.move_to(self._depth, min(max(self._index + distance, 0), last))

    def move_to_node(self, node: int) -> None:
        """Move to a node, and zoom where it is not drawn as a box of its own."""
        assert self.flame is not None
        if not self._is_drawn(node):
            self.zoom = Zoom()
            self._node = node
            self._update_layout()
        if not self._is_drawn(node):
            self.zoom = Zoom(int(self.flame.parent[node]))
            self._update_layout()
        if not self._is_drawn(node):
            self.show_zoom(Zoom(self.zoom.node, node), node)
        depth, index = self._boxes.find_box(self.flame, node)
        self._node = node
        self.move_to(depth, index)

    def _is_drawn(self, node: int) -> bool:
        assert self.flame is not None
        depth, index = self._boxes.find_box(self.flame, node)
        box = self._boxes.rows[depth][index]
        return box.node == node and not box.merged

    def prepare(self, size: Size) -> None:
        self._empty_lines = wrap_text(self.empty_text, size.width - 4, self.palette.text) if self.empty_text else []

    def paint(self, y: int, width: int) -> Strip:
        blank = self.palette.text
        if not self.has_frames:
            has_text = 0 <= y - 1 < len(self._empty_lines)
            return build_strip([("  ", blank), *self._empty_lines[y - 1]] if has_text else [], width, blank)
        depth = self._top + y
        if depth >= len(self._boxes.rows):
            return build_strip([], width, blank)
        runs: list[TextRun] = []
        used = 0
        for index, box in enumerate(self._boxes.rows[depth]):
            if box.x > used:
                runs.append((" " * (box.x - used), blank))
            runs.append(self._paint_box(box, (depth, index) == (self._depth, self._index)))
            used = box.x + box.width
        return build_strip(runs, width, blank)

    def _paint_box(self, box: Box, selected: bool) -> TextRun:
        assert self.flame is not None
        if box.merged:
            text = f"{REST_MARK}{box.merged:,} more" if box.width > 8 + len(str(box.merged)) else ""
            mark = "▶" if selected and not text else ""
            return (mark + text).ljust(box.width, REST_MARK), self._select_style(box, selected)
        name, width = int(self.flame.name[box.node]), box.width - 1
        if width < 2:
            text = ""
        elif int(self.flame.kind[box.node]) in GPU_WORK and name in self._labels:
            text = truncate(self._labels[name], width)
        else:
            text = self._names.fit_name(name, width)
        text = ("▶" if selected else "▏") + text
        return text + " " * (box.width - cell_len(text)), self._select_style(box, selected)

    def _select_style(self, box: Box, selected: bool) -> Style:
        assert self.flame is not None
        matches = self.matches
        if matches is None:
            is_match = False
        elif box.merged:
            is_match = matches.has_match(box.node, box.last)
        else:
            is_match = bool(matches.mask[box.node])
        emphasis = Emphasis.SELECTED if selected else Emphasis.MATCHED if is_match else Emphasis.NORMAL
        if box.merged and emphasis is Emphasis.NORMAL:
            return self.palette.muted
        form = CellForm.SHADE if box.merged or box.above_zoom else CellForm.BAR
        return self.palette.cells[int(style_index(self._choose_kind(box.node), form, emphasis))]

    def _choose_kind(self, node: int) -> int:
        """Choose the kind whose colour a node has: of a Python frame by who wrote its code."""
        assert self.flame is not None
        kind, name = int(self.flame.kind[node]), int(self.flame.name[node])
        if kind != Kind.PYTHON:
            return kind
        if name not in self._frame_kinds:
            text = self.flame.names[name]
            frame = parse_frame(text)
            is_module = text.startswith(MODULE_CALL_PREFIX)
            origin = frame.origin if frame is not None else FrameOrigin.INTERNAL
            self._frame_kinds[name] = Kind.OP if is_module else FRAME_KINDS[origin]
        return self._frame_kinds[name]

    def on_click(self, event: events.Click) -> None:
        event.stop()
        depth = self._top + event.y
        index = self._boxes.find_at(depth, event.x) if self.has_frames else -1
        if index >= 0:
            self.post_message(BoxPicked(opened=not self.move_to(depth, index)))

    def scroll_lines(self, count: int) -> None:
        self._top = max(min(self._top + count, len(self._boxes.rows) - self.size.height), 0)
        self.repaint()


class FrameLines(PaintedWidget):
    """Show the frame, or the rest, under the cursor."""

    DEFAULT_CSS = "FrameLines { height: 2; }"

    _frame_name = ("", "")  # full, short
    _numbers = ""
    _has_legend = False

    def show_box(self, tree: FlameTree | None, box: Box | None, name: tuple[str, str]) -> None:
        """Show a box, whose node has the names (full, short)."""
        lines = ("", ""), ""
        if tree is not None and box is not None:
            if box.merged:
                frames = "1 frame" if box.merged == 1 else f"{box.merged:,} frames"
                name = (f"{frames} too narrow to draw",) * 2
            lines = name, describe_box(tree, box)
        has_legend = tree is not None and bool((tree.kind == Kind.PYTHON).any())
        if (*lines, has_legend) != (self._frame_name, self._numbers, self._has_legend):
            (self._frame_name, self._numbers), self._has_legend = lines, has_legend
            self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        full, short = self._frame_name
        text = (full if cell_len(full) <= width - 2 else short) if y == 0 else self._numbers
        palette = self.palette
        text = truncate(text, width - 2)
        runs: list[TextRun] = [(" ", palette.text), (text, palette.strong if y == 0 else palette.text)]
        legend = "".join(f"▌{label} " for label, _ in LEGEND)
        gap = width - 1 - cell_len(text) - cell_len(legend)
        if y and self._has_legend and gap >= 2:
            runs.append((" " * gap, palette.text))
            for label, kind in LEGEND:
                runs += [("▌", palette.ink(kind)), (f"{label} ", palette.muted)]
        return build_strip(runs, width, palette.text)


def describe_box(tree: FlameTree, box: Box) -> str:
    """Describe the time of a frame: all of it and its own, with their shares of the scope, and its calls."""
    total = f"{format_duration(box.total_ns)}, {format_share(box.total_ns / tree.total)}"
    if box.merged:
        return f"{total} together · enter: zoom into them"
    own, count = int(tree.value_ns[box.node]), int(tree.count[box.node])
    own_text = f" · self {format_duration(own)}, {format_share(own / tree.total)}" if 0 < own < box.total_ns else ""
    calls = f" · {count:,} {'event' if count == 1 else 'events'}" if count else ""
    return f"{total}{own_text}{calls}"
