"""The timeline widget: bars of events over time, painted from the state it is given; mouse actions become messages.

The level-of-detail cells, characters and styles of a frame are computed when it is painted, never when a key is
pressed, so keys that arrive faster than frames cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from torchprof_tui.trace.core.arrays import I32, Bool, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.cells import Cells
from torchprof_tui.trace.query.viewport import Viewport, compute_highest_values
from torchprof_tui.ui.common.event_styles import BLANK, GRID, CellForm, style_index
from torchprof_tui.ui.common.name_display import DisplayNames, truncate
from torchprof_tui.ui.common.painted_widget import LatestMessage
from torchprof_tui.ui.lanes.bar_painter import (
    BarTexts,
    Decoration,
    PathCells,
    StyledCells,
    build_strips,
    draw_level_graph,
    style_cells,
)
from torchprof_tui.ui.lanes.event_labels import EventNotes, GapLabels
from torchprof_tui.ui.lanes.lane_frame import (
    LaneFrame,
    build_frame,
    find_lines_of_events,
    force_events,
    is_cpu_only,
    select_path_cells,
)
from torchprof_tui.ui.lanes.lane_gutter import split_heading
from torchprof_tui.ui.lanes.launch_line import LinkEnd, route_link
from torchprof_tui.ui.lanes.mouse_gestures import Drag, EventPicked, TimeWheel
from torchprof_tui.ui.lanes.screen_lines import LaneLines, LineContent, ScreenLine
from torchprof_tui.ui.lanes.step_labels import SEAM, find_seam_time, list_seam_columns

if TYPE_CHECKING:
    from torchprof_tui.analysis.critical_path.segments import PathRows


@dataclass
class SeamPicked(Message):
    """A click on a seam of folded repeats, at the time that has its place there."""

    at: int


@dataclass
class PointerMoved(LatestMessage):
    """The mouse moved over the lanes (to time `at`) or left them (None)."""

    at: float | None


@dataclass
class LanesResized(LatestMessage):
    """The lanes area was resized; the size is in cells."""

    width: int
    height: int


MAX_CACHED_LABELS = 20_000
"""Texts of bars that are cached between frames; beyond it the cache is cleared, to bound its memory."""

MAX_FORCED_HIGHLIGHTS = 400
"""Maximum number of highlighted events that are drawn over longer events in the same cell; more are visible anyway."""

CPU_ONLY_TEXT = " no GPU work recorded"  # text in the line of a rank without GPU work, where other ranks have some
PICK_RADIUS_CELLS = 1  # a click this close to an event selects it, because a bar of one cell is hard to hit

_LINK_STYLE = style_index(Kind.KERNEL, CellForm.SHADE)


class Timeline(TimeWheel):
    """Paint the lanes. Each setter compares its value and repaints only the lines that change."""

    DEFAULT_CSS = "Timeline { height: 1fr; width: 1fr; }"

    def __init__(self, trace: Trace, names: DisplayNames, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.trace = trace
        self._names = names
        self._lane_lines = LaneLines()
        self._top = 0
        self._painted_lines: tuple[ScreenLine, ...] = ()  # those of the last frame
        self._counters = {counter.lane: counter for counter in trace.counters}
        self._decoration = Decoration()
        self._marked_range: tuple[int, int] | None = None
        self._path: PathRows | None = None
        self._path_cells: PathCells | None = None  # as the rows of the frame's cells
        self._frame: LaneFrame | None = None
        self._label_cache: dict[tuple[int, int, int], str] = {}
        self._link: tuple[int, int] | None = None
        self._link_cells: dict[int, list[tuple[int, str]]] = {}
        self._gap_labels: GapLabels | None = None
        self._event_notes: EventNotes | None = None
        self._labels_visible = True
        self._gap_cells: dict[int, list[tuple[int, str]]] = {}  # by lane
        self._note_cells: dict[tuple[int, int], list[tuple[int, str]]] = {}  # by lane and row
        self._was_dragged = False  # the last press: then its end is no click
        self._clicked_event = -1

    def show_lines(self, viewport: Viewport, lane_lines: LaneLines, top: int) -> None:
        """Set the visible time, the lines, and the scroll offset."""
        if viewport != self._viewport or lane_lines is not self._lane_lines or top != self._top:
            self._viewport, self._lane_lines, self._top = viewport, lane_lines, top
            self.repaint()

    def select_event(self, event: int) -> None:
        """Set the selected event, -1 for none."""
        before = self._decoration.selected
        if event != before:
            self._decoration = replace(self._decoration, selected=event)
            self._repaint_events([before, event])

    @property
    def highlighted(self) -> I32:
        """The highlighted events, int32[k] ascending: the selected event's chain, or a pattern's evidence."""
        return self._decoration.highlighted

    @highlighted.setter
    def highlighted(self, events: Iterable[int]) -> None:
        after = sorted_unique(np.fromiter(events, dtype=np.int32))
        before = self._decoration.highlighted
        if not np.array_equal(before, after):
            self._decoration = replace(self._decoration, highlighted=after)
            if abs(len(after) - len(before)) > MAX_FORCED_HIGHLIGHTS:  # at least as many differ
                self.repaint()
                return
            changed = np.setxor1d(before, after, assume_unique=True)
            if len(changed) <= MAX_FORCED_HIGHLIGHTS:
                self._repaint_events(changed.tolist())
            else:
                self.repaint()

    def show_link(self, launch: int, work: int) -> None:
        """Draw the line from a launch to its GPU work, or no line where either is -1."""
        after = (launch, work) if launch >= 0 and work >= 0 else None
        if after != self._link:
            before = self._link_cells
            self._link = after
            self._link_cells = {} if self._frame is None else self._draw_link(self._frame, self.size.height)
            self.repaint(sorted({*before, *self._link_cells}))

    def set_annotations(self, labels: GapLabels, notes: EventNotes) -> None:
        """Set the labels of idle gaps and the notes on events."""
        if (labels, notes) != (self._gap_labels, self._event_notes):
            self._gap_labels, self._event_notes = labels, notes
            self.repaint()

    def toggle_labels(self) -> bool:
        """Show or hide gap labels, notes and kernel classes; return whether they are shown now."""
        self._labels_visible = not self._labels_visible
        self._label_cache.clear()
        self.repaint()
        return self._labels_visible

    def show_matches(self, matched_names: Bool | None) -> None:
        """Set the names that match the search, bool[names]; None for no search."""
        if matched_names is not self._decoration.matched_names:
            self._decoration = replace(self._decoration, matched_names=matched_names)
            self.repaint()

    def show_marked_range(self, marked_range: tuple[int, int] | None) -> None:
        """Set the marked range, ns; None for none."""
        if marked_range != self._marked_range:
            self._marked_range = marked_range
            self.repaint()

    def show_path(self, path: PathRows | None) -> None:
        """Dim everything but this critical path; None for no path."""
        if path is not self._path:
            self._path = path
            self.repaint()

    def find_event_lines(self, events: Iterable[int]) -> list[int]:
        """Return the screen lines of the last frame on which these events are drawn."""
        return find_lines_of_events(self.trace, self._painted_lines, events)

    def _repaint_events(self, events: Iterable[int]) -> None:
        self.repaint(self.find_event_lines(events))

    def prepare(self, size: Size) -> None:
        if self._viewport is None or not size.width:
            self._frame = None
            return
        viewport = self._viewport if self._viewport.width == size.width else self._viewport.resize(size.width)
        lines = self._painted_lines = tuple(self._lane_lines.visible_lines(self._top, size.height))
        frame = self._frame
        if frame is None or frame.viewport != viewport or frame.lines != lines:
            frame = self._frame = build_frame(self.trace, viewport, lines)
        self._path_cells = None if self._path is None else select_path_cells(self.trace, frame, self._path)
        self._link_cells = self._draw_link(frame, size.height)
        labels = self._gap_labels if self._labels_visible else None
        self._gap_cells = {} if labels is None else labels.draw_labels(viewport)
        notes = self._event_notes if self._labels_visible else None
        self._note_cells = {} if notes is None else notes.draw_notes(viewport)
        if len(self._label_cache) > MAX_CACHED_LABELS:
            self._label_cache.clear()

    def paint_lines(self, ys: Sequence[int], size: Size) -> list[Strip]:
        frame = self._frame
        if frame is None:
            return [self._blank_strip(size.width)] * len(ys)
        with_events = [y for y in ys if y in frame.row_by_line]
        painted: dict[int, Strip] = {}
        if with_events:
            rows = np.array([frame.row_by_line[y] for y in with_events])
            cells = Cells(frame.cells.event[rows], frame.cells.busy[rows], frame.cells.count[rows])
            self._force_highlights(frame, with_events, cells)
            path = self._path_cells
            decoration = replace(
                self._decoration,
                marked_cells=self._to_marked_cells(frame.viewport),
                path=None if path is None else PathCells(path.touched[rows], path.own[rows]),
            )
            styled = style_cells(self.trace, cells, frame.viewport.ns_per_cell, decoration)
            self.mark_cells(styled)
            seams = [(x, SEAM) for x in list_seam_columns(frame.viewport)]
            for row, y in enumerate(with_events):
                line = frame.lines[y]
                _write_glyphs(styled, row, seams, GRID)
                if line.is_first:
                    _write_glyphs(styled, row, self._gap_cells.get(line.lane, ()), BLANK)
                if is_cpu_only(self.trace, line):
                    _write_glyphs(styled, row, enumerate(CPU_ONLY_TEXT[: size.width]), BLANK)
                if line.content is LineContent.ROW:
                    _write_glyphs(styled, row, self._note_cells.get((line.lane, line.row), ()), BLANK)
                _write_glyphs(styled, row, self._link_cells.get(y, ()), _LINK_STYLE)
            notes = self._event_notes if self._labels_visible else None
            texts = BarTexts(self._names, self._label_cache, self._labels_visible, notes)
            strips = build_strips(styled, self.trace, texts, self.palette.cells)
            painted = dict(zip(with_events, strips, strict=True))
        return [painted[y] if y in painted else self._paint_eventless_line(y, frame, size.width) for y in ys]

    def mark_cells(self, styled: StyledCells) -> None:
        """Mark events in the cells of a frame; a subclass may. Nothing is marked here."""

    def _force_highlights(self, frame: LaneFrame, ys: Sequence[int], cells: Cells) -> None:
        """Show the selected and the highlighted events even in cells that a longer event fills."""
        highlighted = self._decoration.highlighted
        if len(highlighted) > MAX_FORCED_HIGHLIGHTS:
            highlighted = highlighted[:0]
        events = np.append(highlighted, np.int32(self._decoration.selected))
        events = events[events >= 0]
        if len(events):
            force_events(self.trace, frame, ys, cells, events)

    def _to_marked_cells(self, viewport: Viewport) -> tuple[int, int] | None:
        if self._marked_range is None:
            return None
        start, end = self._marked_range
        first, last = viewport.cell(start), viewport.cell(max(end - 1, start))
        return max(first, -1), min(last + 1, viewport.width + 1)

    def _paint_eventless_line(self, y: int, frame: LaneFrame, width: int) -> Strip:
        line = frame.lines[y] if y < len(frame.lines) else None
        if line is None or line.content is LineContent.RANK:  # a rank without events
            return self._blank_strip(width)
        if line.content is LineContent.COUNTER:
            return self._paint_counter(line, frame.viewport)
        rule = "━" if line.content is LineContent.RULE else "─"
        grid, link = self.palette.cells[GRID], self.palette.cells[_LINK_STYLE]
        is_heading = line.content is LineContent.HEADING and self.region.x > 0  # the labels are left of it
        rest = truncate(split_heading(self.trace, line.lane, self.region.x)[1], width) if is_heading else ""
        segments, drawn = [Segment(rest, self.palette.strong)], cell_len(rest)
        for x, glyph in sorted(each for each in self._link_cells.get(y, ()) if each[0] >= drawn):
            segments += [Segment(rule * (x - drawn), grid), Segment(glyph, link)]
            drawn = x + 1
        return Strip([*segments, Segment(rule * (width - drawn), grid)], width)

    def _draw_link(self, frame: LaneFrame, height: int) -> dict[int, list[tuple[int, str]]]:
        """Return (column, glyph) of the link line, by screen line."""
        if self._link is None:
            return {}
        ends: list[LinkEnd] = []
        for event in self._link:
            lane, row = int(self.trace.lane[event]), int(self.trace.row[event])
            index = self._lane_lines.line_index(lane, row)
            above = index is not None and 0 <= index < self._top
            y = self._lane_lines.screen_line_index(lane, row, self._top, height)
            ends.append(LinkEnd(frame.viewport.cell(int(self.trace.start[event])), y, above))
        cells: dict[int, list[tuple[int, str]]] = {}
        glyphs = route_link(ends[0], ends[1], frame.occupied_cells(height), frame.rule_lines())
        for (y, x), glyph in glyphs.items():
            cells.setdefault(y, []).append((x, glyph))
        return cells

    def _paint_counter(self, line: ScreenLine, viewport: Viewport) -> Strip:
        """Paint a counter, scaled to its range in the whole trace and 0, so that panning does not rescale it."""
        counter = self._counters.get(line.lane)
        if counter is None or not len(counter.values):
            return self._blank_strip(viewport.width)
        minimum, maximum = min(0.0, float(counter.values.min())), float(counter.values.max())
        high = compute_highest_values(counter, viewport)
        return Strip([Segment(draw_level_graph(high, minimum, maximum), self.palette.ink(Kind.MEMORY))], viewport.width)

    def _blank_strip(self, width: int) -> Strip:
        return Strip([Segment(" " * width, self.palette.cells[BLANK])], width)

    def event_at(self, x: int, y: int) -> int:
        """Return the event drawn at a cell or next to it, -1 for none."""
        frame = self._frame
        if frame is None or y not in frame.row_by_line:
            return -1
        row = frame.cells.event[frame.row_by_line[y]]
        for distance in range(PICK_RADIUS_CELLS + 1):
            for column in (x - distance, x + distance):
                if 0 <= column < len(row) and row[column] >= 0:
                    return int(row[column])
        return -1

    def on_mouse_down(self, event: events.MouseDown) -> None:
        event.stop()
        self._drag = Drag.begin(event, event.x)
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._drag is None and self._viewport is not None:
            self.post_message(PointerMoved(self._viewport.middle(event.x)))
        self._move_drag(event.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        event.stop()
        self.release_mouse()
        self._was_dragged = self._drag is not None and self._drag.is_moved
        if self._was_dragged:
            self._move_drag(event.x, done=True)
        self._drag = None

    def on_click(self, event: events.Click) -> None:
        """Select the event at the pointer; the second click of a double click fits the event of the first."""
        event.stop()
        if self._was_dragged or event.button != 1:
            return
        if event.chain > 1 and self._clicked_event >= 0:
            self.post_message(EventPicked(self._clicked_event, -1, fit=True))
            return
        lane = self._painted_lines[event.y].lane if 0 <= event.y < len(self._painted_lines) else -1
        self._clicked_event = self.event_at(event.x, event.y)
        hidden = -1 if self._viewport is None else find_seam_time(self._viewport, event.x)
        if self._clicked_event < 0 and hidden >= 0:
            self.post_message(SeamPicked(hidden))
            return
        self.post_message(EventPicked(self._clicked_event, lane))

    def on_resize(self) -> None:
        super().on_resize()
        self.post_message(LanesResized(self.size.width, self.size.height))

    def on_leave(self) -> None:
        self.post_message(PointerMoved(None))


def _write_glyphs(styled: StyledCells, row: int, cells: Iterable[tuple[int, str]], style: int) -> None:
    """Write (column, character) pairs into the cells of a row that show no event."""
    for x, glyph in cells:
        if styled.event[row, x] < 0:
            styled.glyph[row, x] = ord(glyph)
            styled.style[row, x] = style
