"""Write pictures where the user says: SVG as it is drawn, PNG through resvg, which is an optional package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.atomic_file import OutputError, check_target, write_atomically
from torchprof_tui.trace.core.extensions import import_extra
from torchprof_tui.trace.core.printable import clean

SUFFIXES = (".svg", ".png")
EXTRA = "pictures"

PIXELS = 2  # pixels of a PNG for each one of the SVG, so that text is sharp on dense displays

_EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'


def check_picture(output: str, suffixes: tuple[str, ...] = SUFFIXES) -> Path:
    """Check that a picture can be written there, before a large trace is read. Raises UsageError, MissingExtraError."""
    path = Path(output)
    if path.suffix not in suffixes:
        raise UsageError(f"-o: {clean(repr(output))} ends in none of {', '.join(suffixes)}")
    if path.suffix == ".png":
        resvg = import_extra("resvg_py", EXTRA)
        if _rasterize(resvg, _EMPTY.format('<text y="16">M</text>'), 1) == _rasterize(resvg, _EMPTY.format(""), 1):
            raise UsageError("-o: a PNG needs a font, and none is installed here; write .svg, or install DejaVu's")
    try:
        check_target(path)
    except OutputError as error:
        raise UsageError(f"-o: {error}") from error
    return path


def write_picture(path: Path, text: str) -> None:
    """Write an SVG, or a screen's text, as the file's name says. Raises UsageError."""
    data = _rasterize(import_extra("resvg_py", EXTRA), text, PIXELS) if path.suffix == ".png" else text
    try:
        write_atomically(path, data)
    except OutputError as error:
        raise UsageError(f"-o: {error}") from error


def _rasterize(resvg: Any, svg: str, pixels: int) -> bytes:
    png: bytes = resvg.svg_to_bytes(svg_string=svg, zoom=pixels)
    return png
