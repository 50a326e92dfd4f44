"""Minimise a finding: remove everything that is not needed to reproduce it."""

from __future__ import annotations

from collections.abc import Callable


def minimise(data: bytes, reproduces: Callable[[bytes], bool]) -> bytes:
    """Remove pieces, large ones first, as long as the rest still `reproduces` the finding.

    `reproduces` is called some hundred times, and may return False from some time on to end the search early. The
    returned bytes reproduce the finding.
    """
    piece = max(len(data) // 2, 1)
    while True:
        offset, changed = 0, False
        while offset < len(data):
            smaller = data[:offset] + data[offset + piece :]
            if reproduces(smaller):
                data, changed = smaller, True
            else:
                offset += piece
        if piece == 1 and not changed:
            return data
        if not changed:
            piece = max(piece // 2, 1)
