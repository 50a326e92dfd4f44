"""The progress of a load: phase, bytes and events, of one trace or of several ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

REPORT_INTERVAL_SECONDS = 0.05
"""Seconds between two reports of one phase; the screen redraws no more often."""


class Phase(str, Enum):
    """Name a stage of a load. The values are the words that workers send and that screens and commands print."""

    STARTING = "starting"
    CONNECTING = "connecting"
    READING = "reading"
    ARRANGING = "arranging"
    STORING = "storing"
    MERGING = "merging"

    __str__ = str.__str__  # as enum.StrEnum of Python 3.11: format() differs between versions otherwise


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of one load. `bytes` of `total` count the file as stored (compressed); `total` is None for a pipe."""

    phase: Phase
    bytes: int = 0
    total: int | None = None
    events: int = 0


FAILED_SHARE = -1.0
"""The share of a rank that could not be opened."""


@dataclass(frozen=True, slots=True)
class RanksProgress(Progress):
    """Progress of several ranks together. `shares`: the part of each that has been read, 0 to 1, or FAILED_SHARE."""

    shares: tuple[float, ...] = ()

    @property
    def finished_count(self) -> int:
        """Count the ranks that have been read completely."""
        return sum(share == 1.0 for share in self.shares)


Report = Callable[[Progress], None]
"""A function that receives progress."""


def ignore_progress(progress: Progress) -> None:
    """Discard progress that is not shown."""
