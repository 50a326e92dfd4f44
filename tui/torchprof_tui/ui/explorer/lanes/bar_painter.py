"""From cells to strips: which character and which style each cell of a lane's row gets, and as few runs as that allows.

Pure: arrays in, strips out. How a cell is drawn:

- An event that is at least one cell long is a *bar*. Four cells or more are filled with its colour, a thin edge
  and its name inside (`▏aten::mm`); fewer are blocks, the last of them `▉` so that neighbours stay apart.
- An event shorter than a cell, alone in it, is an eighth block as wide as its share (`▍`).
- A cell that stands for several short events is a shade, `░ ▒ ▓`, by how busy it is.

Blocks and shades are drawn in the foreground, so the blank cells between them can belong to the same run:
that is what keeps a dense row small on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from torchprof_tui.trace.core.arrays import F64, I32, U8, U16, Array, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.level_of_detail import Cells
from torchprof_tui.ui.common.event_styles import BLANK, BLANK_MARKED, KIND_COUNT, CellForm, Emphasis, style_index
from torchprof_tui.ui.common.name_display import DisplayNames

EIGHTHS = "▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"
SHADES = "░▒▓"
EDGE, SELECTED_EDGE, HIGHLIGHT_EDGE = "▏", "▶", "◆"

MIN_NAMED_CELLS = 4
"""A bar of fewer cells has no room for an edge and three letters."""

_EIGHTHS, _SHADES = (np.array([ord(glyph) for glyph in glyphs], dtype=np.uint32) for glyphs in (EIGHTHS, SHADES))
_SPACE, _FULL, _GAP, _RIGHT_HALF, _RIGHT_EIGHTH, _RANGE_EDGE, _HIGHLIGHT_GLYPH = (
    np.uint32(ord(glyph)) for glyph in f" █▉▐▕┆{HIGHLIGHT_EDGE}"
)
_NO_EVENTS: I32 = np.empty(0, dtype=np.int32)
_STYLES_PER_TONE = len(CellForm) * KIND_COUNT
_KERNEL_KINDS = (int(Kind.KERNEL), int(Kind.COLLECTIVE))


@dataclass(frozen=True)
class Decoration:
    """What stands out. `lit` int32[k] ascending; `found` bool[names]; `marked` cells from, up to (not with)."""

    selected: int = -1
    highlighted: I32 = field(default_factory=lambda: _NO_EVENTS)
    matched_names: Bool | None = None
    marked_cells: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class StyledCells:
    """R rows, ready to be cut into runs. `glyph` uint32[R, W] code points; `style` uint16[R, W] for `Palette.cells`;
    `event` int32[R, W]; `begins` bool[R, W]: a named bar begins here; `named` bool[R, W]: the cell belongs to one.
    """

    glyph: Array
    style: U16
    event: I32
    bar_starts: Bool
    in_named_bar: Bool


def style_cells(trace: Trace, cells: Cells, ns_per_cell: float, decoration: Decoration) -> StyledCells:
    """Characters and styles of all cells. A few vector operations over R x W."""
    event, busy = cells.event, cells.busy
    some = event >= 0
    known = np.where(some, event, 0)
    if not len(trace):
        known = np.zeros_like(event)
    tone = _assign_tones(trace, event, known, some, decoration) if len(trace) else np.zeros(event.shape, dtype=np.uint8)
    long = some & (trace.duration[known] >= ns_per_cell) if len(trace) else some
    alone = cells.count == 1

    same_as_left = np.zeros(event.shape, dtype=bool)
    same_as_left[:, 1:] = some[:, 1:] & (event[:, 1:] == event[:, :-1])
    same_as_right = np.zeros(event.shape, dtype=bool)
    same_as_right[:, :-1] = same_as_left[:, 1:]
    begins = long & ~same_as_left
    named = _select_long_runs(begins, long, MIN_NAMED_CELLS)
    narrow = long & ~named

    glyph = np.full(event.shape, _SPACE, dtype=np.uint32)
    eighth = _EIGHTHS[np.clip(np.ceil(busy * 8).astype(np.int64) - 1, 0, 7)]
    shade = _SHADES[np.clip((busy * 3).astype(np.int64), 0, 2)]
    short = some & ~long
    glyph = np.where(short, np.where(alone, eighth, shade), glyph)
    # The first part of a short event that lies in two cells touches the second one.
    split = short & alone & same_as_right & ~same_as_left
    glyph = np.where(split, np.where(busy >= 0.5, _RIGHT_HALF, _RIGHT_EIGHTH), glyph)

    followed = np.zeros(event.shape, dtype=bool)
    followed[:, :-1] = some[:, 1:]
    last_glyph = np.where(followed, _GAP, np.where(alone, eighth, _FULL))
    first_half = alone & (busy < 0.5) & same_as_right
    glyph = np.where(narrow, np.where(same_as_right, np.where(first_half, _RIGHT_HALF, _FULL), last_glyph), glyph)
    glyph[(tone == Emphasis.HIGHLIGHTED) & short & ~alone] = _HIGHLIGHT_GLYPH
    selected = (tone == Emphasis.SELECTED) & ~named
    glyph[selected] = np.where(same_as_left[selected], _SPACE, _HIGHLIGHT_GLYPH)

    kind = trace.kind[known] if len(trace) else np.zeros(event.shape, dtype=np.uint8)
    style = _assign_styles(kind, tone, some, named, decoration.marked_cells)
    if decoration.marked_cells is not None:
        for column in (decoration.marked_cells[0], decoration.marked_cells[1] - 1):
            if 0 <= column < some.shape[1]:
                glyph[~some[:, column], column] = _RANGE_EDGE
    return StyledCells(glyph, style, event, begins & named, named)


def _assign_tones(trace: Trace, event: I32, known: I32, some: Bool, decoration: Decoration) -> U8:
    tone = np.full(event.shape, Emphasis.NORMAL, dtype=np.uint8)
    if len(decoration.highlighted):
        place = np.minimum(decoration.highlighted.searchsorted(event), len(decoration.highlighted) - 1)
        tone[some & (decoration.highlighted[place] == event)] = Emphasis.HIGHLIGHTED
    if decoration.matched_names is not None:
        tone[some & decoration.matched_names[trace.name[known]]] = Emphasis.MATCHED
    if decoration.selected >= 0:
        tone[event == decoration.selected] = Emphasis.SELECTED
    return tone


def _select_long_runs(begins: Bool, inside: Bool, least: int) -> Bool:
    """The cells of those runs that have at least `least` cells; a run goes from a begin to the last cell inside."""
    boundary = begins.copy()
    boundary[:, 0] = True
    boundary[:, 1:] |= inside[:, 1:] != inside[:, :-1]
    starts = np.flatnonzero(boundary.ravel())
    lengths = np.diff(starts, append=boundary.size)
    return np.repeat(lengths >= least, lengths).reshape(inside.shape) & inside


def _assign_styles(kind: U8, tone: U8, some: Bool, named: Bool, marked: tuple[int, int] | None) -> U16:
    """Style numbers; blank cells take the style of a neighbouring block or shade, so that they join its run."""
    width = kind.shape[1]
    column = np.arange(width)
    inside = np.zeros(width, dtype=bool)
    if marked is not None:
        inside = (column >= marked[0]) & (column < marked[1])
    form = np.where(
        named, np.uint16(CellForm.BAR), np.where(inside, np.uint16(CellForm.SHADE_MARKED), np.uint16(CellForm.SHADE))
    )
    style = np.where(some, style_index(kind.astype(np.uint16), form, tone.astype(np.uint16)), BLANK).astype(np.uint16)
    style[:, inside] = np.where(some[:, inside], style[:, inside], BLANK_MARKED)
    # Underline and reverse would show on a blank, so only what is of normal tone lends its style.
    lends = some & ~named & (tone == Emphasis.NORMAL)
    left = np.maximum.accumulate(np.where(some, column, -1), axis=1)
    right = np.minimum.accumulate(np.where(some, column, width)[:, ::-1], axis=1)[:, ::-1]
    rows = np.arange(kind.shape[0])[:, None]
    for neighbour in (np.minimum(right, width - 1), np.maximum(left, 0)):  # the left one wins, it comes last
        usable = ~some & lends[rows, neighbour] & (inside[neighbour] == inside)
        style = np.where(usable, style[rows, neighbour], style)
    return style


class BarNotes(Protocol):
    """What bars say beyond their names."""

    def format_bar_text(self, event: int, name: str, width: int) -> str:
        """Name and note of an event in so many cells, "" for none."""


@dataclass(frozen=True, slots=True)
class BarTexts:
    """What is written into bars. `known` remembers texts between frames, by name, width and sign; clear it when it has
    grown large, and when `classes` (kernels carry theirs) changes. `notes`: of single events."""

    names: DisplayNames
    cache: dict[tuple[int, int, int], str] = field(default_factory=dict)
    show_classes: bool = False
    notes: BarNotes | None = None


def build_strips(styled: StyledCells, trace: Trace, texts: BarTexts, style_table: tuple[Style, ...]) -> list[Strip]:
    """One strip per row."""
    width = styled.style.shape[1]
    boundary = styled.bar_starts.copy()
    boundary[:, 0] = True
    boundary[:, 1:] |= styled.style[:, 1:] != styled.style[:, :-1]
    out: list[Strip] = []
    for row in range(len(styled.style)):
        starts = np.flatnonzero(boundary[row])
        styles = styled.style[row][starts].tolist()
        named = styled.in_named_bar[row][starts].tolist()
        begins = styled.bar_starts[row][starts].tolist()
        events = styled.event[row][starts].tolist()
        bounds = [*starts.tolist(), width]
        text = styled.glyph[row].tobytes().decode("utf-32-le")
        segments: list[Segment] = []
        pending, pending_style = "", style_table[styles[0]]
        for place, style in enumerate(styles):
            begin, end = bounds[place], bounds[place + 1]
            if named[place] and begins[place]:
                # A bar's later cells may differ in style only where a tone ends, which no event does inside itself.
                piece = _format_bar(events[place], end - begin, style // _STYLES_PER_TONE, begin == 0, trace, texts)
            else:
                piece = text[begin:end]
            if style_table[style] is pending_style:
                pending += piece
            else:
                segments.append(Segment(pending, pending_style))
                pending, pending_style = piece, style_table[style]
        segments.append(Segment(pending, pending_style))
        out.append(Strip(segments, width))
    return out


def _format_bar(event: int, width: int, tone: int, at_left: bool, trace: Trace, texts: BarTexts) -> str:
    """A bar's text, exactly `width` cells."""
    number = int(trace.name[event])
    sign = (
        SELECTED_EDGE
        if tone == Emphasis.SELECTED
        else HIGHLIGHT_EDGE
        if tone == Emphasis.HIGHLIGHTED
        else " "
        if at_left
        else EDGE
    )
    names = texts.names
    if texts.notes is not None:
        noted = texts.notes.format_bar_text(event, names[number][0], width - 1)
        if noted:
            return sign + noted + " " * (width - 1 - cell_len(noted))
    kernel = texts.show_classes and int(trace.kind[event]) in _KERNEL_KINDS
    key = (number, width, -ord(sign) if kernel else ord(sign))
    known = texts.cache.get(key)
    if known is None:
        name = names.fit_name_with_class(number, width - 1) if kernel else names.fit_name(number, width - 1)
        known = texts.cache[key] = sign + name + " " * (width - 1 - cell_len(name))
    return known


