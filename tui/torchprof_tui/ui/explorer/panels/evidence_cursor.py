"""The cursor on the places of a finding's evidence, costliest first."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.analysis.patterns.engine.pattern import EvidencePlaces, Finding
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace

GAP_MARGIN = 0.15
"""Margin on both sides of a gap that is shown, as a share of its length: the events around it are on screen."""


@dataclass(frozen=True, slots=True)
class EvidencePlace:
    """One place: `start` to `end` (ns), `event` to select there (-1 for none), the `number` from 1 of `count`."""

    finding_id: str
    start: int
    end: int
    event: int
    number: int
    count: int
    is_gap: bool

    def describe(self, trace: Trace) -> str:
        """Describe the place in a line; the name of its event as recorded: `clean` it."""
        nth = f"{self.number:,} of {self.count:,}"
        if not self.is_gap:
            return f"{self.finding_id}: {nth}"
        text = f"{self.finding_id}: gap {nth}, {format_duration(self.end - self.start)}"
        if self.event < 0:
            return text
        start = int(trace.start[self.event])
        side = "before" if start >= self.end else "after" if start < self.start else "in"
        return f"{text} {side} {trace.names[trace.name[self.event]]}"


class EvidenceCursor:
    """Walk through the places of one finding after the other; `move` starts anew where the finding is another."""

    def __init__(self) -> None:
        self._finding: Finding | None = None
        self._places: EvidencePlaces | None = None
        self._index = -1

    def reset(self) -> None:
        """Start anew with the next move."""
        self._index = -1

    def move(self, finding: Finding, trace: Trace, distance: int) -> EvidencePlace | None:
        """Move to the next place (the previous one where `distance` is negative); None without evidence."""
        if self._finding is not finding or self._places is None:
            self._finding, self._places = finding, finding.find_places(trace)
        places, count = self._places, len(self._places)
        if not count:
            return None
        first = 0 if distance > 0 else count - 1
        self._index = index = (self._index + distance) % count if self._index >= 0 else first
        start, end, event = int(places.start[index]), int(places.end[index]), int(places.event[index])
        return EvidencePlace(finding.id, start, end, event, index + 1, count, places.are_gaps)
