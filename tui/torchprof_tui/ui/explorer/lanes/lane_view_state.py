"""The lanes as they stand on the screen: what is folded, pinned and hidden, how far they are scrolled, and which event
a lane shows at a time."""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query import navigation
from torchprof_tui.ui.explorer.lanes.screen_lines import Arrangement, LaneLines, rank_rows


class LaneView:
    """`top`: the first line of the body that is shown, of `height` in all. Of several ranks each begins folded, as do
    lanes put together."""

    def __init__(self, trace: Trace, height: int) -> None:
        self._trace = trace
        ranks = trace.ranks.all if trace.ranks is not None else ()
        further = (number for number, lane in enumerate(trace.lanes) if lane.further)
        self.arrangement = Arrangement(folded=frozenset([*(rank.own_lane for rank in ranks), *further]))
        self.lines = LaneLines.build(trace, self.arrangement)
        self.height = height
        self.top = 0

    # -- what is in sight ----------------------------------------------------------------------------------

    def scroll(self, lines: int) -> None:
        self.top = min(max(self.top + lines, 0), self.lines.last_top(self.height))

    def reveal(self, lane: int, row: int) -> None:
        """Scroll no more than it takes to have this row in sight."""
        place = self.lines.place(lane, row)
        if place is not None:
            self.top = self.lines.reveal(place, self.top, self.height)

    def resize(self, height: int) -> None:
        self.height = height
        self.scroll(0)

    # -- how they are arranged -----------------------------------------------------------------------------

    def arrange(self, arrangement: Arrangement) -> bool:
        """Whether anything is other than it was."""
        if arrangement == self.arrangement:
            return False
        self.arrangement = arrangement
        self.lines = LaneLines.build(self._trace, arrangement)
        self.top = min(self.top, self.lines.last_top(self.height))
        return True

    def bring_back(self, lane: int) -> None:
        """Make a lane's events drawable: it and its rank are hidden no more."""
        arranged = self.arrangement
        if lane in arranged.hidden:
            arranged = arranged.show(lane)
        if self._trace.ranks is not None:
            own = self._trace.ranks.of_lane(lane).own_lane
            arranged = replace(arranged, hidden=arranged.hidden - {own})
        self.arrange(arranged)

    def unseen_stream(self) -> int:
        """The stream with the most events, where not one stream is in sight from the top; else -1."""
        lanes = self._trace.lanes
        shown = {each.lane for each in self.lines.window(0, self.height)}
        streams = [number for number, lane in enumerate(lanes) if lane.role is Role.STREAM]
        if not streams or shown.intersection(streams):
            return -1
        return max(streams, key=lambda number: len(lanes[number]))

    # -- one lane and its neighbours -----------------------------------------------------------------------

    def order(self) -> list[int]:
        """Lanes as they stand on the screen, top to bottom."""
        return self.lines.lanes()

    def line_for(self, lane: int) -> int:
        """The lane on whose lines a lane's events are: itself, or in a folded rank the rank's own, unless it is
        pinned."""
        if self._trace.ranks is None or lane in self.arrangement.pinned:
            return lane
        own = self._trace.ranks.of_lane(lane).own_lane
        return own if own in self.arrangement.folded else lane

    def nearest(self, lane: int, time: int) -> int:
        """The outermost event of a lane at a time, or nearest to it; of a folded rank that of the fullest lane that its
        line shows. -1 without any; a rank that is open is passed through."""
        ranks, lanes = self._trace.ranks, self._trace.lanes
        if ranks is not None and lanes[lane].role is Role.RANK:
            if lane not in self.arrangement.folded:
                return -1
            shown = set(rank_rows(self._trace, lane))
            rank = ranks.of_lane(lane)
            inside = [k for k in range(rank.first_lane, rank.last_lane) if lanes[k].row_base in shown]
            if not inside:
                return -1
            lane = max(inside, key=lambda k: len(lanes[k]))
        return navigation.nearest_on_lane(self._trace, lane, time)
