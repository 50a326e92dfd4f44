"""Prebuilt rich styles for each kind of event, for the theme and the colours that the terminal supports.

A style is built once per theme and looked up by index while painting: creating a `Style` per segment costs five
times as much as the rest of a frame. Every fill comes from the 6×6×6 colour cube or the dark half of its grey ramp.
Terminals reached over ssh mostly show 256 colours, and rich would round other colours (light greys, for example) to a
neighbour that may already be in use.

Colour shows the kind of an event and is never the only sign: glyphs mark the edges of a bar, how busy a cell is, and
the selected (`▶`), highlighted (`◆`) or matched (underlined) events, and those on the critical path (`●`). Without
colour, bars are drawn in reverse video.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Any

from rich.style import Style

from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind


class ColorSupport(Enum):
    """Colours that the terminal supports."""

    NONE = "none"  # NO_COLOR: attributes only
    ANSI = "16"
    MANY = "256 or more"


class CellForm(IntEnum):
    """How a cell is filled."""

    BAR = 0  # background colour, text inside
    SHADE = 1  # a block or shade character on the blank background
    SHADE_MARKED = 2  # the same inside a marked range


class Emphasis(IntEnum):
    """How an event is emphasized. Of the first four a higher value takes precedence; the others replace NORMAL."""

    NORMAL = 0
    HIGHLIGHTED = 1
    MATCHED = 2
    SELECTED = 3
    DIMMED = 4  # off the critical path
    ON_PATH = 5


KIND_COUNT = len(Kind)
BLANK = len(Emphasis) * len(CellForm) * KIND_COUNT
BLANK_MARKED = BLANK + 1
GRID = BLANK + 2  # lines on the blank background: a range's edges, the cursor


def style_index(kind: Any, cell_form: Any, emphasis: Any = Emphasis.NORMAL) -> Any:
    """Compute the index of a style in `Palette.cells`, for integers or integer arrays."""
    return (emphasis * len(CellForm) + cell_form) * KIND_COUNT + kind


_FILLS = {
    Kind.OTHER: ("#87afaf", "#005f87", "blue", "blue"),
    Kind.STEP: ("#d7d7af", "#585858", "white", "bright_blue"),
    Kind.ANNOTATION: ("#d7af5f", "#875f00", "bright_yellow", "bright_magenta"),
    Kind.PYTHON: ("#87875f", "#875f87", "blue", "blue"),
    Kind.OP: ("#5fafd7", "#005faf", "cyan", "cyan"),
    Kind.RUNTIME: ("#af87d7", "#5f00af", "magenta", "magenta"),
    Kind.KERNEL: ("#87d75f", "#008700", "green", "green"),
    Kind.COPY: ("#ff875f", "#af5f5f", "bright_red", "bright_red"),
    Kind.MEMSET: ("#ffaf87", "#875f5f", "bright_cyan", "bright_cyan"),
    Kind.COLLECTIVE: ("#ff5faf", "#af005f", "bright_magenta", "bright_magenta"),
    Kind.SYNC: ("#8787af", "#5f5f87", "bright_blue", "bright_blue"),
    Kind.GPU_ANNOTATION: ("#afaf5f", "#5f5f00", "bright_green", "bright_magenta"),
    Kind.OVERHEAD: ("#af8787", "#444444", "blue", "blue"),
    Kind.PROFILER: ("#8a8a8a", "#5f5faf", "blue", "blue"),
    Kind.ASYNC: ("#5fd7af", "#005f5f", "bright_cyan", "cyan"),
    Kind.INSTANT: ("#afd7ff", "#000087", "bright_white", "bright_blue"),
    Kind.MEMORY: ("#5fafaf", "#5f0087", "blue", "blue"),
}
"""Fills of each kind: of the dark theme, under black text; of the light one, under white text; of sixteen colours in
both. Red is for problems alone, so no kind has it, and yellow is left out: terminals show it as brown or as bright."""

DARK_FILL, LIGHT_FILL, ANSI_DARK_FILL, ANSI_LIGHT_FILL = (
    {kind: fills[theme] for kind, fills in _FILLS.items()} for theme in range(4)
)

DARK_DIMMED, LIGHT_DIMMED = ("#9e9e9e", "#303030", "#585858"), ("#585858", "#dadada", "#b2b2b2")
"""Greys of what is off the critical path: text in bars, fill of bars, blocks and shades."""

_ANSI_DARK = frozenset({"blue", "bright_blue", "magenta", "red"})  # fills that need white text; the others need black
_ANSI_INK = {"blue": "bright_blue"}  # what is drawn on a black page in place of a fill that is too dark there

BAR_INK, GOOD_INK, PROBLEM_INK = ("#87afd7", "#005f87"), ("#87d75f", "#008700"), ("#ff5f5f", "#af0000")
"""Of the dark and of the light theme: bars of amounts, what is right, what is a problem."""

MUTED_SHARE = 0.65  # of the foreground in muted text: readable on both themes (4.5:1, WCAG AA)

_CUBE_LEVELS = (0, 95, 135, 175, 215, 255)
_GREY_STEP = 30  # three steps of the grey ramp
DARKENED_SHARE = 0.6  # of a fill of the light theme that is highlighted


def lighten(color: str) -> str:
    """Lighten `#rrggbb` by one level of the cube; greys of the ramp stay on the ramp."""
    channels = [int(color[index : index + 2], 16) for index in (1, 3, 5)]
    if all(channel in _CUBE_LEVELS for channel in channels):
        lighter = [_CUBE_LEVELS[min(_CUBE_LEVELS.index(channel) + 1, 5)] for channel in channels]
    else:
        lighter = [min(channel + _GREY_STEP, 238) for channel in channels]
    return "#" + "".join(f"{channel:02x}" for channel in lighter)


@record
class ThemeColors:
    """The colours of the app's theme that the palette is built from, as `#rrggbb`. By default of the dark one."""

    dark: bool = True
    background: str = "#121212"
    foreground: str = "#dadada"
    accent: str = "#ffaf5f"


