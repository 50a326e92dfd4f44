"""Build an SVG picture: a title, axes with ticks, shapes and texts, in colours for light and dark pages.

Each shape and tick carries its numbers as `data-…`, and shapes their meaning as a tooltip. Texts come from traces that
others made, so all of them are escaped. A picture refers to nothing outside of itself and runs no script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from torchprof_tui.answers.html import escape
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_time

Anchor = Literal["start", "middle", "end"]
Number = float | int | str

WIDTH = 960
MARGIN = 24
HEADING = 46  # pixels above the lines below the title

LOG_ROOM = 2.5

LINE = 19  # pixels from line to line of a text

# A viewer without media queries, such as the one that makes PNG, takes the light colours.
_LIGHT_STYLE = """\
text{font:13px system-ui,'Segoe UI','DejaVu Sans',Arial,sans-serif;fill:#1f2328}
.title{font-size:17px;font-weight:bold}.muted{fill:#59636e}.bold{font-weight:bold}.page{fill:#fff}
.halo{font-weight:bold;stroke:#fff;stroke-width:4px;stroke-linejoin:round;paint-order:stroke}
.grid{stroke:#d1d9e0}.axis{stroke:#59636e}.line{stroke:#1f2328;stroke-width:1.5;fill:none}.dashed{stroke-dasharray:5 4}
.mark{stroke:#fff}
"""
_STYLE = f"""{_LIGHT_STYLE}\
@media (prefers-color-scheme:dark){{text{{fill:#f0f6fc}}.muted{{fill:#9198a1}}.page{{fill:#0d1117}}
.grid{{stroke:#2f3742}}.axis{{stroke:#9198a1}}.line{{stroke:#f0f6fc}}.mark,.halo{{stroke:#0d1117}}}}"""

BLUE, ORANGE, GREEN, PINK, SKY = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9"
RED, OLIVE, GREY, SLATE = "#d55e00", "#8a7f2b", "#8c8c8c", "#5f6b7a"
"""Okabe and Ito's colours, which colour-blind readers tell apart, and three that are darker than their yellow."""


@record
class Axis:
    """An axis from `low` to `high`, drawn from pixel `start` to pixel `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return the pixel of a value; values beyond the ends lie at the ends."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def find_ticks(self, most: int = 8) -> list[float]:
        """Find the values to label: 1, 2 or 5 times powers of ten, or multiples of one of these, at most `most`."""
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)))
            inside = [size * 10.0**power for power in powers for size in (1, 2, 5)]
            inside = [value for value in inside if self.low <= value <= self.high]
            if len(inside) > most:
                inside = [value for value in inside if f"{value:e}".startswith("1.")]
            return inside[:: -(-len(inside) // most)]
        span = self.high - self.low
        power = 10.0 ** math.floor(math.log10(span / most))
        step = next(size * power for size in (1, 2, 5, 10, 20) if span / (size * power) <= most)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def choose_log_axis(values: Sequence[float], start: float, end: float) -> Axis:
    """Choose a logarithmic axis around positive values, with room for labels at both ends."""
    return Axis(min(values) / LOG_ROOM, max(values) * LOG_ROOM, start, end, is_log=True)


@record
class Canvas:
    """Part of a screen, for a picture without page and title: its size in pixels, pixels per unit, and colours."""

    pixel_width: int
    pixel_height: int
    scale: float
    foreground: str
    muted: str
    grid: str
    background: str

    @property
    def width(self) -> float:
        return self.pixel_width / self.scale

    @property
    def height(self) -> float:
        return self.pixel_height / self.scale

    def begin(self) -> list[str]:
        """Begin an SVG without a background."""
        style = (
            f"text{{fill:{self.foreground}}}.muted{{fill:{self.muted}}}.grid,.axis{{stroke:{self.grid}}}"
            f".line{{stroke:{self.foreground}}}.mark,.halo{{stroke:{self.background}}}"
        )
        return [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.pixel_width}" height="{self.pixel_height}" '
            f'viewBox="0 0 {self.width:.8g} {self.height:.8g}"><style>{_LIGHT_STYLE}{style}</style>'
        ]


class Picture:
    """An SVG picture that is drawn from back to front. `lines` stand below the title; on a canvas there is neither."""

    def __init__(
        self, title: str = "", lines: Sequence[str] = (), height: int = 0, canvas: Canvas | None = None
    ) -> None:
        if canvas is not None:
            self._parts = canvas.begin()
            return
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        ]
        self.text(MARGIN, 30, title, "title")
        for row, line in enumerate(lines):
            self.text(MARGIN, HEADING + LINE * row + 8, line, "muted")

    def text(
        self, x: float, y: float, text: str, style: str = "", anchor: Anchor = "start", most: int = 130, **data: Number
    ) -> None:
        """Write a text of at most `most` characters; what is cut off is its tooltip."""
        tip = f"<title>{escape(text)}</title>" if len(text) > most else ""
        shown = text if len(text) <= most else f"{text[: most - 1]}…"
        form = _format({"class": style or None, "text-anchor": None if anchor == "start" else anchor}, data)
        self._parts.append(f'<text x="{x:.2f}" y="{y:.2f}"{form}>{tip}{escape(shown)}</text>')

    def shape(self, name: str, geometry: dict[str, Number | None], tip: str = "", **data: Number) -> None:
        """Draw an element with these attributes; `tip` is shown where the mouse rests on it."""
        inside = f"><title>{escape(tip)}</title></{name}>" if tip else "/>"
        self._parts.append(f"<{name}{_format(geometry, data)}{inside}")

    def path(self, points: Sequence[tuple[float, float]], style: str = "line", tip: str = "", **data: Number) -> None:
        """Draw a line through points."""
        steps = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
        self.shape("path", {"d": f"M{steps}", "class": style}, tip, **data)

    def draw_x_axis(self, axis: Axis, top: float, bottom: float, labels: Sequence[tuple[float, str]]) -> None:
        """Draw the grid and the labels of a horizontal axis below `bottom`."""
        for value, label in labels:
            x = axis.place(value)
            self.path([(x, top), (x, bottom)], "grid")
            self.text(x, bottom + 18, label, "muted", "middle", x_value=value)
        self.path([(axis.start, bottom), (axis.end, bottom)], "axis")

    def draw_y_axis(self, axis: Axis, left: float, right: float, labels: Sequence[tuple[float, str]]) -> None:
        """Draw the grid and the labels of a vertical axis left of `left`."""
        for value, label in labels:
            y = axis.place(value)
            self.path([(left, y), (right, y)], "grid")
            self.text(left - 8, y + 4, label, "muted", "end", y_value=value)
        self.path([(left, axis.start), (left, axis.end)], "axis")

    def finish(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


def _format(attributes: dict[str, Number | None], data: dict[str, Number]) -> str:
    named = {**attributes, **{f"data-{name.replace('_', '-')}": value for name, value in data.items()}}
    texts = {
        name: f"{value:.10g}" if isinstance(value, float) else escape(value)
        for name, value in named.items()
        if value is not None
    }
    return "".join(f' {name}="{text}"' for name, text in texts.items())


def shorten_label(label: str) -> str:
    """Return the name of a trace without the folders of this machine, which a ticket does not need."""
    return label.rstrip("/").rpartition("/")[2] or label


def label_times(axis: Axis) -> list[tuple[float, str]]:
    """Label the ticks of an axis of ns."""
    ticks = [round(value) for value in axis.find_ticks()]
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1
    return [(value, format_time(value, max(step, 1), round(axis.high))) for value in ticks]


def label_numbers(axis: Axis) -> list[tuple[float, str]]:
    """Label the ticks of an axis of numbers: "0.01", "1", "1,000"."""
    return [(value, f"{value:,.10g}") for value in axis.find_ticks()]
