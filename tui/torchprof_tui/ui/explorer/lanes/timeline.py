"""The lanes: bars of events over time. Paints what it is given and says where the mouse was; decides nothing.

What a frame needs (level-of-detail cells, characters, styles) is worked out when a frame is painted, never when
a key is pressed, so keys that arrive faster than frames cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.trace.core.arrays import I32, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.level_of_detail import Cells, counter_cells
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.event_styles import BLANK, GRID, Form, style_number
from torchprof_tui.ui.common.messages import (
    EventPicked,
    LanesResized,
    PanAsked,
    PointerMoved,
    RangeDragged,
    ZoomAsked,
)
from torchprof_tui.ui.common.name_display import Names
from torchprof_tui.ui.common.painted_widget import Painted
from torchprof_tui.ui.explorer.lanes.bar_painter import Decoration, Dressed, Texts, dress, levels, strips
from torchprof_tui.ui.explorer.lanes.event_labels import EventNotes
from torchprof_tui.ui.explorer.lanes.gap_labels import GapLabels
from torchprof_tui.ui.explorer.lanes.lane_frame import Frame, cpu_only, lanes_in_one_line, look
from torchprof_tui.ui.explorer.lanes.launch_line import End, link_cells
from torchprof_tui.ui.explorer.lanes.screen_lines import Content, LaneLines, Line

DRAG_CELLS = 2
"""A press that moves less than this is a click: hands tremble."""

LABELS_KEPT = 20_000
"""Texts of bars remembered between frames; a long walk through a big trace must not keep them all."""

WHEEL_SHARE = 16
"""A wheel's notch pans by this part of the screen."""

LIT_FORCED = 400
"""So many lit events are drawn even where something longer fills their cell; more of them are seen anyway."""

CPU_ONLY = " no GPU work recorded"
"""In the line of a rank beside others that have some."""

PICK_CELLS = 1
"""A click this close to an event means it: a bar of one cell is hard to hit."""


_LINK = style_number(Kind.KERNEL, Form.SHADE)


