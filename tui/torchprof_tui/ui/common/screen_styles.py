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

_COLORS = {
    "primary": ("#87afd7", "#005f87"),
    "secondary": ("#87af87", "#5f875f"),
    "accent": ("#ffaf5f", "#af5f00"),
    "warning": ("#ffd787", "#5f5f00"),
    "error": ("#ff5f5f", "#af0000"),
    "success": ("#87d787", "#008700"),
    "foreground": ("#dadada", "#1c1c1c"),
    "background": ("#121212", "#ffffff"),
    "surface": ("#1c1c1c", "#eeeeee"),
    "panel": ("#262626", "#e4e4e4"),
}
_VARIABLES = {
    "block-cursor-background": ("#3a3a3a", "#d0d0d0"),
    "block-cursor-foreground": ("#ffffff", "#000000"),
    "scrollbar": ("#4e4e4e", "#a8a8a8"),
    "text-muted": ("#a8a8a8", "#4e4e4e"),
}
"""Colours of the dark and of the light theme."""


def _build_theme(name: str, index: int) -> Theme:
    colors: dict[str, Any] = {key: pair[index] for key, pair in _COLORS.items()}
    variables = {key: pair[index] for key, pair in _VARIABLES.items()}
    return Theme(f"torchprof-{name}", dark=not index, variables=variables, **colors)


THEMES = {name: _build_theme(name, index) for index, name in enumerate(("dark", "light"))}  # by name in `--theme`


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
