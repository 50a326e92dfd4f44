"""Report how far a load is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

REPORT_INTERVAL_SECONDS = 0.05
"""How often progress is told: as often as a screen shows it, no more."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a load is. `bytes` of `total` are counted as they lie in the file; `total` is None for a pipe."""

    phase: str  # "connecting", "reading", "arranging", "storing"
    bytes: int = 0
    total: int | None = None
    events: int = 0


FAILED_SHARE = -1.0
"""The share of a rank that could not be opened."""


@dataclass(frozen=True, slots=True)
class RanksProgress(Progress):
    """Of several ranks together. `shares`: of each how much has been read, 0 to 1, or FAILED."""

    shares: tuple[float, ...] = ()

    @property
    def finished_count(self) -> int:
        """How many have been read to their end."""
        return sum(share == 1.0 for share in self.shares)


Report = Callable[[Progress], None]
