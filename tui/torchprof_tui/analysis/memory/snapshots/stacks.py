"""Name the line and the stack of recorded frames. Frames are resolved only when asked for: a snapshot has millions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from torchprof_tui.analysis.dispatch.frame_names import FrameOrigin, classify_file
from torchprof_tui.trace.core.arrays import I32

MAX_FRAMES = 100
"""Frames of a stack that are examined and shown, innermost first."""


MAX_TEXT = 1000
"""Characters of a file or a function that are kept: names of C++ templates are longer than anyone reads."""


def format_frame(frame: Any) -> str:
    """Format a frame as `file:line function`; "" for what is none."""
    if not isinstance(frame, dict):
        return ""
    line = frame.get("line")
    number = line if isinstance(line, int) else 0
    return f"{_read_text(frame, 'filename')}:{number} {_read_text(frame, 'name')}"


def _read_text(frame: dict[str, Any], key: str) -> str:
    """Read a text of a frame; "" for anything else, of which a small file can hold more than memory prints."""
    value = frame.get(key)
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def find_line(frames: Sequence[Any]) -> str:
    """Find the line of the program: the innermost frame of the user's code, else of an installed package, else any.

    "" where no frame was recorded. A stack of C++ frames alone has the innermost.
    """
    found: dict[FrameOrigin, Any] = {}
    for frame in frames[:MAX_FRAMES]:
        if isinstance(frame, dict):
            found.setdefault(_find_origin(frame), frame)
    for origin in (FrameOrigin.USER, FrameOrigin.LIBRARY, FrameOrigin.INTERNAL):
        if origin in found:
            return format_frame(found[origin])
    return ""


def _find_origin(frame: dict[str, Any]) -> FrameOrigin:
    file = _read_text(frame, "filename")
    if not file.endswith(".py") and not file.startswith("<"):  # C++ frames have "??" or a source file
        return FrameOrigin.INTERNAL
    return classify_file(file)


def format_stack(frames: Sequence[Any]) -> str:
    """Format a stack, innermost first, one frame a line; "" without frames."""
    return "\n".join(filter(None, map(format_frame, frames[:MAX_FRAMES])))


def factorize_frames(stacks: Iterable[Any], by_stack: bool) -> tuple[I32, list[str]]:
    """Return (index int32[k], texts) of the line, or of the whole stack, of each list of frames; "" comes first."""
    index_of_text: dict[str, int] = {"": 0}
    index_of_ids: dict[tuple[int, ...], int] = {}
    index = []
    for frames in stacks:
        frames = frames if isinstance(frames, (list, tuple)) else ()
        key = tuple(map(id, frames[:MAX_FRAMES]))  # the frames themselves are shared: their ids tell equal stacks
        number = index_of_ids.get(key)
        if number is None:
            text = format_stack(frames) if by_stack else find_line(frames)
            number = index_of_ids[key] = index_of_text.setdefault(text, len(index_of_text))
        index.append(number)
    return np.array(index, np.int32), list(index_of_text)