class Timeline(Painted):
    """Set `arrange`, `select`, `lit`, `found`, `mark`; it repaints the lines that change."""

    DEFAULT_CSS = "Timeline { height: 1fr; width: 1fr; }"

    def __init__(self, trace: Trace, names: Names, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.trace = trace
        self._names = names
        self._viewport: Viewport | None = None
        self._layout = LaneLines()
        self._top = 0
        self._lines: tuple[Line, ...] = ()  # what the last frame showed
        self._counters = {counter.lane: counter for counter in trace.counters}
        self._decoration = Decoration()
        self._marked: tuple[int, int] | None = None
        self._frame: Frame | None = None
        self._labels: dict[tuple[int, int, int], str] = {}
        self._link: tuple[int, int] | None = None
        self._link_cells: dict[int, list[tuple[int, str]]] = {}
        self._gap_labels: GapLabels | None = None
        self._notes: EventNotes | None = None
        self._labelled = True
        self._gap_cells: dict[int, list[tuple[int, str]]] = {}  # by lane
        self._note_cells: dict[tuple[int, int], list[tuple[int, str]]] = {}  # by lane and row
        self._pressed: int | None = None
        self._dragging = False

    # -- what the screen sets ------------------------------------------------------------------------------

    def show(self, viewport: Viewport, layout: LaneLines, top: int) -> None:
        """The time to show, and the lines from `top` on: as many as there is room for when a frame is painted."""
        if viewport != self._viewport or layout is not self._layout or top != self._top:
            self._viewport, self._layout, self._top = viewport, layout, top
            self.repaint()

    def select(self, event: int) -> None:
        """The selected event, -1 for none."""
        before = self._decoration.selected
        if event != before:
            self._decoration = replace(self._decoration, selected=event)
            self.repaint(self.lines_of([before, event]))

    @property
    def lit(self) -> I32:
        """Events that belong together with the selected one: int32, ascending."""
        return self._decoration.lit

    @lit.setter
    def lit(self, lit: Iterable[int]) -> None:
        after = np.unique(np.fromiter(lit, dtype=np.int32))
        before = self._decoration.lit
        if not np.array_equal(before, after):
            self._decoration = replace(self._decoration, lit=after)
            changed = np.setxor1d(before, after)
            self.repaint(self.lines_of(changed.tolist()) if len(changed) <= LIT_FORCED else None)

    def link(self, launch: int, work: int) -> None:
        """Draw the line from a launch to its GPU work; -1 for none."""
        after = (launch, work) if launch >= 0 and work >= 0 else None
        if after != self._link:
            before = self._link_cells
            self._link = after
            self._link_cells = {} if self._frame is None else self._draw_link(self._frame, self.size.height)
            self.repaint(sorted({*before, *self._link_cells}))

    def annotate(self, labels: GapLabels, notes: EventNotes) -> None:
        """Why the GPUs were idle is known now, and what single events have to say."""
        if (labels, notes) != (self._gap_labels, self._notes):
            self._gap_labels, self._notes = labels, notes
            self.repaint()

    def toggle_labels(self) -> bool:
        """Show or hide them, and kernels' classes; whether they are shown now."""
        self._labelled = not self._labelled
        self._labels.clear()
        self.repaint()
        return self._labelled

    def show_found(self, found: Bool | None) -> None:
        """Names that a search found, bool[names]; None for no search."""
        if found is not self._decoration.found:
            self._decoration = replace(self._decoration, found=found)
            self.repaint()

    def mark(self, marked: tuple[int, int] | None) -> None:
        """A marked range, ns."""
        if marked != self._marked:
            self._marked = marked
            self.repaint()

    def lines_of(self, chosen: Iterable[int]) -> list[int]:
        """The screen lines on which these events lie."""
        wanted = {
            (int(self.trace.lane[event]), int(self.trace.row[event]))
            for event in chosen
            if 0 <= event < len(self.trace)
        }
        lanes = {lane for lane, _ in wanted}
        return [
            y
            for y, line in enumerate(self._lines)
            if (line.content is Content.ROW and (line.lane, line.row) in wanted)
            or not lanes.isdisjoint(lanes_in_one_line(self.trace, line))
        ]

    # -- painting ------------------------------------------------------------------------------------------

    def prepare(self, size: Size) -> None:
        if self._viewport is None or not size.width:
            self._frame = None
            return
        viewport = self._viewport if self._viewport.width == size.width else self._viewport.resize(size.width)
        lines = self._lines = tuple(self._layout.window(self._top, size.height))
        frame = self._frame
        if frame is None or frame.viewport != viewport or frame.lines != lines:
            frame = self._frame = look(self.trace, viewport, lines)
        self._link_cells = self._draw_link(frame, size.height)
        labels = self._gap_labels if self._labelled else None
        self._gap_cells = {} if labels is None else labels.cells(viewport)
        self._note_cells = {} if self._notes is None or not self._labelled else self._notes.cells(viewport)
        if len(self._labels) > LABELS_KEPT:
            self._labels.clear()

    def paint_lines(self, ys: Sequence[int], size: Size) -> list[Strip]:
        frame = self._frame
        if frame is None:
            return [self._blank(size.width)] * len(ys)
        with_events = [y for y in ys if y in frame.place]
        painted: dict[int, Strip] = {}
        if with_events:
            rows = np.array([frame.place[y] for y in with_events])
            chosen = Cells(frame.cells.event[rows], frame.cells.busy[rows], frame.cells.count[rows])
            self._force(frame, with_events, chosen)
            decoration = replace(self._decoration, marked=self._marked_cells(frame.viewport))
            dressed = dress(self.trace, chosen, frame.viewport.ns_per_cell, decoration)
            for row, y in enumerate(with_events):
                shown = frame.lines[y]
                if shown.first:
                    _write(dressed, row, self._gap_cells.get(shown.lane, ()), BLANK)
                if cpu_only(self.trace, shown):
                    _write(dressed, row, enumerate(CPU_ONLY[: size.width]), BLANK)
                if shown.content is Content.ROW:
                    _write(dressed, row, self._note_cells.get((shown.lane, shown.row), ()), BLANK)
                _write(dressed, row, self._link_cells.get(y, ()), _LINK)
            texts = Texts(self._names, self._labels, self._labelled, self._notes if self._labelled else None)
            made = strips(dressed, self.trace, texts, self.palette.cells)
            painted = dict(zip(with_events, made, strict=True))
        return [painted[y] if y in painted else self._other_line(y, frame, size.width) for y in ys]

    def _force(self, frame: Frame, ys: Sequence[int], chosen: Cells) -> None:
        """What is selected or lit must be seen, even in a cell that something longer fills."""
        view, trace = frame.viewport, self.trace
        lit = self._decoration.lit if len(self._decoration.lit) <= LIT_FORCED else self._decoration.lit[:0]
        standing_out = np.append(lit, np.int32(self._decoration.selected))
        standing_out = standing_out[standing_out >= 0]
        if not len(standing_out):
            return
        start = trace.start[standing_out]
        on_screen = (start < view.t1) & (start + np.maximum(trace.duration[standing_out], 1) > view.t0)
        place = {(frame.lines[y].lane, frame.lines[y].row): row for row, y in enumerate(ys)}
        folded = {lane: row for row, y in enumerate(ys) for lane in lanes_in_one_line(self.trace, frame.lines[y])}
        for event in standing_out[on_screen].tolist():
            lane = int(trace.lane[event])
            row = folded.get(lane, place.get((lane, int(trace.row[event]))))
            if row is None:
                continue
            first = max(view.cell(int(trace.start[event])), 0)
            last = min(view.cell(int(trace.start[event]) + max(int(trace.duration[event]), 1) - 1), view.width - 1)
            chosen.event[row, first : last + 1] = event

    def _marked_cells(self, viewport: Viewport) -> tuple[int, int] | None:
        if self._marked is None:
            return None
        first, last = viewport.cell(self._marked[0]), viewport.cell(max(self._marked[1] - 1, self._marked[0]))
        return max(first, -1), min(last + 1, viewport.width + 1)

    def _other_line(self, y: int, frame: Frame, width: int) -> Strip:
        line = frame.lines[y] if y < len(frame.lines) else None
        if line is None or line.content is Content.RANK:  # a rank that recorded nothing
            return self._blank(width)
        if line.content is Content.COUNTER:
            return self._counter(line, frame.viewport)
        rule, grid, link = (
            "━" if line.content is Content.RULE else "─",
            self.palette.cells[GRID],
            self.palette.cells[_LINK],
        )
        segments, drawn = [], 0
        for x, glyph in sorted(self._link_cells.get(y, ())):
            segments += [Segment(rule * (x - drawn), grid), Segment(glyph, link)]
            drawn = x + 1
        return Strip([*segments, Segment(rule * (width - drawn), grid)], width)

    def _draw_link(self, frame: Frame, height: int) -> dict[int, list[tuple[int, str]]]:
        """The cells of the link's line, by screen line."""
        if self._link is None:
            return {}
        launch, work = (self._end(event, frame.viewport, height) for event in self._link)
        found: dict[int, list[tuple[int, str]]] = {}
        for (y, x), glyph in link_cells(launch, work, frame.taken(height), frame.ruled()).items():
            found.setdefault(y, []).append((x, glyph))
        return found

    def _end(self, event: int, viewport: Viewport, height: int) -> End:
        lane, row = int(self.trace.lane[event]), int(self.trace.row[event])
        place = self._layout.place(lane, row)
        above = place is not None and 0 <= place < self._top
        return End(
            viewport.cell(int(self.trace.start[event])),
            self._layout.line_on_screen(lane, row, self._top, height),
            above,
        )

    def _counter(self, line: Line, viewport: Viewport) -> Strip:
        """Over the counter's own range in the whole trace, zero among it, so that panning does not rescale it."""
        counter = self._counters.get(line.lane)
        if counter is None or not len(counter.values):
            return self._blank(viewport.width)
        least, most = min(0.0, float(counter.values.min())), float(counter.values.max())
        high = counter_cells(counter, viewport.t0, viewport.t1, viewport.width).high
        return Strip([Segment(levels(high, least, most), self.palette.ink(Kind.MEMORY))], viewport.width)

    def _blank(self, width: int) -> Strip:
        return Strip([Segment(" " * width, self.palette.cells[BLANK])], width)

    # -- the mouse -----------------------------------------------------------------------------------------

    def event_at(self, x: int, y: int) -> int:
        """The event drawn at a cell or next to it, -1 for none."""
        frame = self._frame
        if frame is None or y not in frame.place:
            return -1
        row = frame.cells.event[frame.place[y]]
        for distance in range(PICK_CELLS + 1):
            for place in (x - distance, x + distance):
                if 0 <= place < len(row) and row[place] >= 0:
                    return int(row[place])
        return -1

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.button == 1:
            self._pressed = event.x
            self._dragging = False
            self.capture_mouse()
            event.stop()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._viewport is None:
            return
        if self._pressed is None:
            self.post_message(PointerMoved(self._viewport.middle(event.x)))
        elif self._dragging or abs(event.x - self._pressed) >= DRAG_CELLS:
            self._dragging = True
            self._drag(event.x, done=False)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._pressed is None or self._viewport is None:
            return
        self.release_mouse()
        if self._dragging:
            self._drag(event.x, done=True)
        else:
            lane = self._lines[event.y].lane if 0 <= event.y < len(self._lines) else -1
            self.post_message(EventPicked(self.event_at(event.x, event.y), lane))
        self._pressed, self._dragging = None, False
        event.stop()

    def on_resize(self) -> None:
        super().on_resize()
        self.post_message(LanesResized(self.size.width, self.size.height))

    def on_leave(self) -> None:
        self.post_message(PointerMoved(None))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -1)

    def on_mouse_scroll_left(self, event: events.MouseScrollLeft) -> None:
        self._wheel(event, -1, sideways=True)

    def on_mouse_scroll_right(self, event: events.MouseScrollRight) -> None:
        self._wheel(event, 1, sideways=True)

    def _wheel(self, event: events.MouseEvent, direction: int, sideways: bool = False) -> None:
        event.stop()
        event.prevent_default()
        if self._viewport is None:
            return
        if sideways or event.shift or event.ctrl or event.meta:
            self.post_message(PanAsked(direction * max(1, self._viewport.width // WHEEL_SHARE)))
        else:
            self.post_message(ZoomAsked(self._viewport.middle(event.x), -direction))

    def _drag(self, x: int, done: bool) -> None:
        if self._viewport is None or self._pressed is None:
            return
        first, last = sorted((self._pressed, min(max(x, 0), self._viewport.width - 1)))
        self.post_message(RangeDragged(self._viewport.time(first), self._viewport.time(last + 1), done))


def _write(dressed: Dressed, row: int, cells: Iterable[tuple[int, str]], style: int) -> None:
    """Characters into the cells of a row that show no event."""
    for x, glyph in cells:
        if dressed.event[row, x] < 0:
            dressed.glyph[row, x] = ord(glyph)
            dressed.style[row, x] = style
