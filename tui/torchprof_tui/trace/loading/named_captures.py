"""Give an opener the captures that a user named. Imports nothing heavy: it is needed before the first frame."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class TakesCaptures(Protocol):
    """An opener that can be given captures. `captures`: files and folders that the user named; set before `start`."""

    captures: tuple[str, ...]


def set_captures(opener: object, captures: tuple[str, ...]) -> bool:
    """Give an opener captures of the graphs of its trace; return whether it can be given any."""
    if not isinstance(opener, TakesCaptures):
        return False
    opener.captures = captures
    return True
