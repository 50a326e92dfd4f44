"""Search over the names of all events: plain text or a regular expression, next and previous in time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class BadPattern:
    """What was typed is no regular expression; `message` says why, in one line. It may hold what was typed."""

    message: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`names` bool[distinct names]; `events` int32[k] by start, then lane, then row; `starts` int64[k] ns.

    A *place* is a position in `events`: place 2 of 97 is the third event found. -1: nothing was found at all.
    """

    name_mask: Bool
    events: I32
    starts: I64

    def __len__(self) -> int:
        return len(self.events)

    def find_next(self, time: int, event: int = -1) -> int:
        """The first event found after `event`, which starts at `time`; without an event, at `time` or later.

        After the last comes the first again.
        """
        place = self._find_lower_bound(time, event + 1)
        return (place if place < len(self) else 0) if len(self) else -1

    def find_previous(self, time: int, event: int = -1) -> int:
        """The last event found before `event`, which starts at `time`; without an event, before `time`.

        Before the first comes the last again.
        """
        place = self._find_lower_bound(time, max(event, 0)) - 1
        return place if place >= 0 else len(self) - 1

    def find_index(self, time: int, event: int) -> int:
        """Where an event, which starts at `time`, is among those found; -1 where it is not."""
        place = self._find_lower_bound(time, event)
        return place if place < len(self) and self.events[place] == event else -1

    def _find_lower_bound(self, time: int, event: int) -> int:
        """The first place whose (start, event) is not below the given ones."""
        first = int(self.starts.searchsorted(time))
        last = int(self.starts.searchsorted(time, side="right"))
        return first + int(self.events[first:last].searchsorted(event))


def search_names(trace: Trace, text: str) -> SearchResult | BadPattern:
    """All events whose name holds `text`; `/text/` is a regular expression.

    Case counts as soon as there is a capital in it. Nothing is found for an empty text. Every distinct name is
    matched once, then one look-up per event.
    """
    matches = compile_matcher(text)
    if isinstance(matches, BadPattern):
        return matches
    names = np.fromiter((matches(name) for name in trace.names), dtype=np.bool_, count=len(trace.names))
    # The columns go lane by lane, each by start: few sorted runs, which a stable sort by start only merges.
    events = np.flatnonzero(names[trace.name]) if names.any() else np.empty(0, dtype=np.int64)
    starts = trace.start[events]
    order = np.argsort(starts, kind="stable")
    return SearchResult(names, events[order].astype(np.int32), starts[order])


def compile_matcher(text: str) -> Callable[[str], bool] | BadPattern:
    if not text:
        return lambda _: False
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        return _compile_expression(text[1:-1])
    if _has_capital(text):
        return lambda name: text in name
    folded = text.casefold()
    return lambda name: folded in name.casefold()


def _compile_expression(pattern: str) -> Callable[[str], bool] | BadPattern:
    # \S or \W is no capital that somebody typed for a name's sake.
    ignore_case = not _has_capital(re.sub(r"\\.", "", pattern))
    try:
        expression = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        return BadPattern(f"not a regular expression: {error}")
    return lambda name: expression.search(name) is not None


def _has_capital(text: str) -> bool:
    return text != text.lower()
