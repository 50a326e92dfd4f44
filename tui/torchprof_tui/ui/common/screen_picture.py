"""Draw the app's screen as SVG, and write pictures as new files in the current folder."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.terminal_theme import SVG_EXPORT_THEME
from textual.app import App

from torchprof_tui.trace.core.atomic_file import (
    OutputError,
    check_target,
    make_file_stem,
    shorten_file_name,
    write_atomically,
)
from torchprof_tui.ui.common.terminal_driver import find_graphics


def draw_screen(app: App[Any]) -> str:
    """Draw the screen as a self-contained SVG (rich's own refers to a font server).

    Cells without a colour get the theme's background and foreground.
    """
    graphics = find_graphics(app)
    with contextlib.nullcontext() if graphics is None else graphics.pause():
        svg = app.export_screenshot(title=app.title, simplify=True)
    svg = re.sub(r"\s*@font-face\s*{[^}]*}", "", svg)
    theme = app.current_theme
    svg = svg.replace(SVG_EXPORT_THEME.background_color.hex, theme.background or "")
    svg = svg.replace(SVG_EXPORT_THEME.foreground_color.hex, theme.foreground or "")
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace")


def write_new_pictures(trace: str, pictures: Mapping[str, str]) -> tuple[str, bool]:
    """Write pictures by name as files that are named after the trace, too; files that exist are kept.

    Returns (a line that reports the outcome, whether all were written).
    """
    stem = make_file_stem(trace)
    written = []
    try:
        for name, picture in pictures.items():
            number = 1
            while check_target(path := Path(shorten_file_name(stem, f"-{name}{'' if number == 1 else number}.svg"))):
                number += 1
            write_atomically(path, picture)
            written.append(str(path))
    except OutputError as error:
        return str(error), False
    return f"wrote {' and '.join(written)} to {Path.cwd()}", True
