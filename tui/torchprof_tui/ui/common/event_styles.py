"""Kind of event → prebuilt rich styles, for the theme and for the colours that the terminal has.

A style is built once per theme and looked up by number while painting: making a `Style` per segment costs five
times as much as the rest of a frame. Every fill comes from the 6×6×6 colour cube or the dark half of its grey ramp,
because terminals reached over ssh mostly show 256 colours, and what rich rounds to a neighbour (light greys among
it) may already be in use.

Colour says what kind of thing an event is. It is never the only sign: glyphs tell a bar's edges, how busy a cell
is, what is selected (`▶`), lit (`◆`) or found (underlined), and without colour bars are drawn in reverse video.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from rich.style import Style

from torchprof_tui.trace.model.event_kind import Kind


class ColorSupport(Enum):
    """What the terminal can show."""

    NONE = "none"  # NO_COLOR: attributes only
    ANSI = "16"
    MANY = "256 or more"


class CellForm(IntEnum):
    """How a cell is filled."""

    BAR = 0  # background colour, text inside
    SHADE = 1  # a block or shade character on the blank background
    SHADE_MARKED = 2  # the same inside a marked range


class Emphasis(IntEnum):
    """Why an event stands out; a later one wins over an earlier one."""

    NORMAL = 0
    HIGHLIGHTED = 1
    MATCHED = 2
    SELECTED = 3


KIND_COUNT = len(Kind)
BLANK = len(Emphasis) * len(CellForm) * KIND_COUNT
BLANK_MARKED = BLANK + 1
GRID = BLANK + 2  # lines drawn into the blank: a range's edges, the cursor


def style_index(kind: Any, cell_form: Any, emphasis: Any = Emphasis.NORMAL) -> Any:
    """Where a style stands in `Palette.cells`; works on integers and on integer arrays alike."""
    return (emphasis * len(CellForm) + cell_form) * KIND_COUNT + kind


DARK_FILL: dict[Kind, str] = {
    Kind.OTHER: "#87afaf",
    Kind.STEP: "#d7d7af",
    Kind.ANNOTATION: "#d7af5f",
    Kind.PYTHON: "#87875f",
    Kind.OP: "#5fafd7",
    Kind.RUNTIME: "#af87d7",
    Kind.KERNEL: "#87d75f",
    Kind.COPY: "#ff875f",
    Kind.MEMSET: "#ffaf87",
    Kind.COLLECTIVE: "#ff5faf",
    Kind.SYNC: "#8787af",
    Kind.GPU_ANNOTATION: "#afaf5f",
    Kind.OVERHEAD: "#d75f5f",
    Kind.PROFILER: "#8a8a8a",
    Kind.ASYNC: "#5fd7af",
    Kind.INSTANT: "#afd7ff",
    Kind.MEMORY: "#5fafaf",
}
"""Under black text on a dark screen."""

LIGHT_FILL: dict[Kind, str] = {
    Kind.OTHER: "#005f87",
    Kind.STEP: "#585858",
    Kind.ANNOTATION: "#875f00",
    Kind.PYTHON: "#875f87",
    Kind.OP: "#005faf",
    Kind.RUNTIME: "#5f00af",
    Kind.KERNEL: "#008700",
    Kind.COPY: "#af5f00",
    Kind.MEMSET: "#875f5f",
    Kind.COLLECTIVE: "#af005f",
    Kind.SYNC: "#5f5f87",
    Kind.GPU_ANNOTATION: "#5f5f00",
    Kind.OVERHEAD: "#af0000",
    Kind.PROFILER: "#5f5faf",
    Kind.ASYNC: "#005f5f",
    Kind.INSTANT: "#000087",
    Kind.MEMORY: "#5f0087",
}
"""Under white text on a light screen."""

ANSI_FILL: dict[Kind, str] = {
    Kind.OTHER: "blue",
    Kind.STEP: "white",
    Kind.ANNOTATION: "yellow",
    Kind.PYTHON: "bright_black",
    Kind.OP: "cyan",
    Kind.RUNTIME: "magenta",
    Kind.KERNEL: "green",
    Kind.COPY: "bright_red",
    Kind.MEMSET: "bright_yellow",
    Kind.COLLECTIVE: "bright_magenta",
    Kind.SYNC: "bright_blue",
    Kind.GPU_ANNOTATION: "bright_green",
    Kind.OVERHEAD: "red",
    Kind.PROFILER: "bright_black",
    Kind.ASYNC: "bright_cyan",
    Kind.INSTANT: "bright_white",
    Kind.MEMORY: "blue",
}
_ANSI_DARK = frozenset({"blue", "bright_black", "red"})
"""Fills that need white text; the others need black."""

_CUBE_LEVELS = (0, 95, 135, 175, 215, 255)
_GREY_STEP = 30  # three of the ramp's


def lighten(color: str, steps: int) -> str:
    """The colour that is `steps` levels of the cube lighter (darker where negative); a grey of the ramp stays one."""
    parts = [int(color[place : place + 2], 16) for place in (1, 3, 5)]
    if all(part in _CUBE_LEVELS for part in parts):
        lifted = [_CUBE_LEVELS[min(max(_CUBE_LEVELS.index(part) + steps, 0), 5)] for part in parts]
    else:
        lifted = [min(max(part + _GREY_STEP * steps, 8), 238) for part in parts]
    return "#" + "".join(f"{part:02x}" for part in lifted)


@dataclass(frozen=True, slots=True)
class ThemeColors:
    """What the palette needs to know of the app's theme: colours as `#rrggbb`."""

    dark: bool = True
    background: str = "#121212"
    foreground: str = "#e0e0e0"
    accent: str = "#5fafd7"


