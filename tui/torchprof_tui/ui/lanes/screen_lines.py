"""The lines of the lanes: lanes unfolded into rows, folded into one line, pinned on top, or hidden.

Pure: a function of the trace and of what the user folded, pinned and hid. The timeline and the gutter are both painted
from it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from enum import IntEnum
from itertools import accumulate, chain, islice
from typing import NamedTuple, overload

from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.trace import Trace


class LineContent(IntEnum):
    """The kind of content of one line."""

    HEADING = 0  # above the lanes of a group
    ROW = 1  # one nested row of a lane
    FOLDED = 2  # all rows of a lane in one line
    COUNTER = 3
    RULE = 4  # below the pinned lanes
    RANK = 5  # the GPU work of one of several ranks; its lanes follow below, unless they are folded into this line


@record
class ScreenLine:
    """One line. `lane`: for a heading the first lane below it; for a rank its own lane, which has no events."""

    content: LineContent
    lane: int
    row: int = 0  # of the lane
    is_first: bool = False  # the lane's first line, where its label stands
    rank_folded: bool = False  # a rank whose lanes are folded into this line


@record
class LaneArrangement:
    """The lanes that are folded, hidden and pinned, by their index in `Trace.lanes`. Changes return a new one."""

    folded: frozenset[int] = frozenset()
    hidden: frozenset[int] = frozenset()
    pinned: tuple[int, ...] = ()

    def toggle_fold(self, lanes: Sequence[int]) -> LaneArrangement:
        """Fold the lanes, or unfold them where all of them are folded."""
        chosen = frozenset(lanes)
        return replace(self, folded=self.folded - chosen if chosen <= self.folded else self.folded | chosen)

    def toggle_pin(self, lane: int) -> LaneArrangement:
        if lane in self.pinned:
            return replace(self, pinned=tuple(other for other in self.pinned if other != lane))
        return replace(self, pinned=(*self.pinned, lane))


MAX_PINNED_SHARE = 0.5  # pinned lanes take at most this share of the height, so that the others can still be reached
MAX_FOLDED_ROWS = 512
"""Rows of a folded lane that are searched for the deepest event of a cell: a lane may be a million rows deep."""


class _LineBlock(NamedTuple):
    """Consecutive lines of one lane: its rows, or one line of another content."""

    content: LineContent
    lane: int
    lines: int = 1
    rank_folded: bool = False


class LazyLines(Sequence[ScreenLine]):
    """A sequence of lines that are created on access: of a million lines only those on screen exist."""

    def __init__(self, blocks: Sequence[_LineBlock] = ()) -> None:
        self._blocks = blocks
        self._ends = list(accumulate(block.lines for block in blocks))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> ScreenLine: ...
    @overload
    def __getitem__(self, index: slice) -> list[ScreenLine]: ...
    def __getitem__(self, index: int | slice) -> ScreenLine | list[ScreenLine]:
        if isinstance(index, slice):
            return [self[k] for k in range(len(self))[index]]
        index = range(len(self))[index]
        block_index = bisect_right(self._ends, index)
        block = self._blocks[block_index]
        row = index - self._ends[block_index] + block.lines
        is_first = row == 0 and block.content is not LineContent.HEADING
        return ScreenLine(block.content, block.lane, row, is_first, block.rank_folded)

    def iterate_blocks(self) -> Iterator[tuple[_LineBlock, int]]:
        """Yield each block and the index of its first line."""
        for block, end in zip(self._blocks, self._ends, strict=True):
            yield block, end - block.lines


@record(slots=False)
class LaneLines:
    """Hold all lines of a trace. `body` scrolls, `pinned` does not."""

    pinned: LazyLines = field(default_factory=LazyLines)
    body: LazyLines = field(default_factory=LazyLines)
    _line_by_lane: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """By lane: the index of its first line (pinned: from -len(pinned) on), and whether its rows follow there."""

    @classmethod
    def build(cls, trace: Trace, arrangement: LaneArrangement) -> LaneLines:
        """Build the lines of a trace in an arrangement. One pass over the lanes."""
        pinned = LazyLines(
            [
                _build_lane_block(trace, lane, arrangement)
                for lane in arrangement.pinned
                if lane not in arrangement.hidden
            ]
        )
        blocks: list[_LineBlock] = []
        group: str | None = None
        absorbed: list[tuple[int, int]] = []  # (lane of a folded or hidden rank, the rank's own lane)
        rank: _LineBlock | None = None
        for number, lane in enumerate(trace.lanes):
            if lane.role is Role.RANK:
                rank, group = _build_rank_block(number, arrangement), lane.group
            elif rank is not None and (rank.rank_folded or rank.lane in arrangement.hidden):
                absorbed.append((number, rank.lane))
                continue
            if number in arrangement.hidden or number in arrangement.pinned:
                continue
            if lane.group != group:
                group = lane.group
                blocks.append(_LineBlock(LineContent.HEADING, number))
            blocks.append(_build_lane_block(trace, number, arrangement))
        return cls._of_blocks(pinned, LazyLines(blocks), absorbed)

    @classmethod
    def build_plain(cls, trace: Trace, lanes: Sequence[int], arrangement: LaneArrangement) -> LaneLines:
        """Build the lines of some lanes in the given order, without headings, below the pinned ones."""
        pinned = [_build_lane_block(trace, lane, arrangement) for lane in arrangement.pinned]
        return cls._of_blocks(
            LazyLines(pinned), LazyLines([_build_lane_block(trace, lane, arrangement) for lane in lanes]), []
        )

    @classmethod
    def _of_blocks(cls, pinned: LazyLines, body: LazyLines, absorbed: Sequence[tuple[int, int]]) -> LaneLines:
        line_by_lane: dict[int, tuple[int, bool]] = {}
        for lines, origin in ((pinned, -len(pinned)), (body, 0)):
            for block, index in lines.iterate_blocks():
                if block.content is not LineContent.HEADING:
                    line_by_lane[block.lane] = origin + index, block.content is LineContent.ROW
        for number, rank_lane in absorbed:
            if rank_lane in line_by_lane:  # the rank is not hidden; a pinned lane keeps its own line
                line_by_lane.setdefault(number, line_by_lane[rank_lane])
        return cls(pinned, body, line_by_lane)

    def pinned_lanes(self) -> list[int]:
        return [block.lane for block, _ in self.pinned.iterate_blocks()]

    def lanes(self) -> list[int]:
        """Return the lanes that have lines, top to bottom."""
        return list(dict.fromkeys([*self.pinned_lanes(), *(block.lane for block, _ in self.body.iterate_blocks())]))

    def line_index(self, lane: int, row: int) -> int | None:
        """Return the index of a row in `body`, negative in `pinned`; None where its lane is hidden."""
        entry = self._line_by_lane.get(lane)
        return None if entry is None else entry[0] + (row if entry[1] else 0)

    def visible_lines(self, top: int, height: int) -> list[ScreenLine]:
        """Return the lines on a screen of `height` lines scrolled to `top`: pinned lines, a rule, lines of the body."""
        fixed = self.count_fixed_lines(height)
        top = min(top, self.max_top(height))
        if not fixed:
            return self.body[top : top + height]
        return [*self.pinned[: fixed - 1], ScreenLine(LineContent.RULE, -1), *self.body[top : top + height - fixed]]

    def count_fixed_lines(self, height: int) -> int:
        """Return the number of lines that do not scroll, including the rule."""
        if not self.pinned:
            return 0
        return min(len(self.pinned), max(1, int(height * MAX_PINNED_SHARE) - 1)) + 1

    def max_top(self, height: int) -> int:
        """Return the largest scroll offset of the body."""
        return max(0, len(self.body) - (height - self.count_fixed_lines(height)))

    def top_to_reveal(self, index: int, top: int, height: int) -> int:
        """Return the scroll offset that shows a body line, changed as little as possible."""
        body_height = max(1, height - self.count_fixed_lines(height))
        if index < 0:
            return top
        margin = min(2, (body_height - 1) // 2)
        return min(max(min(top, index - margin), index - body_height + 1 + margin, 0), self.max_top(height))

    def screen_line_index(self, lane: int, row: int, top: int, height: int) -> int | None:
        """Return the screen line of a row; None where it is not on screen."""
        index = self.line_index(lane, row)
        if index is None:
            return None
        fixed = self.count_fixed_lines(height)
        if index < 0:
            y = index + len(self.pinned)
            return y if y < fixed - 1 else None
        y = index - top + fixed
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
    """Return the rows, numbered over the whole trace, that a folded lane draws the deepest event of."""
    return lane_rows(lane)[:MAX_FOLDED_ROWS]


def rank_rows(trace: Trace, rank_lane: int) -> list[int]:
    """Return the rows, numbered over the whole trace, that the line of a rank shows at once: those of its streams.

    Where no rank has GPU work, return the outermost row of each of its threads. Beside the GPU work of other ranks they
    would be taken for GPU work. `rank_lane`: the rank's own lane.
    """
    assert trace.merged_ranks is not None
    rank = trace.merged_ranks.rank_of_lane(rank_lane)
    lanes = trace.lanes[rank.first_lane : rank.last_lane]
    streams = chain.from_iterable(lane_rows(lane) for lane in lanes if lane.role is Role.STREAM)
    threads = (lane.row_base for lane in lanes if lane.role is Role.THREAD and not trace.merged_ranks.has_gpu_work)
    return list(islice(streams, MAX_FOLDED_ROWS)) or list(islice(threads, MAX_FOLDED_ROWS))


def lane_rows(lane: Lane) -> range:
    """Return the rows of a lane, numbered over the whole trace."""
    return range(lane.row_base, lane.row_base + lane.rows)
