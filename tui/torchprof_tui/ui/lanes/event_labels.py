"""Notes on single events, such as the profiler's own: inside the bar where it is wide, else in the blank beside it."""

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
"""Minimum width of a note: a sentence cut shorter than this says nothing."""


class EventNotes:
    """Write notes in and beside bars: what the profiler's own events are, and `notes_by_event`."""

    def __init__(self, trace: Trace, notes_by_event: Mapping[int, str]) -> None:
        self._trace = trace
        self._notes_by_event = dict(notes_by_event)
        rows = np.flatnonzero(np.asarray(trace.kind) == Kind.OVERHEAD)
        notes = {name: describe_overhead(trace.names[name]) for name in np.unique(trace.name[rows]).tolist()}
        self._notes_by_name = {name: text for name, text in notes.items() if text}
        rows = rows[np.isin(trace.name[rows], list(self._notes_by_name))]
        self._events = np.unique(np.append(rows, np.array(list(self._notes_by_event), dtype=np.int64)))
        self._start = np.asarray(trace.start[self._events])
        self._end = self._start + np.maximum(trace.duration[self._events], 1)
        self._previous_end, self._next_start = self._find_blanks()

    def _find_blanks(self) -> tuple[I64, I64]:
        """Return for each event when the previous event of its row ends and when the next one starts.

        Two int64[k], ns; half of the smallest and largest int64 where there is none.
        """
        trace, index, events = self._trace, self._trace.row_index, self._events
        before = np.full(len(events), np.iinfo(np.int64).min // 2, dtype=np.int64)
        after = np.full(len(events), np.iinfo(np.int64).max // 2, dtype=np.int64)
        if not len(events):
            return before, after
        is_noted = np.zeros(len(trace), dtype=np.bool_)
        is_noted[events] = True
        positions = np.flatnonzero(is_noted[index.order])  # in the row index
        positions = positions[np.argsort(index.order[positions], kind="stable")]  # in the order of `events`
        row = index.first.searchsorted(positions, side="right") - 1
        has_previous, has_next = positions > index.first[row], positions + 1 < index.first[row + 1]
        previous = index.order[positions[has_previous] - 1]
        before[has_previous] = trace.start[previous] + np.maximum(trace.duration[previous], 1)
        after[has_next] = index.starts[positions[has_next] + 1]
        return before, after

    def get_note(self, event: int) -> str:
        """Return the note on an event, "" for most."""
        note = self._notes_by_event.get(event)
        if note is not None:
            return note
        text = self._notes_by_name.get(int(self._trace.name[event]), "")
        return text if text and self._trace.kind[event] == Kind.OVERHEAD else ""

    def format_bar_text(self, event: int, name: str, width: int) -> str:
        """Return name and note for a bar of `width` cells; "" where there is no note or both do not fit."""
        note = self.get_note(event)
        available = width - len(name) - 3
        return f"{name} · {truncate(note, available)}" if note and available >= min(MIN_NOTE_CELLS, len(note)) else ""

    def draw_notes(self, viewport: Viewport) -> dict[tuple[int, int], list[tuple[int, str]]]:
        """Return (column, character) by (lane, row), in the blank after a bar too narrow for its note, else before it.

        Only events beside a blank of MIN_NOTE_CELLS are visited one by one: at most one for every few columns.
        """
        min_blank = MIN_NOTE_CELLS * viewport.ns_per_cell
        blank_after = np.minimum(self._next_start, viewport.t1) - self._end
        blank_before = self._start - np.maximum(self._previous_end, viewport.t0)
        on_screen = (self._start < viewport.t1) & (self._end > viewport.t0)
        characters: dict[tuple[int, int], list[tuple[int, str]]] = {}
        last_columns: dict[tuple[int, int], int] = {}  # the last column that a note of the row fills
        for index in np.flatnonzero(on_screen & ((blank_after >= min_blank) | (blank_before >= min_blank))).tolist():
            event = int(self._events[index])
            key = (int(self._trace.lane[event]), int(self._trace.row[event]))
            bar_first = viewport.cell(int(self._start[index]))
            bar_last = viewport.cell(int(self._end[index]) - 1)
            name = self._trace.names[int(self._trace.name[event])]
            if self.format_bar_text(event, name, min(bar_last, viewport.width - 1) - max(bar_first, 0)):
                continue
            text = f"‹{self.get_note(event)}›"
            first = bar_last + 2
            last = min(viewport.cell(int(min(self._next_start[index], viewport.t1))), viewport.width) - 2
            if last - first + 1 < MIN_NOTE_CELLS:
                previous_last = viewport.cell(int(max(self._previous_end[index], viewport.t0)))
                last = bar_first - 2
                first = max(previous_last + 2, last_columns.get(key, -2) + 2, 0, last - len(text) + 1)
            if last - first + 1 < MIN_NOTE_CELLS:
                continue
            visible = truncate(text, last - first + 1)
            last_columns[key] = first + len(visible) - 1
            characters.setdefault(key, []).extend((first + k, character) for k, character in enumerate(visible))
        return characters
