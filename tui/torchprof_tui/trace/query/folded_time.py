"""The time axis where repeats are folded: which time is at which position, and back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from torchprof_tui.trace.core.records import record


@record
class FoldedTime:
    """Map times to positions on the axis and back. Build it with `of_ranges`.

    Each hidden range keeps an order-preserving place on the axis, so that every time has a position and every position
    a time: cursors, marks and clicks work inside a seam as they do beside it.

    `starts`, `ends`: the hidden ranges, ascending, without overlap. `positions`: where each seam begins on the axis.
    `widths`: its length there, from 1 ns to the length of the range. `removed`: ns that are gone after each seam.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    positions: tuple[int, ...]
    widths: tuple[int, ...]
    removed: tuple[int, ...]

    @classmethod
    def of_ranges(cls, ranges: Sequence[tuple[int, int, int]]) -> FoldedTime:
        """Build from (start, end, width of the seam), in any order. Raises ValueError where ranges overlap."""
        ordered = sorted(ranges)
        if any(end <= start for start, end, _ in ordered):
            raise ValueError("a hidden range is at least 1 ns long")
        if any(before[1] > after[0] for before, after in pairwise(ordered)):
            raise ValueError("hidden ranges do not overlap")
        widths = [min(max(width, 1), end - start) for start, end, width in ordered]
        removed = list(accumulate(end - start - width for (start, end, _), width in zip(ordered, widths, strict=True)))
        before = [0, *removed][:-1]
        return cls(
            tuple(start for start, _, _ in ordered),
            tuple(end for _, end, _ in ordered),
            tuple(start - gone for (start, _, _), gone in zip(ordered, before, strict=True)),
            tuple(widths),
            tuple(removed),
        )

    def __len__(self) -> int:
        return len(self.starts)

    def position(self, time: int) -> int:
        """Return the position of a time. Times of a hidden range share the positions of its seam."""
        seam = bisect_right(self.starts, time) - 1
        if seam < 0:
            return time
        start, end = self.starts[seam], self.ends[seam]
        if time < end:
            return self.positions[seam] + (time - start) * self.widths[seam] // (end - start)
        return time - self.removed[seam]

    def time(self, position: int) -> int:
        """Return the first time at a position: `self.position(self.time(p)) == p`."""
        seam = bisect_right(self.positions, position) - 1
        if seam < 0:
            return position
        inside, width = position - self.positions[seam], self.widths[seam]
        if inside < width:
            return self.starts[seam] - (-inside * (self.ends[seam] - self.starts[seam])) // width
        return position + self.removed[seam]

    def find_seam(self, start: int, end: int) -> int:
        """Return the seam that hides all of a range (at least its first ns), -1 for none."""
        seam = bisect_right(self.starts, start) - 1
        return seam if seam >= 0 and max(end, start + 1) <= self.ends[seam] else -1
