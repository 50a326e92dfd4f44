"""The part of a trace's time that is on screen, and how keys and the pointer move it. Pure; all times int ns."""

from __future__ import annotations

from dataclasses import dataclass, replace

SPAN_MARGIN = 0.02
"""Room left of the first and right of the last event when everything is shown: an edge is seen to be one."""

FIT_MARGIN = 0.05
"""Room around a range that is fitted: what comes before and after it stays in sight."""


@dataclass(frozen=True, slots=True)
class Viewport:
    """`width` cells between t0 and t1 (ns), never less than 1 ns a cell.

    Moves return a new viewport. `limits` hold the trace with a margin: panning and zooming end there, going as far
    as they can. Only what is shown by name (`fit`, `reveal`) may lie beyond: a profiler's own mark long before the
    trace. Where the limits hold less than 1 ns a cell (a trace of a few ns), they are widened.
    """

    t0: int
    t1: int
    width: int
    limits: tuple[int, int]

    @classmethod
    def whole(cls, span: tuple[int, int], width: int, margin: float = SPAN_MARGIN) -> Viewport:
        """All of `span` (a trace's, ns), with a margin. Raises ValueError without a cell."""
        if width < 1:
            raise ValueError("a viewport has at least one cell")
        start, end = min(span), max(span)
        room = round((end - start) * margin)
        low, high = _widen_to_cells(start - room, end + room, width)
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
        """The cell that holds this time, as `level_of_detail` has it; below 0 or at least `width`: off the screen."""
        # The largest k with floor(span * k / width) <= time - t0.
        return ((time - self.t0 + 1) * self.width - 1) // self.span

    def time(self, cell: int) -> int:
        """The first nanosecond of a cell; also beyond the screen."""
        return self.t0 + self.span * cell // self.width

    def middle(self, cell: int) -> int:
        """The nanosecond in the middle of a cell."""
        return (self.time(cell) + self.time(cell + 1)) // 2

    def pan(self, ns: int) -> Viewport:
        """Later by `ns` (earlier where negative)."""
        return self._clamp_to_limits(self.t0 + ns, self.span)

    def pan_cells(self, count: int) -> Viewport:
        """By whole cells; at least by 1 ns, so that a key always moves something."""
        return self.pan(self.span * count // self.width)

    def zoom(self, anchor: float, factor: float) -> Viewport:
        """The span times `factor` (below 1: closer), with the time `at` staying in its place on the screen."""
        anchor = min(max(round(anchor), self.t0), self.t1)
        low, high = self.limits
        span = min(max(round(self.span * factor), self.width), max(high - low, self.span))
        return self._clamp_to_limits(anchor - (anchor - self.t0) * span // self.span, span)

    def fit(self, start: int, end: int, margin: float = FIT_MARGIN) -> Viewport:
        """Just this range, with some room around it, in the middle of the screen."""
        room = round((end - start) * margin)
        low, high = _widen_to_cells(start - room, end + room, self.width)
        return self._clamp_to_limits(low, high - low, (start, end))

    def reveal(self, start: int, end: int) -> Viewport:
        """Panned as little as it takes to show the range; a range that is longer than the screen shows its start.

        A range that fills the screen from edge to edge already is left alone.
        """
        if start <= self.t0 and end >= self.t1:
            return self
        room = min(round(self.span * FIT_MARGIN), max(self.span - (end - start), 0))
        if end - start >= self.span or start < self.t0:
            return self._clamp_to_limits(start - room, self.span, (start, end))
        if end > self.t1:
            return self._clamp_to_limits(end + room - self.span, self.span, (start, end))
        return self

    def centre(self, time: float) -> Viewport:
        """Panned so that this time is in the middle."""
        return self._clamp_to_limits(round(time) - self.span // 2, self.span)

    def resize(self, width: int) -> Viewport:
        """The same time in more or fewer cells."""
        if width < 1:
            raise ValueError("a viewport has at least one cell")
        limits = _widen_to_cells(*self.limits, width)
        wider = replace(self, width=width, limits=limits)
        if self.is_whole:
            return replace(wider, t0=limits[0], t1=limits[1])
        low, high = _widen_to_cells(self.t0, self.t1, width)
        return wider._clamp_to_limits(low, high - low)

    def _clamp_to_limits(self, t0: int, span: int, shown: tuple[int, int] | None = None) -> Viewport:
        """`span` ns from t0 on, or as near to that as the limits, this viewport and what is to be shown reach."""
        start, end = shown or (self.t0, self.t1)
        low, high = min(self.limits[0], self.t0, start), max(self.limits[1], self.t1, end)
        span = min(span, high - low)
        t0 = min(max(t0, low), high - span)
        return replace(self, t0=t0, t1=t0 + span)


def _widen_to_cells(start: int, end: int, width: int) -> tuple[int, int]:
    """The range, or the one around its middle that has 1 ns for each cell."""
    lacking = max(width - (end - start), 0)
    return start - lacking // 2, end + lacking - lacking // 2
