"""The earlier views of the flame graph, for the key that goes back."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.ui.flame.flame_worker import FlameQuery
from torchprof_tui.ui.flame.icicle_layout import Zoom

MAX_VIEWS = 50
"""Views that are kept; the oldest one is dropped."""


@dataclass(frozen=True, slots=True)
class FlameView:
    """What the flame graph shows: which one, its zoom, the search, and the node of the cursor."""

    query: FlameQuery
    zoom: Zoom
    search: str
    node: int


class FlameHistory:
    """A stack of views. `push` before a change, `pop` to undo it."""

    def __init__(self) -> None:
        self._views: list[FlameView] = []

    def push(self, view: FlameView) -> None:
        self._views = [*self._views[1 - MAX_VIEWS :], view]

    def pop(self) -> FlameView | None:
        """Take the latest view off, None if there is none."""
        return self._views.pop() if self._views else None
