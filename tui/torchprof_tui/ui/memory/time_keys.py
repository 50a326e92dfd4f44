"""Bindings shared by the screens that show memory over time."""

from __future__ import annotations

from textual.binding import Binding


def list_time_bindings(screen: str) -> list[Binding]:
    """List the bindings; `screen` begins the id of `D`, which is another key on the lanes."""
    return [
        Binding("w", "zoom(1)", "zoom", id="time.zoom-in", tooltip="zoom in at the cursor", show=False),
        Binding("s", "zoom(-1)", "zoom out", id="time.zoom-out", tooltip="zoom out at the cursor", show=False),
        Binding("a", "pan(-1)", "earlier", id="time.pan-left", tooltip="move to earlier times", show=False),
        Binding("d", "pan(1)", "later", id="time.pan-right", tooltip="move to later times", show=False),
        Binding("W", "zoom(5)", "zoom in far", id="time.zoom-in-far", tooltip="zoom in five times as far", show=False),
        Binding(
            "S", "zoom(-5)", "zoom out far", id="time.zoom-out-far", tooltip="zoom out five times as far", show=False
        ),
        Binding(
            "A,less_than_sign",
            "pan(-5)",
            "much earlier",
            id="time.pan-left-far",
            tooltip="move five times as far back",
            show=False,
        ),
        Binding(
            "D,greater_than_sign",
            "pan(5)",
            "much later",
            id=f"{screen}.pan-right-far",
            tooltip="move five times as far on",
            show=False,
        ),
    ]
