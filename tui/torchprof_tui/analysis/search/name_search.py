"""Search over event names by plain text or regular expression, with next and previous match in time."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace

MAX_SUGGESTIONS = 3  # names that an error about an unknown name lists


@record
class BadPattern:
    """An invalid regular expression. `message`: the reason in one line; it may contain the user's text."""

    message: str


@record
class EventLabels:
    """Further texts of k events: `events` int32[k], `label` int32[k] index into `texts`, such as captured ops."""

    events: I32
    label: I32
    texts: Sequence[str]


OP_LABELS = "op labels"
"""Key of the `EventLabels` in `Trace.derived` that name the captured ops of replayed kernels, once they are known."""


@record
class SearchResult:
    """The k matching events. `name_mask` bool[distinct names]: the names that match. `events` int32[k] by start, then
    lane, then row; `starts` int64[k] ns.

    Methods return an index into `events`, or -1 for none.
    """

    name_mask: Bool
    events: I32
    starts: I64

    def __len__(self) -> int:
        return len(self.events)

    def find_next(self, time: int, event: int = -1) -> int:
        """Find the first match after `event`, which starts at `time`; without an event, the first at `time` or later.

        Wraps around from the last match to the first.
        """
        index = self._find_lower_bound(time, event + 1)
        return (index if index < len(self) else 0) if len(self) else -1

    def find_previous(self, time: int, event: int = -1) -> int:
        """Find the last match before `event`, which starts at `time`; without an event, the last before `time`.

        Wraps around from the first match to the last.
        """
        index = self._find_lower_bound(time, max(event, 0)) - 1
        return index if index >= 0 else len(self) - 1

    def find_index(self, time: int, event: int) -> int:
        """Find the index of an event, which starts at `time`; -1 if it is no match."""
        index = self._find_lower_bound(time, event)
        return index if index < len(self) and self.events[index] == event else -1

    def _find_lower_bound(self, time: int, event: int) -> int:
        """Find the first index whose (start, event) is not below (`time`, `event`)."""
        first = int(self.starts.searchsorted(time))
        last = int(self.starts.searchsorted(time, side="right"))
        return first + int(self.events[first:last].searchsorted(event))


def search_names(
    trace: Trace, text: str, lane_names: Mapping[int, Sequence[str]] | None = None
) -> SearchResult | BadPattern:
    """Find all events whose name contains `text`; `/text/` is a regular expression.

    Case-sensitive if `text` contains a capital. An empty text matches nothing. Each distinct name is matched once;
    events are then selected by name index. `lane_names`: by name index, the other forms in which the lanes print it.
    Replayed kernels are found by the name of their captured op as well, once it is known.
    """
    matches = compile_matcher(text)
    if isinstance(matches, BadPattern):
        return matches
    name_mask = np.fromiter((matches(name) for name in trace.names), dtype=np.bool_, count=len(trace.names))
    for index, forms in (lane_names or {}).items():
        if not name_mask[index] and any(map(matches, forms)):
            name_mask[index] = True
    # Columns are ordered by lane, then start: few sorted runs, which a stable sort merges quickly.
    events = np.flatnonzero(name_mask[trace.name]) if name_mask.any() else np.empty(0, dtype=np.int64)
    labels = trace.derived.get(OP_LABELS)
    if isinstance(labels, EventLabels):
        is_match = np.fromiter(map(matches, labels.texts), np.bool_, len(labels.texts))
        events = np.union1d(events, labels.events[is_match[labels.label]]) if is_match.any() else events
    starts = trace.start[events]
    order = np.argsort(starts, kind="stable")
    return SearchResult(name_mask, events[order].astype(np.int32), starts[order])


def match_names(trace: Trace, matches: Callable[[str], object], names: I32 | None = None) -> Bool:
    """Select the events whose name matches: bool[n]; of indexes of names, int32[k], those: bool[k]. Each name once."""
    distinct, index = (
        (np.arange(len(trace.names)), trace.name) if names is None else np.unique(names, return_inverse=True)
    )
    found = np.fromiter((bool(matches(trace.names[name])) for name in distinct.tolist()), np.bool_, len(distinct))
    return np.asarray(found[index]) if len(found) else np.zeros(len(index), np.bool_)


def suggest_names(known: Sequence[str], name: str) -> list[str]:
    """Suggest known names in place of an unknown one: those that contain it, else similar ones (MAX_SUGGESTIONS)."""
    near = [each for each in known if name and name.casefold() in each.casefold()]
    return near[:MAX_SUGGESTIONS] or difflib.get_close_matches(name, known, MAX_SUGGESTIONS)


def compile_matcher(text: str) -> Callable[[str], bool] | BadPattern:
    """Compile a search text into a predicate on names, by the rules of `search_names`."""
    if not text:
        return lambda _: False
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        pattern = text[1:-1]
        try:
            expression = re.compile(pattern, 0 if is_case_sensitive(f"/{pattern}/") else re.IGNORECASE)
        except (re.error, OverflowError, RecursionError) as error:
            return BadPattern(f"not a regular expression: {error}")
        return lambda name: expression.search(name) is not None
    if is_case_sensitive(text):
        return lambda name: text in name
    folded = text.casefold()
    return lambda name: folded in name.casefold()


def is_case_sensitive(text: str) -> bool:
    """Return whether a search text tells capitals from small letters: it contains a capital itself.

    The capital of a regular expression's escape, such as \\S or \\W, does not count.
    """
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        text = re.sub(r"\\.", "", text)
    return text != text.lower()
