"""What the screens of memory over time share: the keys of the time, a cursor, and devices."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.child_screen import ChildScreen
from torchprof_tui.ui.lanes.mouse_gestures import JumpAsked
from torchprof_tui.ui.lanes.view_state import LARGEST_ZOOM, ZOOM_FACTOR

Device = TypeVar("Device")


class CurveScreen(ChildScreen, Generic[Device]):
    """A screen with a curve: `viewport` is the time on screen, `time` the cursor, ns, `device` what is shown of it.

    `NOUN`: what the curve covers. `WHOLE`: shown where all of it is on screen; `NOT_READ`: before it was read.
    """

    NOUN: ClassVar[str]
    WHOLE: ClassVar[str]
    NOT_READ: ClassVar[str]

    def __init__(self, viewport: Viewport) -> None:
        super().__init__()
        self.viewport, self.time = viewport, viewport.t0
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

    def _find_peak_time(self) -> int:
        raise NotImplementedError

    def _show_view(self, viewport: Viewport, time: int, reason: str, is_jump: bool = False) -> None:
        """Show a viewport and a cursor, or say why that changes nothing; `backspace` returns from a jump."""
        raise NotImplementedError

    def _jump_to(self, time: int, reason: str) -> None:
        self._show_view(self.viewport.reveal(time, time + 1), time, reason, is_jump=True)

    def action_zoom(self, steps: int) -> None:
        time = min(max(self.time, self.viewport.t0), self.viewport.t1 - 1)
        reason = LARGEST_ZOOM if steps > 0 else self.WHOLE
        self._show_view(self.viewport.zoom(time, ZOOM_FACTOR**steps), self.time, reason)

    def action_fit_all(self) -> None:
        view = Viewport.whole(self.viewport.limits, self.viewport.width, margin=0)
        self._show_view(view, self.time, self.WHOLE, is_jump=True)

    def action_to_end(self, later: bool) -> None:
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
            self._jump_to(self._find_peak_time(), "the cursor is at the peak")

    def on_jump_asked(self, message: JumpAsked) -> None:
        """Move the cursor to where the curve was clicked."""
        self._show_view(self.viewport, int(message.at), "")
