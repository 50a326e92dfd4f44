"""What one frame of the lanes is made of: for each screen line that shows events, what each of its cells shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.level_of_detail import Cells, compute_cells
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.explorer.lanes.bar_painter import merge_busiest, merge_deepest
from torchprof_tui.ui.explorer.lanes.screen_lines import LineContent, ScreenLine, folded_rows, rank_rows


@dataclass(frozen=True, slots=True)
class LaneFrame:
    """The cells of those screen lines that show events."""

    viewport: Viewport
    lines: tuple[ScreenLine, ...]
    row_by_line: dict[int, int]  # screen line -> row of `cells`
    cells: Cells

    def occupied_cells(self, height: int) -> Bool:
        """bool[height, width]: cells of the screen that nothing else can be written into."""
        found = np.zeros((height, self.viewport.width), np.bool_)
        for y, line in enumerate(self.lines[:height]):
            if y in self.row_by_line:
                found[y] = self.cells.event[self.row_by_line[y]] >= 0
            elif line.content in (LineContent.COUNTER, LineContent.RANK):
                found[y] = True
        return found

    def rule_lines(self) -> frozenset[int]:
        """The screen lines that are a rule from side to side."""
        return frozenset(
            y for y, line in enumerate(self.lines) if line.content in (LineContent.HEADING, LineContent.RULE)
        )


def build_frame(trace: Trace, viewport: Viewport, lines: tuple[ScreenLine, ...]) -> LaneFrame:
    """One row of cells each for all lines that show events; folded lanes' rows put together."""
    rows: list[int] = []
    spans: list[tuple[int, int, int]] = []  # screen line, and where its rows lie in `rows`
    for y, line in enumerate(lines):
        if line.content in (LineContent.ROW, LineContent.FOLDED, LineContent.RANK):
            first = len(rows)
            rows.extend(_list_rows(trace, line))
            if len(rows) > first or is_cpu_only(trace, line):  # a rank may have recorded nothing
                spans.append((y, first, len(rows)))
    found = compute_cells(trace.row_index, np.array(rows, dtype=np.int32), viewport.t0, viewport.t1, viewport.width)
    if len(spans) == len(rows) and all(last > first for _, first, last in spans):
        return LaneFrame(viewport, lines, {y: first for y, first, _ in spans}, found)
    parts = [Cells(found.event[a:b], found.busy[a:b], found.count[a:b]) for _, a, b in spans]
    parts = [_merge_rows(part, lines[y].content) for part, (y, _, _) in zip(parts, spans, strict=True)]
    merged = Cells(
        np.concatenate([part.event for part in parts]),
        np.concatenate([part.busy for part in parts]),
        np.concatenate([part.count for part in parts]),
    )
    return LaneFrame(viewport, lines, {y: place for place, (y, _, _) in enumerate(spans)}, merged)


def lanes_merged_in_line(trace: Trace, line: ScreenLine) -> range:
    """The lanes whose events all lie in this one line."""
    if line.content is LineContent.RANK and line.rank_folded and trace.ranks is not None:
        rank = trace.ranks.rank_of_lane(line.lane)
        return range(rank.first_lane, rank.last_lane)
    return range(line.lane, line.lane + (line.content is LineContent.FOLDED))


def is_cpu_only(trace: Trace, line: ScreenLine) -> bool:
    """Whether this is the line of a rank that recorded no GPU work while others did. Only what is selected is drawn
    in it."""
    if line.content is not LineContent.RANK or trace.ranks is None:
        return False
    own = trace.ranks.rank_of_lane(line.lane).trace
    return len(own) > 0 and not own.links.gpu_events and trace.ranks.has_gpu_work


def _merge_rows(part: Cells, content: LineContent) -> Cells:
    """The rows of a line put together."""
    if len(part.event) == 1:
        return part
    if not len(part.event):
        return _empty_cells(part.event.shape[1])
    return (merge_busiest if content is LineContent.RANK else merge_deepest)(part)


def _empty_cells(width: int) -> Cells:
    return Cells(np.full((1, width), -1, np.int32), np.zeros((1, width), np.float32), np.zeros((1, width), np.int32))


def _list_rows(trace: Trace, line: ScreenLine) -> Sequence[int]:
    """The rows of the whole trace that a line shows."""
    if line.content is LineContent.RANK:
        return rank_rows(trace, line.lane)
    lane = trace.lanes[line.lane]
    return folded_rows(lane) if line.content is LineContent.FOLDED else [lane.row_base + line.row]
