"""An app that adds the style sheet of a screen to those it has, without parsing all of them again.

textual parses the style sheets of all widgets again for each screen that is opened for the first time, and applies them
to every widget of the screens below: a large part of the time that the memory screen took from its key to its first
frame, in which nothing else on screen could move.
"""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.screen import Screen


class ScreenStylesApp(App[None]):
    """Parse only the new style sheet of a screen. Widgets of other screens keep their style until theirs changes."""

    def _load_screen_css(self, screen: Screen[Any]) -> None:
        if screen.CSS or self.css_monitor is not None:
            super()._load_screen_css(screen)
            return
        for path in screen.css_path:
            if not self.stylesheet.has_source(str(path), ""):
                self.stylesheet.read(path)
        self.stylesheet.parse()  # keeps the rules of each style sheet that it has parsed before
