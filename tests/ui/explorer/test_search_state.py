"""The name search: its matches, and the next one from an event or a time."""

from __future__ import annotations

from tests.helpers.trace_builder import cpu, trace
from torchprof_tui.ui.explorer.search_state import NameSearch

US = 1000


def test_the_search_counts_from_an_event_or_a_time() -> None:
    shown = trace(cpu("mm", 0, 5), cpu("add", 10, 5), cpu("mm", 20, 5), cpu("mm", 30, 5))
    names = NameSearch(shown)
    assert names.find_adjacent_match(0, 0, True) == -1  # no query
    assert names.set_query("mm") == ""
    assert [names.match_number(event) for event in (-1, 0, 1, 2, 3)] == [0, 1, 0, 2, 3]
    assert names.find_adjacent_match(-1, 12 * US, True) == 2
    assert names.find_adjacent_match(-1, 12 * US, False) == 0
    assert [names.find_adjacent_match(event, 0, True) for event in (0, 2, 3)] == [2, 3, 0]
    assert "regular expression" in names.set_query("/(/")
    assert (names.matches, names.query) == (None, "/(/")
