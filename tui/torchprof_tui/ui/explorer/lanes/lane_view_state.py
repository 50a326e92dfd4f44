"""The lanes as they stand on the screen: what is folded, pinned and hidden, how far they are scrolled, and which event
a lane shows at a time."""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query import navigation
from torchprof_tui.ui.explorer.lanes.screen_lines import LaneArrangement, LaneLines, rank_rows


class LaneViewState:
    """`top`: the first line of the body that is shown, of `height` in all. Of several ranks each begins folded, as do
    lanes put together."""

    def __init__(self, trace: Trace, height: int) -> None:
        self._trace = trace
        ranks = trace.ranks.all if trace.ranks is not None else ()
        further = (number for number, lane in enumerate(trace.lanes) if lane.merged_lanes)
        self.arrangement = LaneArrangement(folded=frozenset([*(rank.header_lane for rank in ranks), *further]))
        self.lane_lines = LaneLines.build(trace, self.arrangement)
        self.height = height
        self.top = 0

    # -- what is in sight ----------------------------------------------------------------------------------

    def scroll(self, lines: int) -> None:
        self.top = min(max(self.top + lines, 0), self.lane_lines.max_top(self.height))

    def scroll_to_row(self, lane: int, row: int) -> None:
        """Scroll no more than it takes to have this row in sight."""
        place = self.lane_lines.line_index(lane, row)
        if place is not None:
            self.top = self.lane_lines.top_to_reveal(place, self.top, self.height)

    def resize(self, height: int) -> None:
        self.height = height
        self.scroll(0)

    # -- how they are arranged -----------------------------------------------------------------------------

    def apply_arrangement(self, arrangement: LaneArrangement) -> bool:
        """Whether anything is other than it was."""
        if arrangement == self.arrangement:
            return False
        self.arrangement = arrangement
        self.lane_lines = LaneLines.build(self._trace, arrangement)
        self.top = min(self.top, self.lane_lines.max_top(self.height))
        return True

    def reveal_lane(self, lane: int) -> None:
        """Make a lane's events drawable: it and its rank are hidden no more."""
        arranged = self.arrangement
        if lane in arranged.hidden:
            arranged = arranged.reveal_lane(lane)
        if self._trace.ranks is not None:
            own = self._trace.ranks.rank_of_lane(lane).header_lane
            arranged = replace(arranged, hidden=arranged.hidden - {own})
        self.apply_arrangement(arranged)

    def find_unseen_stream(self) -> int:
        """The stream with the most events, where not one stream is in sight from the top; else -1."""
        lanes = self._trace.lanes
        shown = {each.lane for each in self.lane_lines.visible_lines(0, self.height)}
        streams = [number for number, lane in enumerate(lanes) if lane.role is Role.STREAM]
        if not streams or shown.intersection(streams):
            return -1
        return max(streams, key=lambda number: len(lanes[number]))

    # -- one lane and its neighbours -----------------------------------------------------------------------

    def lane_order(self) -> list[int]:
        """Lanes as they stand on the screen, top to bottom."""
        return self.lane_lines.lanes()

    def displayed_lane(self, lane: int) -> int:
        """The lane on whose lines a lane's events are: itself, or in a folded rank the rank's own, unless it is
        pinned."""
        if self._trace.ranks is None or lane in self.arrangement.pinned:
            return lane
        own = self._trace.ranks.rank_of_lane(lane).header_lane
        return own if own in self.arrangement.folded else lane

    def find_nearest_event(self, lane: int, time: int) -> int:
        """The outermost event of a lane at a time, or nearest to it; of a folded rank that of the fullest lane that its
        line shows. -1 without any; a rank that is open is passed through."""
        ranks, lanes = self._trace.ranks, self._trace.lanes
        if ranks is not None and lanes[lane].role is Role.RANK:
            if lane not in self.arrangement.folded:
                return -1
            shown = set(rank_rows(self._trace, lane))
            rank = ranks.rank_of_lane(lane)
            inside = [k for k in range(rank.first_lane, rank.last_lane) if lanes[k].row_base in shown]
            if not inside:
                return -1
            lane = max(inside, key=lambda k: len(lanes[k]))
        return navigation.nearest_on_lane(self._trace, lane, time)