@dataclass(frozen=True)
class Palette:
    """All styles that our own widgets paint with. `cells` by `style_number`, the others by what they are for."""

    theme: ThemeColors
    color_support: ColorSupport
    cells: tuple[Style, ...]
    text: Style
    muted: Style
    strong: Style
    heading: Style
    accent: Style
    line: Style
    active: Style  # the current lane's label, the current panel's tab
    viewport: Style  # the part of the overview that is on screen
    bands: tuple[Style, Style]  # steps on the ruler, in turn
    marked: Style  # a marked range on the ruler
    warning: Style
    key: Style

    def fill(self, kind: int) -> Style:
        """Text on the kind's fill: a legend, a swatch."""
        return self.cells[int(style_index(kind, CellForm.BAR))]

    def ink(self, kind: int) -> Style:
        """The kind's colour as text on the blank background."""
        return self.cells[int(style_index(kind, CellForm.SHADE))]


def build_palette(theme: ThemeColors, color_support: ColorSupport) -> Palette:
    """The palette for one theme and one sort of terminal."""
    if color_support is ColorSupport.NONE:
        return _build_plain_palette(theme)
    if color_support is ColorSupport.ANSI:
        return _build_ansi_palette(theme)
    return _build_rgb_palette(theme)


def blend(color: str, into: str, share: float) -> str:
    """`#rrggbb` that is `share` of `color` and the rest of `into`."""
    pairs = ((int(color[place : place + 2], 16), int(into[place : place + 2], 16)) for place in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def _build_rgb_palette(theme: ThemeColors) -> Palette:
    fills = DARK_FILL if theme.dark else LIGHT_FILL
    inside, outside = ("#000000", "#ffffff") if theme.dark else ("#ffffff", "#000000")
    lighter = 1 if theme.dark else -1
    hit = Style(color="#000000", bgcolor="#ffff5f" if theme.dark else "#ffd700", underline=True)
    found = "#ffff5f" if theme.dark else "#af5f00"
    back = theme.background
    marked = blend(theme.foreground, back, 0.16)
    cells: dict[int, Style] = {}
    for kind in Kind:
        fill = fills[kind]
        strong = lighten(fill, lighter)
        cells[style_index(kind, CellForm.BAR, Emphasis.NORMAL)] = Style(color=inside, bgcolor=fill)
        cells[style_index(kind, CellForm.BAR, Emphasis.HIGHLIGHTED)] = Style(color=inside, bgcolor=strong, bold=True)
        cells[style_index(kind, CellForm.BAR, Emphasis.MATCHED)] = hit
        cells[style_index(kind, CellForm.BAR, Emphasis.SELECTED)] = Style(color=inside, bgcolor=outside, bold=True)
        for form, ground in ((CellForm.SHADE, back), (CellForm.SHADE_MARKED, marked)):
            cells[style_index(kind, form, Emphasis.NORMAL)] = Style(color=fill, bgcolor=ground)
            cells[style_index(kind, form, Emphasis.HIGHLIGHTED)] = Style(color=strong, bgcolor=ground, bold=True)
            cells[style_index(kind, form, Emphasis.MATCHED)] = Style(color=found, bgcolor=ground, underline=True)
            cells[style_index(kind, form, Emphasis.SELECTED)] = Style(color=inside, bgcolor=outside, bold=True)
    muted = Style(color=blend(theme.foreground, back, 0.6), bgcolor=back)
    text = Style(color=theme.foreground, bgcolor=back)
    cells[BLANK] = muted
    cells[BLANK_MARKED] = Style(color=theme.foreground, bgcolor=marked)
    cells[GRID] = Style(color=blend(theme.foreground, back, 0.45), bgcolor=back)
    return Palette(
        theme=theme,
        color_support=ColorSupport.MANY,
        cells=tuple(cells[number] for number in range(GRID + 1)),
        text=text,
        muted=muted,
        strong=text + Style(bold=True),
        heading=Style(color=theme.accent, bgcolor=back, bold=True),
        accent=Style(color=theme.accent, bgcolor=back),
        line=cells[GRID],
        active=Style(color=theme.foreground, bgcolor=marked, bold=True),
        viewport=Style(color=theme.foreground, bgcolor=blend(theme.accent, back, 0.45)),
        bands=(
            Style(color=theme.foreground, bgcolor=blend(theme.foreground, back, 0.18)),
            Style(color=theme.foreground, bgcolor=blend(theme.foreground, back, 0.30)),
        ),
        marked=hit + Style(underline=False),
        warning=Style(color=fills[Kind.OVERHEAD], bgcolor=back, bold=True),
        key=Style(color=theme.accent, bgcolor=back, bold=True),
    )


def _build_ansi_palette(theme: ThemeColors) -> Palette:
    """Sixteen colours: named ones, so that the user's own terminal theme decides what they look like."""
    paper, pen = ("black", "white") if theme.dark else ("white", "black")
    blank = Style(color=pen, bgcolor=paper)
    cells: dict[int, Style] = {}
    for kind in Kind:
        fill = ANSI_FILL[kind]
        inside = "white" if fill in _ANSI_DARK else "black"
        bar = Style(color=inside, bgcolor=fill)
        selected = Style(color=paper, bgcolor="bright_white" if theme.dark else "black", bold=True)
        cells[style_index(kind, CellForm.BAR, Emphasis.NORMAL)] = bar
        cells[style_index(kind, CellForm.BAR, Emphasis.HIGHLIGHTED)] = bar + Style(bold=True, underline=True)
        cells[style_index(kind, CellForm.BAR, Emphasis.MATCHED)] = Style(
            color="black", bgcolor="bright_yellow", underline=True
        )
        cells[style_index(kind, CellForm.BAR, Emphasis.SELECTED)] = selected
        for form in (CellForm.SHADE, CellForm.SHADE_MARKED):
            shade = Style(color=pen if fill == paper else fill, bgcolor=paper)
            cells[style_index(kind, form, Emphasis.NORMAL)] = shade
            cells[style_index(kind, form, Emphasis.HIGHLIGHTED)] = shade + Style(bold=True, underline=True)
            cells[style_index(kind, form, Emphasis.MATCHED)] = shade + Style(color="bright_yellow", underline=True)
            cells[style_index(kind, form, Emphasis.SELECTED)] = selected
    cells[BLANK] = cells[BLANK_MARKED] = blank
    cells[GRID] = Style(color="bright_black", bgcolor=paper)
    return Palette(
        theme=theme,
        color_support=ColorSupport.ANSI,
        cells=tuple(cells[number] for number in range(GRID + 1)),
        text=blank,
        muted=cells[GRID],
        strong=blank + Style(bold=True),
        heading=Style(color="cyan" if theme.dark else "blue", bgcolor=paper, bold=True),
        accent=Style(color="cyan" if theme.dark else "blue", bgcolor=paper),
        line=cells[GRID],
        active=Style(color=paper, bgcolor=pen, bold=True),
        viewport=Style(color="black", bgcolor="cyan"),
        bands=(Style(color=paper, bgcolor=pen), Style(color=paper, bgcolor=pen)),
        marked=Style(color="black", bgcolor="bright_yellow"),
        warning=Style(color="red", bgcolor=paper, bold=True),
        key=Style(color="cyan" if theme.dark else "blue", bgcolor=paper, bold=True),
    )


def _build_plain_palette(theme: ThemeColors) -> Palette:
    """No colour at all: bars are reverse video, everything else is bold, dim, underlined or a glyph."""
    blank, bar = Style(), Style(reverse=True)
    selected = Style(reverse=True, bold=True, underline=True)
    cells: dict[int, Style] = {}
    for kind in Kind:
        cells[style_index(kind, CellForm.BAR, Emphasis.NORMAL)] = bar
        cells[style_index(kind, CellForm.BAR, Emphasis.HIGHLIGHTED)] = Style(reverse=True, bold=True)
        cells[style_index(kind, CellForm.BAR, Emphasis.MATCHED)] = Style(reverse=True, underline=True)
        cells[style_index(kind, CellForm.BAR, Emphasis.SELECTED)] = selected
        for form in (CellForm.SHADE, CellForm.SHADE_MARKED):
            cells[style_index(kind, form, Emphasis.NORMAL)] = blank
            cells[style_index(kind, form, Emphasis.HIGHLIGHTED)] = Style(bold=True)
            cells[style_index(kind, form, Emphasis.MATCHED)] = Style(underline=True)
            cells[style_index(kind, form, Emphasis.SELECTED)] = selected
    cells[BLANK] = cells[BLANK_MARKED] = cells[GRID] = blank
    bold = Style(bold=True)
    return Palette(
        theme=theme,
        color_support=ColorSupport.NONE,
        cells=tuple(cells[number] for number in range(GRID + 1)),
        text=blank,
        muted=blank,
        strong=bold,
        heading=bold,
        accent=bold,
        line=blank,
        active=bar,
        viewport=bar,
        bands=(bar, bar),
        marked=bar,
        warning=bold,
        key=bold,
    )
