"""State of the lanes on screen: folded, pinned and hidden lanes, the scroll offset, and queries about their order."""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query import navigation
from torchprof_tui.ui.explorer.lanes.screen_lines import LaneArrangement, LaneLines, rank_rows


class LaneViewState:
    """Hold the arrangement of the lanes. `top`: the first visible line of the body; `height`: visible lines in all.

    Ranks, and lanes that were merged because there are too many, are folded at first.
    """

    def __init__(self, trace: Trace, height: int) -> None:
        self._trace = trace
        headers = (rank.header_lane for rank in trace.all_ranks if rank.is_merged)
        merged = (number for number, lane in enumerate(trace.lanes) if lane.merged_lanes)
        self.arrangement = LaneArrangement(folded=frozenset([*headers, *merged]))
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
        arrangement = self.arrangement
        if lane in arrangement.hidden:
            arrangement = arrangement.reveal_lane(lane)
        header_lane = self._trace.rank_of_lane(lane).header_lane
        self.apply_arrangement(replace(arrangement, hidden=arrangement.hidden - {header_lane}))

    def find_unseen_stream(self) -> int:
        """Return the stream with the most events if no stream is on screen while scrolled to the top; else -1."""
        lanes = self._trace.lanes
        visible = {line.lane for line in self.lane_lines.visible_lines(0, self.height)}
        streams = [number for number, lane in enumerate(lanes) if lane.role is Role.STREAM]
        if not streams or visible.intersection(streams):
            return -1
        return max(streams, key=lambda number: len(lanes[number]))

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
