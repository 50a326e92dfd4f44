"""Draw the memory of a device over time: what is allocated, stacked by category, what is reserved, and the peak."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.memory.findings.memory_finding import KIB, format_size
from torchprof_tui.answers.memory import StackedCurve
from torchprof_tui.answers.pictures.steps import draw_bands
from torchprof_tui.answers.pictures.svg import (
    BLUE,
    GREEN,
    GREY,
    HEADING,
    LINE,
    MARGIN,
    OLIVE,
    ORANGE,
    PINK,
    RED,
    SKY,
    SLATE,
    WIDTH,
    Axis,
    Picture,
    label_times,
    shorten_label,
)
from torchprof_tui.trace.core.time_format import format_duration

LEFT, RIGHT, PLOT = 90, 720, 320
COLUMNS = RIGHT - LEFT  # intervals of time that are drawn: a pixel each
COLORS = (BLUE, ORANGE, PINK, GREEN, SKY, RED, OLIVE, GREY, SLATE)  # by band, from the bottom


def draw_memory_curve(curve: StackedCurve) -> str:
    """Draw the curve as SVG; beside it, what is alive at the peak."""
    top, peak = HEADING + LINE + 24, curve.peak
    bottom = top + PLOT
    reserved = "" if peak.reserved_bytes is None else f", {format_size(peak.reserved_bytes)} reserved"
    said = f"{format_size(peak.allocated_bytes)} at {format_duration(peak.time_ns)}{reserved}"
    picture = Picture(f"Memory of {curve.device}: peak {said}", [shorten_label(curve.trace)], bottom + 56)
    sums = np.maximum(np.array([band.bytes for band in curve.bands], np.int64), 0)
    edges = np.concatenate([np.zeros((1, sums.shape[1]), np.int64), np.cumsum(sums, axis=0)])
    kept = np.array([size or 0 for size in curve.reserved_bytes], np.int64)
    x_axis = Axis(curve.start_ns, max(curve.end_ns, curve.start_ns + 1), LEFT, RIGHT)
    y_axis = Axis(0, max(int(edges[-1].max(initial=0)), int(kept.max(initial=0)), 1) * 1.05, bottom, top)
    # label the axis in one binary unit: "0 MiB", "50 MiB"
    unit, step = "B", 1
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if y_axis.high < step * KIB:
            break
        unit, step = larger, step * KIB
    inner = Axis(y_axis.low / step, y_axis.high / step, y_axis.start, y_axis.end)
    picture.draw_y_axis(y_axis, LEFT, RIGHT, [(value * step, f"{value:,.10g} {unit}") for value in inner.find_ticks()])
    draw_bands(picture, [band.name for band in curve.bands], edges, kept, COLORS, x_axis, y_axis)
    picture.draw_x_axis(x_axis, bottom, bottom, label_times(x_axis))
    x, y = x_axis.place(peak.time_ns), y_axis.place(peak.allocated_bytes)
    data = {"time_ns": peak.time_ns, "bytes": peak.allocated_bytes}
    picture.shape("circle", {"cx": x, "cy": y, "r": 4, "class": "line"}, "the peak", **data)
    picture.text(min(max(x, LEFT + 20), RIGHT - 20), y - 8, "peak", "bold", "middle")
    _draw_legend(picture, curve, top, bool(kept.any()))
    return picture.finish()


def _draw_legend(picture: Picture, curve: StackedCurve, y: float, has_reserved: bool) -> None:
    """List the bands in the order of the picture, with their bytes at the peak."""
    x = RIGHT + 24
    picture.text(x, y + 4, "at the peak", "bold")
    if has_reserved:
        y += LINE
        picture.path([(x, y), (x + 12, y)], "line dashed")
        picture.text(x + 20, y + 4, "reserved")
        picture.text(WIDTH - MARGIN, y + 4, format_size(curve.peak.reserved_bytes or 0), anchor="end")
    for band, color in reversed([*zip(curve.bands, COLORS, strict=False)]):
        if sum(band.bytes):
            y += LINE
            picture.shape("rect", {"x": x, "y": y - 6, "width": 12, "height": 12, "fill": color})
            picture.text(x + 20, y + 4, band.name)
            picture.text(WIDTH - MARGIN, y + 4, format_size(band.peak_bytes), anchor="end")
    if curve.cannot_tell is not None:
        picture.text(x, y + LINE + 4, "allocations are not told apart", "muted")
