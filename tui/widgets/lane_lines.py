"""Which line of the screen shows what: lanes unfolded into rows, folded into one, pinned on top, or hidden.

Pure: a function of the trace and of what the user folded, pinned and hid. The timeline and the gutter both draw
from it, side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from tui.trace.trace import Lane, Role, Trace


class Content(IntEnum):
    """What one line holds."""

    HEADING = 0  # over the lanes of a group
    ROW = 1  # one nested row of a lane
    FOLDED = 2  # all rows of a lane in one line
    COUNTER = 3
    RULE = 4  # under the pinned lanes
    RANK = 5  # one of several ranks: what its GPUs did; its lanes lie beneath, unless they are folded into it


@dataclass(frozen=True, slots=True)
class Line:
    """One line. For a heading, `lane` is the first lane under it; for a rank its own, which has no events."""

    content: Content
    lane: int
    row: int = 0  # of the lane
    first: bool = False  # the lane's first line, where its label stands
    closed: bool = False  # a rank whose lanes are folded into this line


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What the user did to the lanes, by their number in `Trace.lanes`. Changed by making another."""

    folded: frozenset[int] = frozenset()
    hidden: frozenset[int] = frozenset()
    pinned: tuple[int, ...] = ()

    def fold(self, lanes: Sequence[int]) -> Arrangement:
        """Fold the lanes, or unfold them where all of them are folded."""
        chosen = frozenset(lanes)
        return replace(self, folded=self.folded - chosen if chosen <= self.folded else self.folded | chosen)

    def pin(self, lane: int) -> Arrangement:
        """Pin the lane, or let it go."""
        if lane in self.pinned:
            return replace(self, pinned=tuple(other for other in self.pinned if other != lane))
        return replace(self, pinned=(*self.pinned, lane))

    def hide(self, lane: int) -> Arrangement:
        return replace(self, hidden=self.hidden | {lane})

    def show(self, lane: int) -> Arrangement:
        """Make a lane's events drawable again: neither hidden nor folded."""
        return replace(self, hidden=self.hidden - {lane}, folded=self.folded - {lane})

    def show_all(self) -> Arrangement:
        return replace(self, hidden=frozenset())


PINNED_SHARE = 0.5
"""Pinned lanes take at most this share of the height: the others must stay reachable."""


@dataclass(frozen=True)
class LaneLines:
    """All lines of the trace, pinned ones apart. `body` scrolls, `pinned` does not."""

    pinned: tuple[Line, ...]
    body: tuple[Line, ...]
    _places: dict[tuple[int, int], int]  # (lane, row) -> place; pinned ones count from -len(pinned)

    @classmethod
    def build(cls, trace: Trace, arrangement: Arrangement) -> LaneLines:
        pinned = [
            line
            for lane in arrangement.pinned
            if lane not in arrangement.hidden
            for line in _lane_lines(trace, lane, arrangement)
        ]
        body: list[Line] = []
        group: str | None = None
        inside: list[tuple[int, int]] = []  # lanes in a folded rank's line, and that line's place
        rank: Line | None = None
        for number, lane in enumerate(trace.lanes):
            if lane.role is Role.RANK:
                rank, group = _rank_line(number, arrangement), lane.group
            elif rank is not None and (rank.closed or rank.lane in arrangement.hidden):
                inside.append((number, rank.lane))
                continue
            if number in arrangement.hidden or number in arrangement.pinned:
                continue
            if lane.group != group:
                group = lane.group
                body.append(Line(Content.HEADING, number))
            body.extend(_lane_lines(trace, number, arrangement))
        places: dict[tuple[int, int], int] = {}
        for lines, origin in ((pinned, -len(pinned)), (body, 0)):
            for place, line in enumerate(lines, origin):
                if line.content is not Content.HEADING:
                    places[line.lane, line.row if line.content is not Content.FOLDED else -1] = place
        for number, own in inside:
            if (own, 0) in places:  # neither hidden; a lane that is pinned has its place there
                places.setdefault((number, -1), places[own, 0])
        return cls(tuple(pinned), tuple(body), places)

    def place(self, lane: int, row: int) -> int | None:
        """Where a row lies: a place in `body`, or below zero in `pinned`; None where its lane is hidden."""
        found = self._places.get((lane, row))
        return found if found is not None else self._places.get((lane, -1))

    def window(self, top: int, height: int) -> list[Line]:
        """What `height` lines show when the body is scrolled to `top`: pinned lines, a rule, the body's."""
        fixed = self.fixed(height)
        top = min(top, self.last_top(height))
        if not fixed:
            return list(self.body[top : top + height])
        return [*self.pinned[: fixed - 1], Line(Content.RULE, -1), *self.body[top : top + height - fixed]]

    def fixed(self, height: int) -> int:
        """How many lines do not scroll, the rule among them."""
        if not self.pinned:
            return 0
        return min(len(self.pinned), max(1, int(height * PINNED_SHARE) - 1)) + 1

    def last_top(self, height: int) -> int:
        """How far the body can be scrolled."""
        return max(0, len(self.body) - (height - self.fixed(height)))

    def reveal(self, place: int, top: int, height: int) -> int:
        """The scroll offset that has a body line on screen, changed as little as possible."""
        room = max(1, height - self.fixed(height))
        if place < 0:
            return top
        margin = min(2, (room - 1) // 2)
        return min(max(min(top, place - margin), place - room + 1 + margin, 0), self.last_top(height))

    def line_on_screen(self, lane: int, row: int, top: int, height: int) -> int | None:
        """The screen line of a row; None where it is not on screen."""
        place = self.place(lane, row)
        if place is None:
            return None
        fixed = self.fixed(height)
        if place < 0:
            y = place + len(self.pinned)
            return y if y < fixed - 1 else None
        y = place - top + fixed
        return y if fixed <= y < height else None


def _lane_lines(trace: Trace, number: int, arrangement: Arrangement) -> list[Line]:
    lane = trace.lanes[number]
    if lane.role is Role.RANK:
        return [_rank_line(number, arrangement)]
    if lane.role is Role.COUNTER:
        return [Line(Content.COUNTER, number, 0, True)]
    if number in arrangement.folded:
        return [Line(Content.FOLDED, number, 0, True)]
    return [Line(Content.ROW, number, row, row == 0) for row in range(lane.rows)]


def _rank_line(number: int, arrangement: Arrangement) -> Line:
    return Line(Content.RANK, number, 0, True, number in arrangement.folded)


def rank_rows(trace: Trace, own: int) -> list[int]:
    """The rows, of the whole trace, that a rank's line shows at once: those of its streams; without a GPU the outermost
    of its threads. `own`: the rank's line among the lanes."""
    assert trace.ranks is not None
    rank = trace.ranks.of_lane(own)
    lanes = trace.lanes[rank.first_lane : rank.last_lane]
    streams = [row for lane in lanes if lane.role is Role.STREAM for row in rows_of(lane)]
    return streams or [lane.row_base for lane in lanes if lane.role is Role.THREAD]


def rows_of(lane: Lane) -> range:
    """A lane's rows, numbered over the whole trace."""
    return range(lane.row_base, lane.row_base + lane.rows)