@record(slots=False)
class Palette:
    """All styles of the painted widgets. `cells` are indexed by `style_index`, the others are named by their use."""

    theme: ThemeColors
    color_support: ColorSupport
    cells: tuple[Style, ...]
    text: Style
    muted: Style
    strong: Style
    key: Style  # keys that can be pressed, in the theme's accent: it means the keyboard and nothing else
    cursor: Style  # the accent again: where the keys act
    focused: Style  # the title of what the arrow keys act on
    bar: Style  # amounts and shares
    good: Style
    line: Style
    active: Style  # the current row
    viewport: Style  # the part of the overview that is on screen
    bands: tuple[Style, Style]  # steps on the ruler, alternating
    marked: Style  # a marked range on the ruler
    warning: Style  # a problem: nothing else is red

    def fill(self, kind: int) -> Style:
        """Return the style of text on the kind's fill, for legends."""
        return self.cells[int(style_index(kind, CellForm.BAR))]

    def ink(self, kind: int) -> Style:
        """Return the style of text in the kind's colour on the blank background."""
        return self.cells[int(style_index(kind, CellForm.SHADE))]


@lru_cache(maxsize=8)
def build_palette(theme: ThemeColors, color_support: ColorSupport) -> Palette:
    """Build the palette for a theme and the colours that the terminal supports."""
    if color_support is ColorSupport.NONE:
        return _build_plain_palette(theme)
    if color_support is ColorSupport.ANSI:
        return _build_ansi_palette(theme)
    return _build_rgb_palette(theme)


