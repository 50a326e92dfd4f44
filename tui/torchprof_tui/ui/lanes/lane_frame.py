"""The content of one frame of the lanes: the event in each cell of each line, and which cells a critical path is in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from torchprof_tui.trace.core.arrays import I32, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.cells import Cells, cell_edges
from torchprof_tui.trace.query.navigation import extent
from torchprof_tui.trace.query.viewport import Viewport, compute_viewport_cells
from torchprof_tui.ui.lanes.bar_painter import PathCells, merge_busiest, merge_deepest
from torchprof_tui.ui.lanes.screen_lines import LineContent, ScreenLine, folded_rows, rank_rows

if TYPE_CHECKING:
    from torchprof_tui.analysis.critical_path.segments import PathRows


@record
class LaneFrame:
    """Hold the cells of those screen lines that show events."""

    viewport: Viewport
    lines: tuple[ScreenLine, ...]
    row_by_line: dict[int, int]  # screen line -> row of `cells`
    cells: Cells

    def occupied_cells(self, height: int) -> Bool:
        """Return bool[height, width]: the cells that nothing else can be drawn into."""
        occupied = np.zeros((height, self.viewport.width), np.bool_)
        for y, line in enumerate(self.lines[:height]):
            if y in self.row_by_line:
                occupied[y] = self.cells.event[self.row_by_line[y]] >= 0
            elif line.content in (LineContent.COUNTER, LineContent.RANK):
                occupied[y] = True
        return occupied

    def rule_lines(self) -> frozenset[int]:
        """Return the screen lines that are a rule over the full width."""
        return frozenset(
            y for y, line in enumerate(self.lines) if line.content in (LineContent.HEADING, LineContent.RULE)
        )


def build_frame(trace: Trace, viewport: Viewport, lines: tuple[ScreenLine, ...]) -> LaneFrame:
    """Compute one row of cells for each line that shows events; the rows of folded lanes and ranks are merged."""
    rows: list[int] = []
    spans: list[tuple[int, int, int]] = []  # (screen line, first and last of its rows in `rows`)
    for y, line in enumerate(lines):
        if line.content in (LineContent.ROW, LineContent.FOLDED, LineContent.RANK):
            first = len(rows)
            rows.extend(list_rows(trace, line))
            if len(rows) > first or is_cpu_only(trace, line):  # a rank may have recorded no event
                spans.append((y, first, len(rows)))
    cells = compute_viewport_cells(trace.row_index, np.array(rows, dtype=np.int32), viewport)
    if len(spans) == len(rows) and all(last > first for _, first, last in spans):
        return LaneFrame(viewport, lines, {y: first for y, first, _ in spans}, cells)
    parts = [Cells(cells.event[a:b], cells.busy[a:b], cells.count[a:b]) for _, a, b in spans]
    parts = [_merge_rows(part, lines[y].content) for part, (y, _, _) in zip(parts, spans, strict=True)]
    merged = Cells(
        np.concatenate([part.event for part in parts]),
        np.concatenate([part.busy for part in parts]),
        np.concatenate([part.count for part in parts]),
    )
    return LaneFrame(viewport, lines, {y: row for row, (y, _, _) in enumerate(spans)}, merged)


def lanes_merged_in_line(trace: Trace, line: ScreenLine) -> range:
    """Return the lanes whose events are all drawn in this one line."""
    if line.content is LineContent.RANK and line.rank_folded:
        rank = trace.rank_of_lane(line.lane)
        return range(rank.first_lane, rank.last_lane)
    return range(line.lane, line.lane + (line.content is LineContent.FOLDED))


def is_cpu_only(trace: Trace, line: ScreenLine) -> bool:
    """Return whether this is the line of a rank without GPU work while other ranks have some.

    Only the selected event is drawn in it.
    """
    if line.content is not LineContent.RANK or trace.merged_ranks is None:
        return False
    rank_trace = trace.merged_ranks.rank_of_lane(line.lane).trace
    return len(rank_trace) > 0 and not rank_trace.links.gpu_events and trace.merged_ranks.has_gpu_work


def find_lines_of_events(trace: Trace, lines: Sequence[ScreenLine], events: Iterable[int]) -> list[int]:
    """Return the screen lines on which the events are drawn; numbers outside the trace are ignored."""
    rows = {(int(trace.lane[event]), int(trace.row[event])) for event in events if 0 <= event < len(trace)}
    lanes = {lane for lane, _ in rows}
    return [
        y
        for y, line in enumerate(lines)
        if (line.content is LineContent.ROW and (line.lane, line.row) in rows)
        or not lanes.isdisjoint(lanes_merged_in_line(trace, line))
    ]


def force_events(trace: Trace, frame: LaneFrame, ys: Sequence[int], cells: Cells, events: I32) -> None:
    """Write events into `cells`, over longer events in the same cells. Row k of `cells` is screen line `ys[k]`."""
    viewport = frame.viewport
    start = trace.start[events]
    on_screen = (start < viewport.t1) & (start + np.maximum(trace.duration[events], 1) > viewport.t0)
    row_cells = {(frame.lines[y].lane, frame.lines[y].row): k for k, y in enumerate(ys)}
    merged_cells = {lane: k for k, y in enumerate(ys) for lane in lanes_merged_in_line(trace, frame.lines[y])}
    for event in events[on_screen].tolist():
        lane = int(trace.lane[event])
        k = merged_cells.get(lane, row_cells.get((lane, int(trace.row[event]))))
        if k is None:
            continue
        start_time, end_time = extent(trace, event)
        first = max(viewport.cell(start_time), 0)
        last = min(viewport.cell(end_time - 1), viewport.width - 1)
        cells.event[k, first : last + 1] = event


def _merge_rows(part: Cells, content: LineContent) -> Cells:
    if len(part.event) == 1:
        return part
    if not len(part.event):
        shape = 1, part.event.shape[1]
        return Cells(np.full(shape, -1, np.int32), np.zeros(shape, np.float32), np.zeros(shape, np.int32))
    return (merge_busiest if content is LineContent.RANK else merge_deepest)(part)


def list_rows(trace: Trace, line: ScreenLine) -> Sequence[int]:
    """List the rows, numbered over the whole trace, that a line shows."""
    if line.content is LineContent.RANK:
        return rank_rows(trace, line.lane)
    lane = trace.lanes[line.lane]
    return folded_rows(lane) if line.content is LineContent.FOLDED else [lane.row_base + line.row]


def select_path_cells(trace: Trace, frame: LaneFrame, path: PathRows) -> PathCells:
    """Select the cells of the lines with events that are on the path; a line of several rows shows that of all."""
    viewport = frame.viewport
    edges = cell_edges(viewport.t0, viewport.t1, viewport.width)
    left, right = edges[:-1], np.maximum(edges[1:], edges[:-1] + 1)
    event = np.maximum(frame.cells.event, 0)
    start = trace.start[event]
    end = start + trace.duration[event]
    touched, own = np.zeros(event.shape, np.bool_), np.zeros(event.shape, np.bool_)
    for y, row in frame.row_by_line.items():
        rows = list_rows(trace, frame.lines[y])
        touched[row] = path.select_cells(rows, left, right)
        if touched[row].any():
            first, last = np.maximum(left, start[row]), np.minimum(right, end[row])
            own[row] = path.select_cells(rows, first, last) & (last > first)
    return PathCells(touched, own & (frame.cells.event >= 0))
