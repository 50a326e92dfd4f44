"""The search that is on: what was typed, the events whose names hold it, and the way from one to the next."""

from __future__ import annotations

from torchprof_tui.analysis.search.name_search import BadPattern, SearchResult, search_names
from torchprof_tui.trace.model.trace import Trace


class NameSearch:
    """`found` is None where nothing is searched for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.query = ""
        self.matches: SearchResult | None = None

    def set_query(self, text: str) -> str:
        """Find names that hold the text, `/…/` as a regular expression; nothing moves. Empty: no search any more.

        Returns what is wrong with the text, else "".
        """
        self.query = text
        self.matches = None
        if not text:
            return ""
        found = search_names(self._trace, text)
        if isinstance(found, BadPattern):
            return found.message
        self.matches = found
        return ""

    def find_adjacent_match(self, event: int, time: int, later: bool) -> int:
        """The next or previous event found, around the ends, seen from an event (-1: from a time); -1: none at all."""
        if self.matches is None:
            return -1
        time = int(self._trace.start[event]) if event >= 0 else time
        place = (self.matches.find_next if later else self.matches.find_previous)(time, event)
        return int(self.matches.events[place]) if place >= 0 else -1

    def match_number(self, event: int) -> int:
        """Which of those found an event is, from 1; 0 for none of them."""
        if self.matches is None or event < 0:
            return 0
        return self.matches.find_index(int(self._trace.start[event]), event) + 1
