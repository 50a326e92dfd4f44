"""The views before jumps, to which `backspace` returns."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from torchprof_tui.analysis.repetition.repeat_fold import RepeatFold
from torchprof_tui.trace.query.viewport import Viewport

MAX_PREVIOUS_VIEWS = 100
"""Views that `backspace` can return to."""


@dataclass(frozen=True, slots=True)
class View:
    """What was shown: the viewport and its fold, the selected event and lane (-1 for none), the first line."""

    viewport: Viewport
    fold: RepeatFold | None
    selected: int
    lane: int
    top: int


class ViewHistory:
    """Keep the last MAX_PREVIOUS_VIEWS views."""

    def __init__(self) -> None:
        self._views: deque[View] = deque(maxlen=MAX_PREVIOUS_VIEWS)

    def push(self, view: View) -> None:
        self._views.append(view)

    def pop(self) -> View | None:
        """Return the last view and forget it; None without one."""
        return self._views.pop() if self._views else None
