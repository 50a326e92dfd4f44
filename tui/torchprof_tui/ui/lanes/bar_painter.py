"""Painter of the lanes' rows: turns cells into characters and styles, and those into strips of few segments.

Pure: arrays in, strips out. How a cell is drawn:

- An event that is at least one cell long is a *bar*. Four cells or more are filled with its colour, a thin edge
  and its name inside (`▏aten::mm`); fewer are blocks, the last of them `▉` so that adjacent bars stay apart.
- An event shorter than a cell, alone in it, is an eighth block as wide as its share of the cell (`▍`).
- A cell with several short events is a shade, `░ ▒ ▓`, by how busy it is.

Blocks and shades are drawn in the foreground colour, so the blank cells between them can belong to the same segment.
That keeps the output for a dense row small.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from torchprof_tui.trace.core.arrays import F64, I32, U8, U16, Array, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.cells import Cells
from torchprof_tui.ui.common.event_styles import BLANK, BLANK_MARKED, KIND_COUNT, CellForm, Emphasis, style_index
from torchprof_tui.ui.common.name_display import DisplayNames
from torchprof_tui.ui.common.text_charts import LEVELS
from torchprof_tui.ui.lanes.event_labels import EventNotes

EIGHTHS = "▏▎▍▌▋▊▉█"
SHADES = "░▒▓"
EDGE, SELECTED_EDGE, HIGHLIGHT_EDGE, PATH_EDGE = "▏", "▶", "◆", "●"

MIN_NAMED_CELLS = 4  # minimum width of a bar with a name: an edge and three letters

_EIGHTHS, _SHADES = (np.array([ord(glyph) for glyph in glyphs], dtype=np.uint32) for glyphs in (EIGHTHS, SHADES))
_SPACE, _FULL, _GAP, _RIGHT_HALF, _RIGHT_EIGHTH, _RANGE_EDGE, _HIGHLIGHT_GLYPH = (
    np.uint32(ord(glyph)) for glyph in f" █▉▐▕┆{HIGHLIGHT_EDGE}"
)
_NO_EVENTS: I32 = np.empty(0, dtype=np.int32)
_STYLES_PER_TONE = len(CellForm) * KIND_COUNT
_PLAIN_TONES = (Emphasis.NORMAL, Emphasis.DIMMED, Emphasis.ON_PATH)
_KERNEL_KINDS = (int(Kind.KERNEL), int(Kind.COLLECTIVE))


@record
class PathCells:
    """The cells of R lines, bool[R, W]: `touched` where a critical path has any time, `own` where it has some in the
    event that the cell shows.
    """

    touched: Bool
    own: Bool


@record(slots=False)
class Decoration:
    """Emphasis: `highlighted` int32[k], ascending; `matched_names` bool[names]; `marked_cells` (first, end).

    `end` is the first cell after the range. `path`: the cells of the critical path, all others are dimmed; None for no
    path.
    """

    selected: int = -1
    highlighted: I32 = field(default_factory=lambda: _NO_EVENTS)
    matched_names: Bool | None = None
    marked_cells: tuple[int, int] | None = None
    path: PathCells | None = None


@record
class StyledCells:
    """R rows of W cells with their styles. `glyph` uint32[R, W] code points; `style` uint16[R, W] for `Palette.cells`;
    `event` int32[R, W]; `bar_starts` bool[R, W]: first cells of named bars; `in_named_bar` bool[R, W]: all their cells.
    """

    glyph: Array
    style: U16
    event: I32
    bar_starts: Bool
    in_named_bar: Bool


def style_cells(trace: Trace, cells: Cells, ns_per_cell: float, decoration: Decoration) -> StyledCells:
    """Choose the characters and styles of all cells with a few vector operations over R x W."""
    event, busy = cells.event, cells.busy
    has_event = event >= 0
    event_or_0 = np.where(has_event, event, 0)
    if not len(trace):
        event_or_0 = np.zeros_like(event)
    tone = np.zeros(event.shape, dtype=np.uint8)
    if len(trace):
        tone = _assign_tones(trace, event, event_or_0, has_event, decoration)
    long = has_event & (trace.duration[event_or_0] >= ns_per_cell) if len(trace) else has_event
    alone = cells.count == 1

    same_as_left = np.zeros(event.shape, dtype=bool)
    same_as_left[:, 1:] = has_event[:, 1:] & (event[:, 1:] == event[:, :-1])
    same_as_right = np.zeros(event.shape, dtype=bool)
    same_as_right[:, :-1] = same_as_left[:, 1:]
    starts = long & ~same_as_left
    named = _select_long_runs(starts, long, MIN_NAMED_CELLS)
    narrow = long & ~named

    glyph = np.full(event.shape, _SPACE, dtype=np.uint32)
    eighth = _EIGHTHS[np.clip(np.ceil(busy * 8).astype(np.int64) - 1, 0, 7)]
    shade = _SHADES[np.clip((busy * 3).astype(np.int64), 0, 2)]
    short = has_event & ~long
    glyph = np.where(short, np.where(alone, eighth, shade), glyph)
    # The first part of a short event that spans two cells is drawn against the second cell.
    split = short & alone & same_as_right & ~same_as_left
    glyph = np.where(split, np.where(busy >= 0.5, _RIGHT_HALF, _RIGHT_EIGHTH), glyph)

    followed = np.zeros(event.shape, dtype=bool)
    followed[:, :-1] = has_event[:, 1:]
    last_glyph = np.where(followed, _GAP, np.where(alone, eighth, _FULL))
    first_half = alone & (busy < 0.5) & same_as_right
    glyph = np.where(narrow, np.where(same_as_right, np.where(first_half, _RIGHT_HALF, _FULL), last_glyph), glyph)
    glyph[(tone == Emphasis.HIGHLIGHTED) & short & ~alone] = _HIGHLIGHT_GLYPH
    selected = (tone == Emphasis.SELECTED) & ~named
    glyph[selected] = np.where(same_as_left[selected], _SPACE, _HIGHLIGHT_GLYPH)

    kind = trace.kind[event_or_0] if len(trace) else np.zeros(event.shape, dtype=np.uint8)
    style = _assign_styles(kind, tone, has_event, named, decoration.marked_cells)
    if decoration.marked_cells is not None:
        for column in (decoration.marked_cells[0], decoration.marked_cells[1] - 1):
            if 0 <= column < has_event.shape[1]:
                glyph[~has_event[:, column], column] = _RANGE_EDGE
    return StyledCells(glyph, style, event, starts & named, named)


def _assign_tones(trace: Trace, event: I32, event_or_0: I32, has_event: Bool, decoration: Decoration) -> U8:
    """Return the `Emphasis` of each cell: selected over matched over highlighted."""
    tone = np.full(event.shape, Emphasis.NORMAL, dtype=np.uint8)
    if len(decoration.highlighted):
        index = np.minimum(decoration.highlighted.searchsorted(event), len(decoration.highlighted) - 1)
        tone[has_event & (decoration.highlighted[index] == event)] = Emphasis.HIGHLIGHTED
    if decoration.matched_names is not None:
        tone[has_event & decoration.matched_names[trace.name[event_or_0]]] = Emphasis.MATCHED
    if decoration.selected >= 0:
        tone[event == decoration.selected] = Emphasis.SELECTED
    if decoration.path is not None:
        plain = has_event & (tone == Emphasis.NORMAL)
        tone[plain & ~decoration.path.touched] = Emphasis.DIMMED
        tone[plain & decoration.path.own] = Emphasis.ON_PATH
    return tone


def _select_long_runs(starts: Bool, inside: Bool, min_length: int) -> Bool:
    """Return the cells of runs of at least `min_length` cells; a run goes from a start to its last cell inside."""
    boundary = starts.copy()
    boundary[:, 0] = True
    boundary[:, 1:] |= inside[:, 1:] != inside[:, :-1]
    firsts = np.flatnonzero(boundary.ravel())
    lengths = np.diff(firsts, append=boundary.size)
    return np.repeat(lengths >= min_length, lengths).reshape(inside.shape) & inside


def _assign_styles(kind: U8, tone: U8, has_event: Bool, named: Bool, marked: tuple[int, int] | None) -> U16:
    """Return style indexes; a blank cell takes the style of an adjacent block or shade, to join its segment."""
    width = kind.shape[1]
    column = np.arange(width)
    inside = np.zeros(width, dtype=bool)
    if marked is not None:
        inside = (column >= marked[0]) & (column < marked[1])
    form = np.where(
        named, np.uint16(CellForm.BAR), np.where(inside, np.uint16(CellForm.SHADE_MARKED), np.uint16(CellForm.SHADE))
    )
    style = np.where(has_event, style_index(kind.astype(np.uint16), form, tone.astype(np.uint16)), BLANK).astype(
        np.uint16
    )
    style[:, inside] = np.where(has_event[:, inside], style[:, inside], BLANK_MARKED)
    # Underline and reverse would be visible on a blank, so only cells without emphasis share their style.
    shareable = has_event & ~named & np.isin(tone, _PLAIN_TONES)
    left = np.maximum.accumulate(np.where(has_event, column, -1), axis=1)
    right = np.minimum.accumulate(np.where(has_event, column, width)[:, ::-1], axis=1)[:, ::-1]
    rows = np.arange(kind.shape[0])[:, None]
    for neighbour in (np.minimum(right, width - 1), np.maximum(left, 0)):  # the left one has priority
        usable = ~has_event & shareable[rows, neighbour] & (inside[neighbour] == inside)
        style = np.where(usable, style[rows, neighbour], style)
    return style


@record
class BarTexts:
    """The texts of bars. `show_classes`: kernels carry their class. `notes`: those of single events.

    `cache` keeps texts between frames, by name, width and edge glyph (negative with the class of a kernel). Clear it
    when it has grown large and when `show_classes` changes.
    """

    names: DisplayNames
    cache: dict[tuple[int, int, int], str] = field(default_factory=dict)
    show_classes: bool = False
    notes: EventNotes | None = None


def build_strips(styled: StyledCells, trace: Trace, texts: BarTexts, style_table: tuple[Style, ...]) -> list[Strip]:
    """Build one strip per row."""
    width = styled.style.shape[1]
    boundary = styled.bar_starts.copy()
    boundary[:, 0] = True
    boundary[:, 1:] |= styled.style[:, 1:] != styled.style[:, :-1]
    strips: list[Strip] = []
    for row in range(len(styled.style)):
        starts = np.flatnonzero(boundary[row])
        styles = styled.style[row][starts].tolist()
        named = styled.in_named_bar[row][starts].tolist()
        bar_starts = styled.bar_starts[row][starts].tolist()
        events = styled.event[row][starts].tolist()
        bounds = [*starts.tolist(), width]
        text = styled.glyph[row].tobytes().decode("utf-32-le")
        segments: list[Segment] = []
        pending, pending_style = "", style_table[styles[0]]
        bar_rest = ""  # of a bar that is on the critical path in part: the text of its next pieces
        for k, style in enumerate(styles):
            first, end = bounds[k], bounds[k + 1]
            if named[k] and bar_starts[k]:
                last = k + 1
                while last < len(styles) and named[last] and not bar_starts[last]:
                    last += 1
                tone = max(each // _STYLES_PER_TONE for each in styles[k:last])
                piece = _format_bar(events[k], bounds[last] - first, tone, first == 0, trace, texts)
                if last > k + 1:
                    piece, bar_rest = _split_text(piece, end - first)
            elif named[k] and bar_rest:
                piece, bar_rest = _split_text(bar_rest, end - first)
            else:
                piece = text[first:end]
            if style_table[style] is pending_style:
                pending += piece
            else:
                segments.append(Segment(pending, pending_style))
                pending, pending_style = piece, style_table[style]
        segments.append(Segment(pending, pending_style))
        strips.append(Strip(segments, width))
    return strips


def _format_bar(event: int, width: int, tone: int, at_left: bool, trace: Trace, texts: BarTexts) -> str:
    """Format the text of a bar in exactly `width` cells. `at_left`: it begins in the first column of the screen."""
    name_id = int(trace.name[event])
    edge = " " if at_left else EDGE
    if tone == Emphasis.SELECTED:
        edge = SELECTED_EDGE
    elif tone == Emphasis.HIGHLIGHTED:
        edge = HIGHLIGHT_EDGE
    elif tone == Emphasis.ON_PATH:
        edge = PATH_EDGE
    names = texts.names
    if texts.notes is not None:
        with_note = texts.notes.format_bar_text(event, names[name_id][0], width - 1)
        if with_note:
            return edge + with_note + " " * (width - 1 - cell_len(with_note))
    with_class = texts.show_classes and int(trace.kind[event]) in _KERNEL_KINDS
    key = (name_id, width, -ord(edge) if with_class else ord(edge))
    text = texts.cache.get(key)
    if text is None:
        name = names.fit_name_with_class(name_id, width - 1) if with_class else names.fit_name(name_id, width - 1)
        text = texts.cache[key] = edge + name + " " * (width - 1 - cell_len(name))
    return text


def _split_text(text: str, width: int) -> tuple[str, str]:
    """Split a text after `width` cells; a wide character on the border becomes blanks."""
    before, after = Segment(text).split_cells(width)
    return before.text, after.text


def merge_deepest(cells: Cells) -> Cells:
    """Merge the rows of a folded lane into one: each cell is taken from the deepest row that has an event there."""
    has_event = cells.event >= 0
    row = len(has_event) - 1 - np.argmax(has_event[::-1], axis=0)
    column = np.arange(has_event.shape[1])
    return Cells(cells.event[row, column][None], cells.busy[row, column][None], cells.count[row, column][None])


def merge_busiest(cells: Cells) -> Cells:
    """Merge the rows of a rank into one: each cell has the event of its busiest row, and is as busy as all rows."""
    row = np.argmax(cells.busy, axis=0)
    column = np.arange(cells.busy.shape[1])
    busy = np.minimum(cells.busy.sum(axis=0), 1, dtype=np.float32)
    return Cells(cells.event[row, column][None], busy[None], cells.count.sum(axis=0, dtype=np.int32)[None])


def draw_level_graph(values: F64, minimum: float, maximum: float) -> str:
    """Draw values as a graph one line high: a value is at least `▁`, NaN is blank."""
    spread = maximum - minimum or 1.0
    levels = np.nan_to_num((values - minimum) / spread * 8, nan=-1.0)
    glyphs = [" " if level < 0 else LEVELS[min(int(level), 7)] for level in levels.tolist()]
    return "".join(glyphs)
