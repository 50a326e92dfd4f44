"""What the mouse does over the lanes and the ruler, as in Perfetto: the wheel, and a drag from where it began.

Some terminals keep ctrl+wheel (text size) or shift+drag (their own selection) for themselves, so alt does the same as
ctrl and shift.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.message import Message

from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.painted_widget import PaintedWidget


@dataclass
class EventPicked(Message):
    """A click on a lane, or on its label."""

    event: int  # -1: no event there
    lane: int  # -1: not on a lane
    fit: bool = False  # a double click


@dataclass
class ZoomAsked(Message):
    """The wheel was turned with ctrl or alt."""

    at: float  # the time that keeps its column on the screen
    steps: int  # positive zooms in


@dataclass
class PanAsked(Message):
    """A horizontal wheel was turned, or the wheel with shift, or the lanes were dragged with it."""

    cells: int


@dataclass
class ScrollAsked(Message):
    """The wheel was turned."""

    lines: int


@dataclass
class RangeDragged(Message):
    """The mouse marks a range; `done` when the button is released."""

    start: float
    end: float
    done: bool

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, RangeDragged) and not message.done


class DragMessage(Message):
    """A message that replaces the one that the same drag posted before it; `is_continued`: there is one."""

    is_continued: bool

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, type(self)) and message.is_continued


@dataclass
class JumpAsked(DragMessage):
    """A click on the overview, or a drag of its visible part: centre the viewport on this time."""

    at: float
    is_continued: bool = False


MIN_DRAG_CELLS = 2  # a press that moves by fewer cells is a click, not a drag
WHEEL_LINES = 3  # lines by which one notch of the wheel scrolls the lanes
WHEEL_PAN_DIVISOR = 16  # one notch of the wheel with shift pans by the screen width divided by this

MIDDLE_BUTTON = 2


@dataclass(slots=True)
class Drag:
    """A drag along the time axis. `first`: the column it began in; `last`: the latest column; both in cells."""

    first: int
    last: int
    pans: bool = False
    is_moved: bool = False  # far enough not to be a click

    @classmethod
    def begin(cls, event: events.MouseDown, column: int) -> Drag:
        """Start a drag: it pans with shift, ctrl, alt or the middle button, else it marks a range."""
        with_key = event.shift or event.ctrl or event.meta or event.button == MIDDLE_BUTTON
        return cls(column, column, pans=with_key)

    def move_to(self, column: int, viewport: Viewport, done: bool = False) -> Message | None:
        """Move to a column; return what to post: the range so far, or by how much to pan. None for a click."""
        self.is_moved = self.is_moved or abs(column - self.first) >= MIN_DRAG_CELLS
        if not self.is_moved:
            return None
        before, self.last = self.last, column
        if self.pans:
            return PanAsked(before - column) if column != before else None
        first, last = sorted((self.first, min(max(column, 0), viewport.width - 1)))
        return RangeDragged(viewport.time(first), viewport.time(last + 1), done)


class TimeWheel(PaintedWidget):
    """A widget over time whose wheel scrolls the lanes, zooms at the pointer (ctrl, alt) or pans (shift)."""

    _viewport: Viewport | None = None
    _gutter_width = 0
    _drag: Drag | None = None

    def _move_drag(self, column: int, done: bool = False) -> None:
        """Post what a drag asks for when it moves to a column of the lanes, if one goes on."""
        if self._drag is not None and self._viewport is not None:
            message = self._drag.move_to(column, self._viewport, done)
            if message is not None:
                self.post_message(message)

    def wheel_column(self, x: int) -> int:
        """Return the column of the lanes to zoom at, for a cell of this widget."""
        return x

    def _post_wheel(self, event: events.MouseEvent) -> None:
        event.stop()
        event.prevent_default()
        viewport = self._viewport
        if viewport is None:
            return
        backwards = isinstance(event, (events.MouseScrollUp, events.MouseScrollLeft))
        direction = -1 if backwards else 1
        message: Message = ScrollAsked(direction * WHEEL_LINES)
        if event.ctrl or event.meta:
            message = ZoomAsked(viewport.middle(self.wheel_column(event.x)), -direction)
        elif event.shift or isinstance(event, (events.MouseScrollLeft, events.MouseScrollRight)):
            message = PanAsked(direction * max(1, viewport.width // WHEEL_PAN_DIVISOR))
        self.post_message(message)

    on_mouse_scroll_down = on_mouse_scroll_up = on_mouse_scroll_left = on_mouse_scroll_right = _post_wheel
