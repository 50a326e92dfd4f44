"""The visible time range of a trace, and how it is panned, zoomed and resized. Pure; all times are int ns."""

from __future__ import annotations

from dataclasses import dataclass, replace

SPAN_MARGIN = 0.02
"""Margin before the first and after the last event when the whole trace is shown, as a share of its span, so that both
ends are visible as such."""

FIT_MARGIN = 0.05
"""Margin around a fitted range, as a share of its length, so that what precedes and follows it stays visible."""


@dataclass(frozen=True, slots=True)
class Viewport:
    """`width` cells between t0 and t1 (ns), never less than 1 ns a cell.

    Moves return a new viewport. `limits` are the trace's span with a margin: panning and zooming are clamped to them.
    Only a range that is requested (`fit`, `reveal`) may be outside: a profiler's own mark long before the trace. Limits
    of less than 1 ns a cell (a trace of a few ns) are widened.
    """

    t0: int
    t1: int
    width: int
    limits: tuple[int, int]

    @classmethod
    def whole(cls, span: tuple[int, int], width: int, margin: float = SPAN_MARGIN) -> Viewport:
        """Show all of `span` (a trace's, ns), with a margin. Raises ValueError if `width` is less than 1."""
        if width < 1:
            raise ValueError("a viewport has at least one cell")
        start, end = min(span), max(span)
        padding = round((end - start) * margin)
        low, high = _widen_to_cells(start - padding, end + padding, width)
        return cls(low, high, width, (low, high))

    @property
    def span(self) -> int:
        return self.t1 - self.t0

    @property
    def is_whole(self) -> bool:
        return (self.t0, self.t1) == self.limits

    @property
    def ns_per_cell(self) -> float:
        return self.span / self.width

    def cell(self, time: int) -> int:
        """Compute the cell that contains a time, as in `level_of_detail`; off the screen if not in 0..width-1."""
        # The largest k with floor(span * k / width) <= time - t0.
        return ((time - self.t0 + 1) * self.width - 1) // self.span

    def time(self, cell: int) -> int:
        """Compute the first nanosecond of a cell, which may be off the screen."""
        return self.t0 + self.span * cell // self.width

    def middle(self, cell: int) -> int:
        """Compute the nanosecond in the middle of a cell."""
        return (self.time(cell) + self.time(cell + 1)) // 2

    def pan(self, ns: int) -> Viewport:
        """Move later by `ns` (earlier where negative)."""
        return self._clamp_to_limits(self.t0 + ns, self.span)

    def pan_cells(self, count: int) -> Viewport:
        """Move by whole cells, each at least 1 ns, so that a key always moves something."""
        return self.pan(self.span * count // self.width)

    def zoom(self, anchor: float, factor: float) -> Viewport:
        """Multiply the span by `factor` (below 1: closer), with the time `anchor` staying in its cell."""
        anchor = min(max(round(anchor), self.t0), self.t1)
        low, high = self.limits
        span = min(max(round(self.span * factor), self.width), max(high - low, self.span))
        return self._clamp_to_limits(anchor - (anchor - self.t0) * span // self.span, span)

    def fit(self, start: int, end: int, margin: float = FIT_MARGIN) -> Viewport:
        """Show just this range, with a margin around it, in the middle of the screen."""
        padding = round((end - start) * margin)
        low, high = _widen_to_cells(start - padding, end + padding, self.width)
        return self._clamp_to_limits(low, high - low, (start, end))

    def reveal(self, start: int, end: int) -> Viewport:
        """Pan as little as needed to show the range; of a range that is longer than the screen, its start.

        The viewport is unchanged if the range already covers all of it.
        """
        if start <= self.t0 and end >= self.t1:
            return self
        padding = min(round(self.span * FIT_MARGIN), max(self.span - (end - start), 0))
        if end - start >= self.span or start < self.t0:
            return self._clamp_to_limits(start - padding, self.span, (start, end))
        if end > self.t1:
            return self._clamp_to_limits(end + padding - self.span, self.span, (start, end))
        return self

    def centre(self, time: float) -> Viewport:
        """Pan so that a time is in the middle."""
        return self._clamp_to_limits(round(time) - self.span // 2, self.span)

    def resize(self, width: int) -> Viewport:
        """Show the same time range in more or fewer cells. Raises ValueError if `width` is less than 1."""
        if width < 1:
            raise ValueError("a viewport has at least one cell")
        limits = _widen_to_cells(*self.limits, width)
        wider = replace(self, width=width, limits=limits)
        if self.is_whole:
            return replace(wider, t0=limits[0], t1=limits[1])
        low, high = _widen_to_cells(self.t0, self.t1, width)
        return wider._clamp_to_limits(low, high - low)

    def _clamp_to_limits(self, t0: int, span: int, shown: tuple[int, int] | None = None) -> Viewport:
        """Show `span` ns from t0 on, clamped to what the limits, this viewport and the range `shown` cover together."""
        start, end = shown or (self.t0, self.t1)
        low, high = min(self.limits[0], self.t0, start), max(self.limits[1], self.t1, end)
        span = min(span, high - low)
        t0 = min(max(t0, low), high - span)
        return replace(self, t0=t0, t1=t0 + span)


def _widen_to_cells(start: int, end: int, width: int) -> tuple[int, int]:
    """Widen a range around its middle so that it has at least 1 ns for each cell."""
    lacking = max(width - (end - start), 0)
    return start - lacking // 2, end + lacking - lacking // 2
