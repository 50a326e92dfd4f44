"""The dark and the light theme of the app.

All colours are from the 6×6×6 colour cube and its grey ramp: over ssh most terminals show 256 colours, and any other
colour would be rounded to a neighbour that may already be in use.
"""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="torchprof-dark",
    dark=True,
    primary="#5fafd7",
    secondary="#87af87",
    accent="#ffaf5f",
    warning="#ffaf5f",
    error="#ff5f5f",
    success="#87d787",
    foreground="#dadada",
    background="#121212",
    surface="#1c1c1c",
    panel="#262626",
    variables={"block-cursor-background": "#005f87", "block-cursor-foreground": "#ffffff"},
)

LIGHT = Theme(
    name="torchprof-light",
    dark=False,
    primary="#005faf",
    secondary="#5f875f",
    accent="#af5f00",
    warning="#af5f00",
    error="#af0000",
    success="#008700",
    foreground="#1c1c1c",
    background="#ffffff",
    surface="#eeeeee",
    panel="#e4e4e4",
    variables={"block-cursor-background": "#afd7ff", "block-cursor-foreground": "#000000"},
)

THEMES = {"dark": DARK, "light": LIGHT}
"""Themes by their name in `--theme`."""
