"""A marked range of time: begun somewhere, reaching to wherever one is, until it is fixed."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Mark:
    """A range, ns. While it is `live` it reaches from where it was begun to wherever the selection or cursor is."""

    start: int
    end: int
    anchor: tuple[int, int]
    live: bool = False

    @classmethod
    def begun(cls, anchor: tuple[int, int]) -> Mark:
        """From here on, start and end of what one looks at."""
        return cls(*anchor, anchor, live=True)

    @classmethod
    def between(cls, start: int, end: int, limits: tuple[int, int]) -> Mark | None:
        """From here to there, as the mouse marks: cut to the limits, at least 1 ns; None outside of them."""
        low, high = limits
        start, end = max(start, low), min(max(end, start + 1), high)
        return cls(start, end, (start, end)) if start < end else None

    def reaching(self, start: int, end: int) -> Mark:
        """A live one up to (or down to) another place, with where it was begun inside; any other as it is."""
        if not self.live:
            return self
        first, last = self.anchor
        return replace(self, start=min(first, start), end=max(last, end))

    def fixed(self) -> Mark:
        return replace(self, live=False)
