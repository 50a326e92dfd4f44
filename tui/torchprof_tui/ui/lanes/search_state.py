"""The current name search: its query, its matches, and the next or previous match from an event."""

from __future__ import annotations

from functools import cached_property

from torchprof_tui.analysis.search.name_search import BadPattern, SearchResult, search_names
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.lane_names import list_lane_names


class NameSearch:
    """Search the names of a trace. `matches` is None while there is no valid query.

    `is_last_question`: n N go through the matches even while the cheatsheet is open, because the search came after it.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.query = ""
        self.matches: SearchResult | None = None
        self.is_last_question = False

    @cached_property
    def _lane_names(self) -> dict[int, tuple[str, ...]]:
        return list_lane_names(self._trace)

    def set_query(self, text: str) -> str:
        """Find the events whose names, in full or as the lanes print them, match; "" ends the search.

        The text is contained in the name, or is `/a regular expression/`.

        Returns what is wrong with the text, else "". The selection stays.
        """
        self.query = text
        self.matches = None
        self.is_last_question = False
        if not text:
            return ""
        result = search_names(self._trace, text, self._lane_names)
        if isinstance(result, BadPattern):
            return result.message
        self.matches = result
        self.is_last_question = True
        return ""

    def find_adjacent_match(self, event: int, time: int, later: bool) -> int:
        """Return the next or previous match from an event (or, for -1, from `time`), wrapping around; -1 for none."""
        if self.matches is None:
            return -1
        time = int(self._trace.start[event]) if event >= 0 else time
        index = (self.matches.find_next if later else self.matches.find_previous)(time, event)
        return int(self.matches.events[index]) if index >= 0 else -1

    def match_number(self, event: int) -> int:
        """Return the position of an event among the matches, from 1; 0 where it is not one."""
        if self.matches is None or event < 0:
            return 0
        return self.matches.find_index(int(self._trace.start[event]), event) + 1
