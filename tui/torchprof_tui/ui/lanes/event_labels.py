"""Labels on the lanes: why the GPU was idle in a gap, and notes on single events, such as the profiler's own.

A gap is labelled on its stream with the most events where that fits; in the longest gaps of the trace, where they are
wide enough, the line of the program follows the reason. A note is inside the bar where it is wide, else in the blank
beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len

from torchprof_tui.analysis.words.dictionary import find_named_word, to_phrase
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.name_display import clean, truncate

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.gpu_gaps import Gaps


MIN_LABEL_CELLS = 6
"""Minimum width of a labelled gap: a narrower one has no room for a word; its reason is in the cheatsheet."""


MIN_LINE_CELLS = 12  # minimum width of the line of the program in a label; in less it is left out

_SEPARATOR = " · "


class GapLabels:
    """Place the causes of idle gaps on the lanes; `draw_labels` returns the characters by lane and column."""

    def __init__(
        self,
        trace: Trace,
        gaps: Gaps,
        first_lane: int = 0,
        other_ranks: GapLabels | None = None,
        lines: Mapping[tuple[int, int], str] | None = None,
    ) -> None:
        """Index the gaps of one trace. `lines`: (device, start in ns) -> line of the program, as recorded.

        Among several ranks, `first_lane` is the number of the trace's first lane in the merged trace, and `other_ranks`
        the labels of the ranks that were added before, which are drawn as well.
        """
        self._gaps = gaps
        self._first_lane = first_lane
        self._other_ranks = other_ranks
        self._lines = {key: clean(line) for key, line in (lines or {}).items()}
        self._lane_by_device: dict[int, int] = {}
        for number, lane in enumerate(trace.lanes):
            if lane.role is Role.STREAM and lane.device is not None:
                fullest = self._lane_by_device.get(lane.device)
                if fullest is None or len(lane) > len(trace.lanes[fullest]):
                    self._lane_by_device[lane.device] = number
        length = gaps.end - gaps.start
        self._order_by_length = np.argsort(-length, kind="stable")
        self._sorted_lengths = length[self._order_by_length]
        self._device_offsets = [0, *(np.flatnonzero(np.diff(gaps.device)) + 1).tolist(), len(gaps)]

    def draw_labels(self, viewport: Viewport) -> dict[int, list[tuple[int, str]]]:
        """Return (column, character) by lane.

        Only gaps that are wide enough on this screen are visited one by one: at most one for every few columns.
        """
        gaps = self._gaps
        characters: dict[int, list[tuple[int, str]]] = (
            {} if self._other_ranks is None else self._other_ranks.draw_labels(viewport)
        )
        for gap in self._find_wide_gaps(viewport):
            lane = self._lane_by_device.get(int(gaps.device[gap]))
            first = max(viewport.cell(int(gaps.start[gap])) + 1, 0)
            last = min(viewport.cell(int(gaps.end[gap])) - 1, viewport.width - 1)
            width = last - first + 1
            if lane is None or width < MIN_LABEL_CELLS:
                continue
            text = gaps.cause_label(gap)
            line = self._lines.get((int(gaps.device[gap]), int(gaps.start[gap])), "")
            room = width - len(text) - len(_SEPARATOR) - 2
            if line and room >= min(MIN_LINE_CELLS, len(line)) and cell_len(line) == len(line):
                text = f"{text}{_SEPARATOR}{truncate(line, room)}"
            if width >= len(text) + 2:
                text = f"‹{text}›"
            if len(text) > width:
                continue
            column = first + (width - len(text)) // 2
            characters.setdefault(self._first_lane + lane, []).extend(
                (column + k, character) for k, character in enumerate(text)
            )
        return characters

    def _find_wide_gaps(self, viewport: Viewport) -> list[int]:
        """Return the gaps on screen that are at least MIN_LABEL_CELLS wide, by device and time.

        Filters the gaps on screen by length or the long gaps by position, whichever are fewer: zoomed out a million may
        be on screen, zoomed in a million may be long enough.
        """
        gaps, min_length = self._gaps, MIN_LABEL_CELLS * viewport.ns_per_cell
        long_enough = self._order_by_length[
            : len(self._sorted_lengths) - int(self._sorted_lengths[::-1].searchsorted(min_length))
        ]
        wide: list[int] = []
        for low, high in itertools.pairwise(self._device_offsets):
            first = low + int(gaps.end[low:high].searchsorted(viewport.t0, side="right"))
            last = low + int(gaps.start[low:high].searchsorted(viewport.t1))
            if last - first < len(long_enough):
                of_device = np.arange(first, last)
                of_device = of_device[gaps.end[of_device] - gaps.start[of_device] >= min_length]
            else:
                of_device = np.sort(long_enough[(long_enough >= first) & (long_enough < last)])
            wide += of_device.tolist()
        return wide


MIN_NOTE_CELLS = 16  # minimum width of a note: a sentence cut shorter than this says nothing


class EventNotes:
    """Write notes in and beside bars: what the profiler's own events are, and `notes_by_event`."""

    def __init__(self, trace: Trace, notes_by_event: Mapping[int, str]) -> None:
        self._trace = trace
        self._notes_by_event = dict(notes_by_event)
        rows = np.flatnonzero(np.asarray(trace.kind) == Kind.OVERHEAD)
        words = {
            name: find_named_word(Kind.OVERHEAD, trace.names[name]) for name in np.unique(trace.name[rows]).tolist()
        }
        self._notes_by_name = {name: to_phrase(word.sentence) for name, word in words.items() if word is not None}
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
