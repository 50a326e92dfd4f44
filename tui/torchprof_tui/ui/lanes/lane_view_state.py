"""State of the lanes on screen: folded, pinned and hidden lanes, the scroll offset, and queries about their order."""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.trace.model.lanes import MARKS, SPANS, Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query import navigation
from torchprof_tui.ui.lanes.screen_lines import LaneArrangement, LaneLines, rank_rows

MAX_FIRST_PINS_SHARE = 0.25
"""Streams are pinned at first on at most this share of the height: the CPU lanes need the rest."""


def find_recorder_lanes(trace: Trace) -> frozenset[int]:
    """Find the lanes of the profiler's own spans and marks; none where the trace has no others."""
    found = frozenset(
        number for number, lane in enumerate(trace.lanes) if lane.role is Role.PROFILER and lane.tid in (SPANS, MARKS)
    )
    return found if len(found) < len(trace.lanes) else frozenset()


class LaneViewState:
    """Hold the arrangement of the lanes. `top`: the first visible line of the body; `height`: visible lines in all.

    Ranks, and lanes that were merged because there are too many, are folded at first, and the profiler's own spans and
    marks are hidden: they say nothing about the program.
    """

    def __init__(self, trace: Trace, height: int) -> None:
        self._trace = trace
        headers = (rank.header_lane for rank in trace.all_ranks if rank.is_merged)
        merged = (number for number, lane in enumerate(trace.lanes) if lane.merged_lanes)
        self.arrangement = LaneArrangement(frozenset([*headers, *merged]), find_recorder_lanes(trace))
        self.lane_lines = LaneLines.build(trace, self.arrangement)
        self.height = height
        self.top = 0

    # -- scrolling -----------------------------------------------------------------------------------------

    def scroll(self, lines: int) -> None:
        """Scroll down by `lines` (up where negative), as far as there are lines."""
        self.top = min(max(self.top + lines, 0), self.lane_lines.max_top(self.height))

    def scroll_to_row(self, lane: int, row: int) -> None:
        """Scroll as little as possible so that a row is on screen."""
        index = self.lane_lines.line_index(lane, row)
        if index is not None:
            self.top = self.lane_lines.top_to_reveal(index, self.top, self.height)

    def resize(self, height: int) -> None:
        self.height = height
        self.scroll(0)

    # -- arrangement ---------------------------------------------------------------------------------------

    def apply_arrangement(self, arrangement: LaneArrangement) -> bool:
        """Set the arrangement and rebuild the lines; return whether it changed."""
        if arrangement == self.arrangement:
            return False
        self.arrangement = arrangement
        self.lane_lines = LaneLines.build(self._trace, arrangement)
        self.top = min(self.top, self.lane_lines.max_top(self.height))
        return True

    def reveal_lane(self, lane: int) -> None:
        """Show a lane whose events must be drawable: unhide it (unfolded) and its rank."""
        hidden, folded = self.arrangement.hidden, self.arrangement.folded
        header_lane = self._trace.rank_of_lane(lane).header_lane
        folded = folded - {lane} if lane in hidden else folded
        self.apply_arrangement(replace(self.arrangement, hidden=hidden - {lane, header_lane}, folded=folded))

    def pin_streams(self, first: int, last: int) -> LaneArrangement:
        """Return an arrangement with the busiest streams among lanes first:last pinned, where the lanes scroll.

        Those with the most events come first, up to MAX_FIRST_PINS_SHARE of the height; streams that are hidden, or
        folded into their rank's line, stay as they are. Else the CPU's rows would push the GPU off the screen.
        """
        lanes, arrangement = self._trace.lanes, self.arrangement
        streams = [k for k in range(first, last) if lanes[k].role is Role.STREAM and len(lanes[k])]
        if not self.lane_lines.max_top(self.height) or set(streams) & set(arrangement.pinned):
            return arrangement
        room = max(int(self.height * MAX_FIRST_PINS_SHARE), 1)
        chosen: list[int] = []
        for lane in sorted(streams, key=lambda k: -len(lanes[k])):
            rows = 1 if lane in arrangement.folded else lanes[lane].rows
            if lane not in arrangement.hidden and (rows <= room or not chosen):
                chosen.append(lane)
                room -= rows
        return replace(arrangement, pinned=(*arrangement.pinned, *sorted(chosen)))

    def unfold_ranks(self) -> LaneArrangement:
        """Return an arrangement with as many ranks unfolded as fit on the screen.

        Where the rows of all do not fit, their lanes may still, each folded into one line; or those of the first rank.
        """
        headers = [rank.header_lane for rank in self._trace.all_ranks if rank.is_merged]
        folded = self.arrangement.folded
        deep = frozenset(k for k, lane in enumerate(self._trace.lanes) if lane.rows > 1)
        for first_ranks, also_folded in ((headers, frozenset[int]()), (headers, deep), (headers[:1], deep)):
            arrangement = replace(self.arrangement, folded=(folded - set(first_ranks)) | also_folded)
            if not LaneLines.build(self._trace, arrangement).max_top(self.height):
                return arrangement
        return self.arrangement

    @property
    def has_folded_rank(self) -> bool:
        """Whether a rank's lanes are folded into its line."""
        return any(rank.header_lane in self.arrangement.folded for rank in self._trace.all_ranks if rank.is_merged)

    @property
    def are_ranks_folded(self) -> bool:
        """Whether there are several ranks and the lanes of all are folded."""
        folded = self.arrangement.folded
        return all(rank.is_merged and rank.header_lane in folded for rank in self._trace.all_ranks)

    # -- queries -------------------------------------------------------------------------------------------

    def lane_order(self) -> list[int]:
        """Return the lanes in screen order, top to bottom."""
        return self.lane_lines.lanes()

    def displayed_lane(self, lane: int) -> int:
        """Return the lane whose lines show a lane's events: in a folded rank the rank's own lane, unless pinned."""
        if lane in self.arrangement.pinned:
            return lane
        header_lane = self._trace.rank_of_lane(lane).header_lane
        return header_lane if header_lane in self.arrangement.folded else lane

    def find_nearest_event(self, lane: int, time: int) -> int:
        """Return the outermost event of a lane at a time, ns, or the one nearest to it; -1 for a lane without events.

        For a folded rank, take the lane with the most events among those that its line shows. An unfolded rank has
        no events of its own: -1.
        """
        lanes = self._trace.lanes
        if lanes[lane].role is Role.RANK:
            if lane not in self.arrangement.folded:
                return -1
            rows = set(rank_rows(self._trace, lane))
            rank = self._trace.rank_of_lane(lane)
            candidates = [k for k in range(rank.first_lane, rank.last_lane) if lanes[k].row_base in rows]
            if not candidates:
                return -1
            lane = max(candidates, key=lambda k: len(lanes[k]))
        return navigation.nearest_on_lane(self._trace, lane, time)
