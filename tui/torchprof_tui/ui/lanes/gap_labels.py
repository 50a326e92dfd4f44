"""Labels in GPU gaps: why the GPU was idle, written on its stream with the most events where they fit.

In the longest gaps of the trace, where they are wide enough, the line of the program follows the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len

from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.name_display import clean, truncate

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.gpu_idle_causes import Gaps

MIN_LABEL_CELLS = 6
"""Minimum width of a labelled gap: a narrower one has no room for a word; its reason is in the cheatsheet."""


MIN_LINE_CELLS = 12
"""Minimum width of the line of the program in a label; in less it is left out."""

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
            text = self._format_label(gap, width)
            if len(text) > width:
                continue
            column = first + (width - len(text)) // 2
            characters.setdefault(self._first_lane + lane, []).extend(
                (column + k, character) for k, character in enumerate(text)
            )
        return characters

    def _format_label(self, gap: int, width: int) -> str:
        """Format the cause of a gap, and its line if `width` cells hold both; one cell a character."""
        text = self._gaps.cause_label(gap)
        line = self._lines.get((int(self._gaps.device[gap]), int(self._gaps.start[gap])), "")
        room = width - len(text) - len(_SEPARATOR) - 2
        if line and room >= min(MIN_LINE_CELLS, len(line)) and cell_len(line) == len(line):
            text = f"{text}{_SEPARATOR}{truncate(line, room)}"
        return f"‹{text}›" if width >= len(text) + 2 else text

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
