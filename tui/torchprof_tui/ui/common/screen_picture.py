"""Draw the app's screen as SVG."""

from __future__ import annotations

import re
from typing import Any

from rich.terminal_theme import SVG_EXPORT_THEME
from textual.app import App


def draw_screen(app: App[Any]) -> str:
    """Draw the screen as a self-contained SVG (rich's own refers to a font server).

    Cells without a colour get the theme's background and foreground.
    """
    svg = app.export_screenshot(title=app.title, simplify=True)
    svg = re.sub(r"\s*@font-face\s*{[^}]*}", "", svg)
    theme = app.current_theme
    svg = svg.replace(SVG_EXPORT_THEME.background_color.hex, theme.background or "")
    svg = svg.replace(SVG_EXPORT_THEME.foreground_color.hex, theme.foreground or "")
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace")
