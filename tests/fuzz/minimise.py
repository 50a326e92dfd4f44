"""A finding made small: what can be left out of it so that it still is the same finding."""

from __future__ import annotations

from collections.abc import Callable


def minimised(data: bytes, shows: Callable[[bytes], bool]) -> bytes:
    """Leave out pieces, large ones first, for as long as what is left still `shows` it; then plain what stays.

    `shows` is asked some hundred times, and may begin to say no to end it early. What comes back shows it.
    """
    piece = max(len(data) // 2, 1)
    while True:
        at, changed = 0, False
        while at < len(data):
            less = data[:at] + data[at + piece :]
            if shows(less):
                data, changed = less, True
            else:
                at += piece
        if piece == 1 and not changed:
            return data
        if not changed:
            piece = max(piece // 2, 1)
