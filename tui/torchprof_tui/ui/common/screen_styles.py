"""An app that adds the style sheet of a screen to those it has, without parsing all of them again.

textual parses the style sheets of all widgets again for each screen that is opened for the first time, and applies them
to every widget of the screens below: a large part of the time that the memory screen took from its key to its first
frame, in which nothing else on screen could move.
"""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.screen import Screen
from textual.theme import Theme

DARK = Theme(
    name="torchprof-dark",
    dark=True,
    primary="#87afd7",
    secondary="#87af87",
    accent="#ffaf5f",
    warning="#ffd787",
    error="#ff5f5f",
    success="#87d787",
    foreground="#dadada",
    background="#121212",
    surface="#1c1c1c",
    panel="#262626",
    variables={
        "block-cursor-background": "#3a3a3a",
        "block-cursor-foreground": "#ffffff",
        "scrollbar": "#4e4e4e",
        "text-muted": "#a8a8a8",
    },
)

LIGHT = Theme(
    name="torchprof-light",
    dark=False,
    primary="#005f87",
    secondary="#5f875f",
    accent="#af5f00",
    warning="#5f5f00",
    error="#af0000",
    success="#008700",
    foreground="#1c1c1c",
    background="#ffffff",
    surface="#eeeeee",
    panel="#e4e4e4",
    variables={
        "block-cursor-background": "#d0d0d0",
        "block-cursor-foreground": "#000000",
        "scrollbar": "#a8a8a8",
        "text-muted": "#4e4e4e",
    },
)

THEMES = {"dark": DARK, "light": LIGHT}  # themes by their name in `--theme`


class ScreenStylesApp(App[None]):
    """Parse only the new style sheet of a screen. Widgets of other screens keep their style until theirs changes."""

    CSS = """
    Input > .input--placeholder, Input > .input--suggestion { color: $text-muted; }
    CommandPalette > .command-palette--help-text { color: $foreground; text-style: not bold; }
    CommandList > .option-list--option-highlighted { background: $block-cursor-background; }
    SearchIcon { display: none; }
    """
    """Textual's own are too weak to be read (2.7:1; 4.1:1 in the row of the cursor); few fonts have its icon."""

    def refresh_css(self, animate: bool = True) -> None:
        """Apply the colours of the theme; before the first screen there is nothing to parse again."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def _load_screen_css(self, screen: Screen[Any]) -> None:
        if screen.CSS or self.css_monitor is not None:
            super()._load_screen_css(screen)
            return
        for path in screen.css_path:
            if not self.stylesheet.has_source(str(path), ""):
                self.stylesheet.read(path)
        self.stylesheet.parse()  # keeps the rules of each style sheet that it has parsed before