def merge_deepest(cells: Cells) -> Cells:
    """All rows of a folded lane in one: in each cell the lowest row that has an event there."""
    some = cells.event >= 0
    lowest = len(some) - 1 - np.argmax(some[::-1], axis=0)
    column = np.arange(some.shape[1])
    return Cells(cells.event[lowest, column][None], cells.busy[lowest, column][None], cells.count[lowest, column][None])


def merge_busiest(cells: Cells) -> Cells:
    """All rows of a rank in one: in each cell the row that is busy most of it, as busy as all of them together."""
    row = np.argmax(cells.busy, axis=0)
    column = np.arange(cells.busy.shape[1])
    busy = np.minimum(cells.busy.sum(axis=0), 1, dtype=np.float32)
    return Cells(cells.event[row, column][None], busy[None], cells.count.sum(axis=0, dtype=np.int32)[None])


def draw_level_graph(values: F64, minimum: float, maximum: float) -> str:
    """A graph one line high; a value that is known is at least `▁`, one that is not is blank."""
    spread = maximum - minimum or 1.0
    place = np.nan_to_num((values - minimum) / spread * 8, nan=-1.0)
    glyphs = [" " if value < 0 else LEVELS[min(int(value), 7)] for value in place.tolist()]
    return "".join(glyphs)
