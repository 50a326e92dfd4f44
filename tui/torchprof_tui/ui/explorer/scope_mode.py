"""The part of the trace that the cheatsheet is about."""

from __future__ import annotations

from enum import Enum


class ScopeMode(Enum):
    """The part of the trace that the cheatsheet is about."""

    SCREEN = "on screen"
    SELECTION = "selection"
    TRACE = "whole trace"

    def neighbour(self, direction: int) -> ScopeMode:
        """Return the next part (1) or the previous one (-1)."""
        modes = list(ScopeMode)
        return modes[(modes.index(self) + direction) % len(modes)]
