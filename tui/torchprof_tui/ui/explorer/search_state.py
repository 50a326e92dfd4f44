"""The search that is on: what was typed, the events whose names hold it, and the way from one to the next."""

from __future__ import annotations

from torchprof_tui.analysis.name_search import BadPattern, Found, search
from torchprof_tui.trace.model.trace import Trace


class NameSearch:
    """`found` is None where nothing is searched for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.query = ""
        self.found: Found | None = None

    def look_for(self, text: str) -> str:
        """Find names that hold the text, `/…/` as a regular expression; nothing moves. Empty: no search any more.

        Returns what is wrong with the text, else "".
        """
        self.query = text
        self.found = None
        if not text:
            return ""
        found = search(self._trace, text)
        if isinstance(found, BadPattern):
            return found.message
        self.found = found
        return ""

    def beside(self, event: int, time: int, later: bool) -> int:
        """The next or previous event found, around the ends, seen from an event (-1: from a time); -1: none at all."""
        if self.found is None:
            return -1
        time = int(self._trace.start[event]) if event >= 0 else time
        place = (self.found.next_place if later else self.found.previous_place)(time, event)
        return int(self.found.events[place]) if place >= 0 else -1

    def place_of(self, event: int) -> int:
        """Which of those found an event is, from 1; 0 for none of them."""
        if self.found is None or event < 0:
            return 0
        return self.found.place_of(int(self._trace.start[event]), event) + 1
