"""A marked range of time that follows the selection or cursor until it is frozen."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RangeMark:
    """A range, ns. While `live`, it covers `anchor` (start and end of where it began) and the selection or cursor."""

    start: int
    end: int
    anchor: tuple[int, int]
    live: bool = False

    @classmethod
    def begin_at(cls, anchor: tuple[int, int]) -> RangeMark:
        """Start a live range at (start, end)."""
        return cls(*anchor, anchor, live=True)

    @classmethod
    def from_range(cls, start: int, end: int, limits: tuple[int, int]) -> RangeMark | None:
        """Return a frozen range of at least 1 ns, clipped to the limits; None where it lies outside of them."""
        low, high = limits
        start, end = max(start, low), min(max(end, start + 1), high)
        return cls(start, end, (start, end)) if start < end else None

    def extend_to(self, start: int, end: int) -> RangeMark:
        """Return the range that covers the anchor and (start, end); unchanged unless it is live."""
        if not self.live:
            return self
        first, last = self.anchor
        return replace(self, start=min(first, start), end=max(last, end))

    def freeze(self) -> RangeMark:
        """Return the same range, no longer live."""
        return replace(self, live=False)
