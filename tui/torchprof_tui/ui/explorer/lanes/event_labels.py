"""What events that nobody wrote say for themselves: inside their bar where it is wide, else in the blank behind it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from torchprof_tui.analysis.patterns.engine.lane_labels import describe_overhead
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.name_display import truncate

MIN_NOTE_CELLS = 16
"""With less room a sentence says nothing any more."""


class EventNotes:
    """Of the profiler's own events what they are, and `known`: what was found out about single events, by event."""

    def __init__(self, trace: Trace, notes_by_event: Mapping[int, str]) -> None:
        self._trace = trace
        self._notes_by_event = dict(notes_by_event)
        rows = np.flatnonzero(np.asarray(trace.kind) == Kind.OVERHEAD)
        says = {number: describe_overhead(trace.names[number]) for number in np.unique(trace.name[rows]).tolist()}
        self._notes_by_name = {number: text for number, text in says.items() if text}
        rows = rows[np.isin(trace.name[rows], list(self._notes_by_name))]
        self._events = np.unique(np.append(rows, np.array(list(self._notes_by_event), dtype=np.int64)))
        self._start = np.asarray(trace.start[self._events])
        self._end = self._start + np.maximum(trace.duration[self._events], 1)
        self._previous_end, self._next_start = self._find_blanks()

    def _find_blanks(self) -> tuple[I64, I64]:
        """(when the event before it in its row ends, when the next one begins) for each; far away where there is
        none."""
        trace, index, events = self._trace, self._trace.row_index, self._events
        before = np.full(len(events), np.iinfo(np.int64).min // 2, dtype=np.int64)
        after = np.full(len(events), np.iinfo(np.int64).max // 2, dtype=np.int64)
        if not len(events):
            return before, after
        chosen = np.zeros(len(trace), dtype=np.bool_)
        chosen[events] = True
        here = np.flatnonzero(chosen[index.order])  # by place; `events` ascend
        here = here[np.argsort(index.order[here], kind="stable")]
        row = index.first.searchsorted(here, side="right") - 1
        follows, leads = here > index.first[row], here + 1 < index.first[row + 1]
        other = index.order[here[follows] - 1]
        before[follows] = trace.start[other] + np.maximum(trace.duration[other], 1)
        after[leads] = index.starts[here[leads] + 1]
        return before, after

    def get_note(self, event: int) -> str:
        """What to say about an event, "" for most."""
        known = self._notes_by_event.get(event)
        if known is not None:
            return known
        text = self._notes_by_name.get(int(self._trace.name[event]), "")
        return text if text and self._trace.kind[event] == Kind.OVERHEAD else ""

    def format_bar_text(self, event: int, name: str, width: int) -> str:
        """Name and note as a bar of `width` cells shows them, "" where there is no note or no room for both."""
        note = self.get_note(event)
        room = width - len(name) - 3
        return f"{name} · {truncate(note, room)}" if note and room >= min(MIN_NOTE_CELLS, len(note)) else ""

    def draw_notes(self, viewport: Viewport) -> dict[tuple[int, int], list[tuple[int, str]]]:
        """(column, character) by (lane, row): in the blank behind a bar too narrow for its note, else before it. Only
        where a row stays blank for long are events looked at one by one: at most one for every few columns."""
        least = MIN_NOTE_CELLS * viewport.ns_per_cell
        behind = np.minimum(self._next_start, viewport.t1) - self._end
        ahead = self._start - np.maximum(self._previous_end, viewport.t0)
        on_screen = (self._start < viewport.t1) & (self._end > viewport.t0)
        found: dict[tuple[int, int], list[tuple[int, str]]] = {}
        taken: dict[tuple[int, int], int] = {}  # the last column that a note of the row fills
        for place in np.flatnonzero(on_screen & ((behind >= least) | (ahead >= least))).tolist():
            event = int(self._events[place])
            key = (int(self._trace.lane[event]), int(self._trace.row[event]))
            begin = viewport.cell(int(self._start[place]))
            end = viewport.cell(int(self._end[place]) - 1)
            name = self._trace.names[int(self._trace.name[event])]
            if self.format_bar_text(event, name, min(end, viewport.width - 1) - max(begin, 0)):
                continue
            text = f"‹{self.get_note(event)}›"
            first, last = (
                end + 2,
                min(viewport.cell(int(min(self._next_start[place], viewport.t1))), viewport.width) - 2,
            )
            if last - first + 1 < MIN_NOTE_CELLS:
                least_free = max(
                    viewport.cell(int(max(self._previous_end[place], viewport.t0))) + 2, taken.get(key, -2) + 2, 0
                )
                last = begin - 2
                first = max(least_free, last - len(text) + 1)
            if last - first + 1 < MIN_NOTE_CELLS:
                continue
            shown = truncate(text, last - first + 1)
            taken[key] = first + len(shown) - 1
            found.setdefault(key, []).extend((first + k, character) for k, character in enumerate(shown))
        return found
