"""What the screens of memory over time share: the keys of the time, a cursor, and devices."""

from __future__ import annotations

from collections import deque
from typing import ClassVar, Generic, TypeVar

from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.child_screen import MAX_VIEWS, ChildScreen
from torchprof_tui.ui.common.painted_widget import RowList
from torchprof_tui.ui.lanes.mouse_gestures import JumpAsked
from torchprof_tui.ui.lanes.view_state import LARGEST_ZOOM, PAN_DIVISOR, ZOOM_FACTOR

Device = TypeVar("Device")


class CurveScreen(ChildScreen, Generic[Device]):
    """A screen with a curve: `viewport` is the time on screen, `time` the cursor, ns, `device` what is shown of it.

    `NOUN`: what the curve covers. `WHOLE`: shown where all of it is on screen; `NOT_READ`: before it was read.
    `MOVES_CURSOR`: panning keeps the cursor on screen. `rows`: the list that the arrow keys act on.
    """

    NOUN: ClassVar[str]
    WHOLE: ClassVar[str]
    NOT_READ: ClassVar[str]
    MOVES_CURSOR: ClassVar[bool] = False
    rows: RowList

    def __init__(self, viewport: Viewport) -> None:
        super().__init__()
        self.viewport, self.time = viewport, viewport.t0
        self._views: deque[tuple[Viewport, int]] = deque(maxlen=MAX_VIEWS)
        self._devices: tuple[Device, ...] = ()
        self._number = 0
        self._problem = ""

    @property
    def device(self) -> Device | None:
        """The device that is shown; None until the memory was read, and where it cannot be."""
        return self._devices[self._number] if self._devices else None

    def _get_device(self) -> Device | None:
        """Return the device; None where there is none, and say so."""
        if self.device is None:
            self._status.show_message(self._problem or self.NOT_READ)
        return self.device

    def find_peak_time(self) -> int:
        raise NotImplementedError

    def refresh_view(self) -> None:
        """Show the viewport and the cursor, and ask for what the lists have there."""
        raise NotImplementedError

    def show_row(self) -> None:
        """Show what there is to say about the row under the cursor."""
        raise NotImplementedError

    def has_row(self) -> bool:
        """Return whether there is a row for a key to act on; say so where there is none."""
        return self._get_device() is not None

    def _show_view(self, viewport: Viewport, time: int, reason: str, is_jump: bool = False) -> None:
        """Show a viewport and a cursor, or say why that changes nothing; `backspace` returns from a jump."""
        if self._get_device() is None:
            return
        if (viewport, time) == (self.viewport, self.time):
            self._status.show_message(reason)
            return
        if is_jump:
            self._views.append((self.viewport, self.time))
        self.viewport, self.time = viewport, time
        self._status.show_message("")
        self.refresh_view()

    def _jump_to(self, time: int, reason: str) -> None:
        self._show_view(self.viewport.reveal(time, time + 1), time, reason, is_jump=True)

    def action_pan(self, tenths: int) -> None:
        view = self.viewport.pan_cells(tenths * max(1, self.viewport.width // PAN_DIVISOR))
        reason = self.WHOLE if view.is_whole else f"the {'end' if tenths > 0 else 'start'} of the {self.NOUN}"
        stays = not self.MOVES_CURSOR or view.t0 <= self.time < view.t1 or view == self.viewport
        self._show_view(view, self.time if stays else view.middle(view.width // 2), reason)

    def action_zoom(self, steps: int) -> None:
        time = min(max(self.time, self.viewport.t0), self.viewport.t1 - 1)
        reason = LARGEST_ZOOM if steps > 0 else self.WHOLE
        self._show_view(self.viewport.zoom(time, ZOOM_FACTOR**steps), self.time, reason)

    def action_fit_all(self) -> None:
        view = Viewport.whole(self.viewport.limits, self.viewport.width, margin=0)
        self._show_view(view, self.time, self.WHOLE, is_jump=True)

    def action_edge(self, later: bool) -> None:
        low, high = self.viewport.limits
        self._jump_to(high - 1 if later else low, f"the {'end' if later else 'start'}")

    def action_step(self, cells: int) -> None:
        """Move the cursor by cells: into the middle of the next one."""
        low, high = self.viewport.limits
        time = min(max(self.viewport.middle(self.viewport.cell(self.time) + cells), low), high - 1)
        edge = f"the {'end' if cells > 0 else 'start'} of the {self.NOUN}"
        self._show_view(self.viewport.reveal(time, time + 1), time, edge)

    def action_peak(self) -> None:
        if self._get_device() is not None:
            self._jump_to(self.find_peak_time(), "the cursor is at the peak")

    def on_jump_asked(self, message: JumpAsked) -> None:
        """Move the cursor to where the curve was clicked."""
        self._show_view(self.viewport, int(message.at), "")

    def action_move(self, rows: int) -> None:
        if not self.has_row():
            return
        before = self.rows.cursor
        self.rows.move_by(rows)
        is_moved = self.rows.cursor != before
        self._status.show_message("" if is_moved else f"the {'first' if rows < 0 else 'last'} row")
        self.show_row()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * self.rows.page_size)