def blend(color: str, into: str, share: float) -> str:
    """Mix two `#rrggbb` colours: `share` of `color`, the rest of `into`."""
    pairs = ((int(color[index : index + 2], 16), int(into[index : index + 2], 16)) for index in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def _index_styles(kind: Kind, *by_form: Sequence[Style]) -> dict[int, Style]:
    """Return the styles of a kind by their index; `by_form`: for each `CellForm`, one for each `Emphasis`."""
    return {
        style_index(kind, form, emphasis): style
        for form, styles in zip(CellForm, by_form, strict=True)
        for emphasis, style in zip(Emphasis, styles, strict=True)
    }


def _build_rgb_palette(theme: ThemeColors) -> Palette:
    fills, is_light = (DARK_FILL, 0) if theme.dark else (LIGHT_FILL, 1)
    bar_text, selected_fill = ("#000000", "#ffffff") if theme.dark else ("#ffffff", "#000000")
    matched_bar = Style(color="#000000", bgcolor="#ffff5f" if theme.dark else "#ffd700", underline=True)
    matched_ink = "#ffff5f" if theme.dark else "#af5f00"
    background = theme.background
    marked_background = blend(theme.foreground, background, 0.16)
    selected = Style(color=bar_text, bgcolor=selected_fill, bold=True)
    dimmed = DARK_DIMMED if theme.dark else LIGHT_DIMMED
    cells: dict[int, Style] = {}
    for kind in Kind:
        fill = fills[kind]
        # Levels of the cube would turn dark brown into red, and blue and violet into one colour.
        highlight = lighten(fill) if theme.dark else blend(fill, "#000000", DARKENED_SHARE)
        plain, bold = Style(color=bar_text, bgcolor=fill), Style(color=bar_text, bgcolor=fill, bold=True)
        highlighted = Style(color=bar_text, bgcolor=highlight, bold=True)
        bars = (plain, highlighted, matched_bar, selected, Style(color=dimmed[0], bgcolor=dimmed[1]), bold)
        shades = (
            (
                Style(color=fill, bgcolor=ground),
                Style(color=highlight, bgcolor=ground, bold=True),
                Style(color=matched_ink, bgcolor=ground, underline=True),
                selected,
                Style(color=dimmed[2], bgcolor=ground),
                Style(color=fill, bgcolor=ground),
            )
            for ground in (background, marked_background)
        )
        cells |= _index_styles(kind, bars, *shades)
    muted = Style(color=blend(theme.foreground, background, MUTED_SHARE), bgcolor=background)
    text = Style(color=theme.foreground, bgcolor=background)
    cells[BLANK] = muted
    cells[BLANK_MARKED] = Style(color=theme.foreground, bgcolor=marked_background)
    cells[GRID] = Style(color=blend(theme.foreground, background, 0.45), bgcolor=background)
    return Palette(
        theme=theme,
        color_support=ColorSupport.MANY,
        cells=tuple(cells[index] for index in range(GRID + 1)),
        text=text,
        muted=muted,
        strong=text + Style(bold=True),
        key=Style(color=theme.accent, bgcolor=background, bold=True),
        cursor=Style(color=theme.accent, bgcolor=background),
        focused=Style(color=background, bgcolor=theme.accent, bold=True),
        bar=Style(color=BAR_INK[is_light], bgcolor=background),
        good=Style(color=GOOD_INK[is_light], bgcolor=background),
        line=cells[GRID],
        active=Style(color=theme.foreground, bgcolor=marked_background, bold=True),
        viewport=Style(color=theme.foreground, bgcolor=blend(theme.foreground, background, 0.35)),
        bands=(
            Style(color=theme.foreground, bgcolor=blend(theme.foreground, background, 0.18)),
            Style(color=theme.foreground, bgcolor=blend(theme.foreground, background, 0.30)),
        ),
        marked=matched_bar + Style(underline=False),
        warning=Style(color=PROBLEM_INK[is_light], bgcolor=background, bold=True),
    )


def _build_ansi_palette(theme: ThemeColors) -> Palette:
    """Build the palette of sixteen named colours, whose appearance the user's terminal theme decides.

    Text has 4.5:1 with xterm's colours and with VGA's. Grey, `bright_black`, has not: only lines are grey.
    """
    background, foreground, muted = (
        ("black", "bright_white", "white") if theme.dark else ("bright_white", "black", "black")
    )
    fills = ANSI_DARK_FILL if theme.dark else ANSI_LIGHT_FILL
    accent, bar_ink, good = ("bright_yellow", "cyan", "bright_green") if theme.dark else ("magenta", "blue", "blue")
    blank = Style(color=foreground, bgcolor=background)
    inverse = Style(color="black", bgcolor="white") if theme.dark else Style(color="bright_white", bgcolor="black")
    selected = Style(color=background, bgcolor=foreground, bold=True)
    dimmed = Style(color="bright_black", bgcolor=background)
    cells: dict[int, Style] = {}
    for kind in Kind:
        fill = fills[kind]
        bar = Style(color="bright_white" if fill in _ANSI_DARK else "black", bgcolor=fill)
        shade = Style(color=_ANSI_INK.get(fill, fill) if theme.dark else fill, bgcolor=background)
        strong, matched = Style(bold=True, underline=True), Style(color=accent, underline=True)
        matched_bar = Style(color="black", bgcolor="bright_yellow", underline=True)
        bars = (bar, bar + strong, matched_bar, selected, dimmed, bar + Style(bold=True))
        shades = (shade, shade + strong, shade + matched, selected, dimmed, shade)
        cells |= _index_styles(kind, bars, shades, shades)
    cells[BLANK] = cells[BLANK_MARKED] = blank
    cells[GRID] = Style(color="bright_black", bgcolor=background)
    return Palette(
        theme=theme,
        color_support=ColorSupport.ANSI,
        cells=tuple(cells[index] for index in range(GRID + 1)),
        text=blank,
        muted=Style(color=muted, bgcolor=background),
        strong=blank + Style(bold=True),
        key=Style(color=accent, bgcolor=background, bold=True),
        cursor=Style(color=accent, bgcolor=background),
        focused=Style(color=background, bgcolor=accent, bold=True),
        bar=Style(color=bar_ink, bgcolor=background),
        good=Style(color=good, bgcolor=background),
        line=cells[GRID],
        active=inverse,
        viewport=Style(color="black", bgcolor="cyan"),
        bands=(inverse, inverse),
        marked=Style(color="black", bgcolor="bright_yellow"),
        warning=Style(color="bright_red" if theme.dark else "red", bgcolor=background, bold=True),
    )


def _build_plain_palette(theme: ThemeColors) -> Palette:
    """Build the palette without colours: bars in reverse video, everything else bold, underlined or a glyph."""
    blank, bar = Style(), Style(reverse=True)
    selected = Style(reverse=True, bold=True, underline=True)
    bold, dim, underlined = Style(bold=True), Style(dim=True), Style(underline=True)
    bars = (bar, bar + bold, bar + underlined, selected, dim, bar + bold)
    shades = (blank, bold, underlined, selected, dim, bold)
    cells: dict[int, Style] = {}
    for kind in Kind:
        cells |= _index_styles(kind, bars, shades, shades)
    cells[BLANK] = cells[BLANK_MARKED] = cells[GRID] = blank
    return Palette(
        theme=theme,
        color_support=ColorSupport.NONE,
        cells=tuple(cells[index] for index in range(GRID + 1)),
        text=blank,
        muted=blank,
        strong=bold,
        key=bold,
        cursor=bold,
        focused=bar + bold,
        bar=blank,
        good=bold,
        line=blank,
        active=bar,
        viewport=bar,
        bands=(bar, bar),
        marked=bar,
        warning=bold,
    )


KIND_NAMES: dict[Kind, str] = {
    Kind.OTHER: "event",
    Kind.STEP: "step",
    Kind.ANNOTATION: "annotation",
    Kind.PYTHON: "Python frame",
    Kind.OP: "op",
    Kind.RUNTIME: "runtime call",
    Kind.KERNEL: "kernel",
    Kind.COPY: "copy",
    Kind.MEMSET: "memset",
    Kind.COLLECTIVE: "collective",
    Kind.SYNC: "wait",
    Kind.GPU_ANNOTATION: "GPU annotation",
    Kind.OVERHEAD: "overhead",
    Kind.PROFILER: "profiler",
    Kind.ASYNC: "async range",
    Kind.INSTANT: "mark",
    Kind.MEMORY: "memory",
}
