"""Which line of the screen shows what: lanes unfolded into rows, folded into one, pinned on top, or hidden.

Pure: a function of the trace and of what the user folded, pinned and hid. The timeline and the gutter both draw
from it, side by side.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import accumulate, chain, islice
from typing import NamedTuple, overload

from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.trace import Trace


class LineContent(IntEnum):
    """What one line holds."""

    HEADING = 0  # over the lanes of a group
    ROW = 1  # one nested row of a lane
    FOLDED = 2  # all rows of a lane in one line
    COUNTER = 3
    RULE = 4  # under the pinned lanes
    RANK = 5  # one of several ranks: what its GPUs did; its lanes lie beneath, unless they are folded into it


@dataclass(frozen=True, slots=True)
class ScreenLine:
    """One line. For a heading, `lane` is the first lane under it; for a rank its own, which has no events."""

    content: LineContent
    lane: int
    row: int = 0  # of the lane
    is_first: bool = False  # the lane's first line, where its label stands
    rank_folded: bool = False  # a rank whose lanes are folded into this line


@dataclass(frozen=True, slots=True)
class LaneArrangement:
    """What the user did to the lanes, by their number in `Trace.lanes`. Changed by making another."""

    folded: frozenset[int] = frozenset()
    hidden: frozenset[int] = frozenset()
    pinned: tuple[int, ...] = ()

    def toggle_fold(self, lanes: Sequence[int]) -> LaneArrangement:
        """Fold the lanes, or unfold them where all of them are folded."""
        chosen = frozenset(lanes)
        return replace(self, folded=self.folded - chosen if chosen <= self.folded else self.folded | chosen)

    def toggle_pin(self, lane: int) -> LaneArrangement:
        """Pin the lane, or let it go."""
        if lane in self.pinned:
            return replace(self, pinned=tuple(other for other in self.pinned if other != lane))
        return replace(self, pinned=(*self.pinned, lane))

    def hide_lane(self, lane: int) -> LaneArrangement:
        return replace(self, hidden=self.hidden | {lane})

    def reveal_lane(self, lane: int) -> LaneArrangement:
        """Make a lane's events drawable again: neither hidden nor folded."""
        return replace(self, hidden=self.hidden - {lane}, folded=self.folded - {lane})

    def unhide_all(self) -> LaneArrangement:
        return replace(self, hidden=frozenset())


MAX_PINNED_SHARE = 0.5
"""Pinned lanes take at most this share of the height: the others must stay reachable."""


MAX_FOLDED_ROWS = 512
"""Of a folded lane so many rows are looked at, and the deepest of them drawn: a lane may be a million rows deep."""


class _LineBlock(NamedTuple):
    """Lines of one lane that follow each other: its rows, or one line of another content."""

    content: LineContent
    lane: int
    lines: int = 1
    rank_folded: bool = False

    def make_line(self, row: int) -> ScreenLine:
        return ScreenLine(
            self.content, self.lane, row, row == 0 and self.content is not LineContent.HEADING, self.rank_folded
        )


class LazyLines(Sequence[ScreenLine]):
    """Lines, made when they are looked at: only those on screen are, of a million."""

    def __init__(self, blocks: Sequence[_LineBlock] = ()) -> None:
        self._blocks = blocks
        self._ends = list(accumulate(block.lines for block in blocks))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, place: int) -> ScreenLine: ...
    @overload
    def __getitem__(self, place: slice) -> list[ScreenLine]: ...
    def __getitem__(self, place: int | slice) -> ScreenLine | list[ScreenLine]:
        if isinstance(place, slice):
            return [self[k] for k in range(len(self))[place]]
        place = range(len(self))[place]
        number = bisect_right(self._ends, place)
        block = self._blocks[number]
        return block.make_line(place - self._ends[number] + block.lines)

    def iterate_blocks(self) -> Iterator[tuple[_LineBlock, int]]:
        """Each run of lines of one lane, and where it begins."""
        for block, end in zip(self._blocks, self._ends, strict=True):
            yield block, end - block.lines


