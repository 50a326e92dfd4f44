"""Whether a screen is still on the stack of screens."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen


def is_removed(screen: Screen[Any]) -> bool:
    """Return whether a screen was closed: a resize that was on its way comes after its widgets are gone."""
    return screen not in screen.app.screen_stack
