"""Why a GPU was idle, written into the blank of its first stream where there is room."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.viewport import Viewport

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.gpu_gaps import Gaps

MIN_LABEL_CELLS = 6
"""A gap narrower than this has no room for a word; its reason is in the cheatsheet."""


class GapLabels:
    """`cells` gives, for each lane that shows labels, the characters by column."""

    def __init__(self, trace: Trace, gaps: Gaps, first_lane: int = 0, other_ranks: GapLabels | None = None) -> None:
        """`first_lane`: where the trace's lanes begin among all, if it is one of several ranks; `others`: what is known
        of these already."""
        self._gaps = gaps
        self._first_lane = first_lane
        self._other_ranks = other_ranks
        self._lane_by_device: dict[int, int] = {}
        for number, lane in enumerate(trace.lanes):
            if lane.role is Role.STREAM and lane.device is not None:
                before = self._lane_by_device.get(lane.device)
                if before is None or len(lane) > len(trace.lanes[before]):
                    self._lane_by_device[lane.device] = number
        length = gaps.end - gaps.start
        self._order_by_length = np.argsort(-length, kind="stable")
        self._sorted_lengths = length[self._order_by_length]
        self._device_offsets = [0, *(np.flatnonzero(np.diff(gaps.device)) + 1).tolist(), len(gaps)]

    def draw_labels(self, viewport: Viewport) -> dict[int, list[tuple[int, str]]]:
        """(column, character) by lane. Only gaps wide enough on this screen are looked at one by one: at most one for
        every few columns."""
        gaps = self._gaps
        found: dict[int, list[tuple[int, str]]] = (
            {} if self._other_ranks is None else self._other_ranks.draw_labels(viewport)
        )
        for place in self._find_wide_gaps(viewport):
            lane = self._lane_by_device.get(int(gaps.device[place]))
            first = max(viewport.cell(int(gaps.start[place])) + 1, 0)
            last = min(viewport.cell(int(gaps.end[place])) - 1, viewport.width - 1)
            room = last - first + 1
            if lane is None or room < MIN_LABEL_CELLS:
                continue
            text = gaps.reason_label(place)
            text = f"‹{text}›" if room >= len(text) + 2 else text
            if len(text) > room:
                continue
            begin = first + (room - len(text)) // 2
            found.setdefault(self._first_lane + lane, []).extend(
                (begin + k, character) for k, character in enumerate(text)
            )
        return found

    def _find_wide_gaps(self, viewport: Viewport) -> list[int]:
        """The gaps on the screen that have room for a word: those on it looked through, or those long enough, whichever
        are fewer. Zoomed out a million may be on it, zoomed in a million are long enough."""
        gaps, least = self._gaps, MIN_LABEL_CELLS * viewport.ns_per_cell
        long_enough = self._order_by_length[
            : len(self._sorted_lengths) - int(self._sorted_lengths[::-1].searchsorted(least))
        ]
        found: list[int] = []
        for low, high in itertools.pairwise(self._device_offsets):
            first = low + int(gaps.end[low:high].searchsorted(viewport.t0, side="right"))
            last = low + int(gaps.start[low:high].searchsorted(viewport.t1))
            if last - first < len(long_enough):
                shown = np.arange(first, last)
                shown = shown[gaps.end[shown] - gaps.start[shown] >= least]
            else:
                shown = np.sort(long_enough[(long_enough >= first) & (long_enough < last)])
            found += shown.tolist()
        return found