@dataclass(frozen=True)
class LaneLines:
    """All lines of the trace, pinned ones apart. `body` scrolls, `pinned` does not."""

    pinned: LazyLines = field(default_factory=LazyLines)
    body: LazyLines = field(default_factory=LazyLines)
    _line_by_lane: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """By lane: the place of its first line, pinned ones counting from -len(pinned); whether its rows follow there."""

    @classmethod
    def build(cls, trace: Trace, arrangement: LaneArrangement) -> LaneLines:
        pinned = LazyLines(
            [
                _build_lane_block(trace, lane, arrangement)
                for lane in arrangement.pinned
                if lane not in arrangement.hidden
            ]
        )
        blocks: list[_LineBlock] = []
        group: str | None = None
        inside: list[tuple[int, int]] = []  # lanes in a folded rank's line, and that line's lane
        rank: _LineBlock | None = None
        for number, lane in enumerate(trace.lanes):
            if lane.role is Role.RANK:
                rank, group = _build_rank_block(number, arrangement), lane.group
            elif rank is not None and (rank.rank_folded or rank.lane in arrangement.hidden):
                inside.append((number, rank.lane))
                continue
            if number in arrangement.hidden or number in arrangement.pinned:
                continue
            if lane.group != group:
                group = lane.group
                blocks.append(_LineBlock(LineContent.HEADING, number))
            blocks.append(_build_lane_block(trace, number, arrangement))
        body = LazyLines(blocks)
        places: dict[int, tuple[int, bool]] = {}
        for lines, origin in ((pinned, -len(pinned)), (body, 0)):
            for block, place in lines.iterate_blocks():
                if block.content is not LineContent.HEADING:
                    places[block.lane] = origin + place, block.content is LineContent.ROW
        for number, own in inside:
            if own in places:  # not hidden; a lane that is pinned has its place there
                places.setdefault(number, places[own])
        return cls(pinned, body, places)

    def pinned_lanes(self) -> list[int]:
        return [block.lane for block, _ in self.pinned.iterate_blocks()]

    def lanes(self) -> list[int]:
        """The lanes that have lines, top to bottom."""
        return list(dict.fromkeys([*self.pinned_lanes(), *(block.lane for block, _ in self.body.iterate_blocks())]))

    def line_index(self, lane: int, row: int) -> int | None:
        """Where a row lies: a place in `body`, or below zero in `pinned`; None where its lane is hidden."""
        found = self._line_by_lane.get(lane)
        return None if found is None else found[0] + (row if found[1] else 0)

    def visible_lines(self, top: int, height: int) -> list[ScreenLine]:
        """What `height` lines show when the body is scrolled to `top`: pinned lines, a rule, the body's."""
        fixed = self.count_fixed_lines(height)
        top = min(top, self.max_top(height))
        if not fixed:
            return self.body[top : top + height]
        return [*self.pinned[: fixed - 1], ScreenLine(LineContent.RULE, -1), *self.body[top : top + height - fixed]]

    def count_fixed_lines(self, height: int) -> int:
        """How many lines do not scroll, the rule among them."""
        if not self.pinned:
            return 0
        return min(len(self.pinned), max(1, int(height * MAX_PINNED_SHARE) - 1)) + 1

    def max_top(self, height: int) -> int:
        """How far the body can be scrolled."""
        return max(0, len(self.body) - (height - self.count_fixed_lines(height)))

    def top_to_reveal(self, index: int, top: int, height: int) -> int:
        """The scroll offset that has a body line on screen, changed as little as possible."""
        room = max(1, height - self.count_fixed_lines(height))
        if index < 0:
            return top
        margin = min(2, (room - 1) // 2)
        return min(max(min(top, index - margin), index - room + 1 + margin, 0), self.max_top(height))

    def screen_line_index(self, lane: int, row: int, top: int, height: int) -> int | None:
        """The screen line of a row; None where it is not on screen."""
        place = self.line_index(lane, row)
        if place is None:
            return None
        fixed = self.count_fixed_lines(height)
        if place < 0:
            y = place + len(self.pinned)
            return y if y < fixed - 1 else None
        y = place - top + fixed
        return y if fixed <= y < height else None


def _build_lane_block(trace: Trace, number: int, arrangement: LaneArrangement) -> _LineBlock:
    lane = trace.lanes[number]
    if lane.role is Role.RANK:
        return _build_rank_block(number, arrangement)
    if lane.role is Role.COUNTER:
        return _LineBlock(LineContent.COUNTER, number)
    if number in arrangement.folded:
        return _LineBlock(LineContent.FOLDED, number)
    return _LineBlock(LineContent.ROW, number, lane.rows)


def _build_rank_block(number: int, arrangement: LaneArrangement) -> _LineBlock:
    return _LineBlock(LineContent.RANK, number, rank_folded=number in arrangement.folded)


def folded_rows(lane: Lane) -> range:
    """The rows, of the whole trace, of which the deepest is drawn where a lane is folded."""
    return lane_rows(lane)[:MAX_FOLDED_ROWS]


def rank_rows(trace: Trace, rank_lane: int) -> list[int]:
    """The rows, of the whole trace, that a rank's line shows at once: those of its streams; where no rank has a GPU the
    outermost of its threads, which beside others' GPU work would be taken for the same. `own`: the rank's line among
    the lanes."""
    assert trace.ranks is not None
    rank = trace.ranks.rank_of_lane(rank_lane)
    lanes = trace.lanes[rank.first_lane : rank.last_lane]
    streams = chain.from_iterable(lane_rows(lane) for lane in lanes if lane.role is Role.STREAM)
    threads = (lane.row_base for lane in lanes if lane.role is Role.THREAD and not trace.ranks.has_gpu_work)
    return list(islice(streams, MAX_FOLDED_ROWS)) or list(islice(threads, MAX_FOLDED_ROWS))


def lane_rows(lane: Lane) -> range:
    """A lane's rows, numbered over the whole trace."""
    return range(lane.row_base, lane.row_base + lane.rows)
