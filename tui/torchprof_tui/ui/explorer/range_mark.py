"""A marked range of time: begun somewhere, reaching to wherever one is, until it is fixed."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RangeMark:
    """A range, ns. While it is `live` it reaches from where it was begun to wherever the selection or cursor is."""

    start: int
    end: int
    anchor: tuple[int, int]
    live: bool = False

    @classmethod
    def begin_at(cls, anchor: tuple[int, int]) -> RangeMark:
        """From here on, start and end of what one looks at."""
        return cls(*anchor, anchor, live=True)

    @classmethod
    def from_range(cls, start: int, end: int, limits: tuple[int, int]) -> RangeMark | None:
        """From here to there, as the mouse marks: cut to the limits, at least 1 ns; None outside of them."""
        low, high = limits
        start, end = max(start, low), min(max(end, start + 1), high)
        return cls(start, end, (start, end)) if start < end else None

    def extend_to(self, start: int, end: int) -> RangeMark:
        """A live one up to (or down to) another place, with where it was begun inside; any other as it is."""
        if not self.live:
            return self
        first, last = self.anchor
        return replace(self, start=min(first, start), end=max(last, end))

    def freeze(self) -> RangeMark:
        return replace(self, live=False)
