"""Draw a roofline: the rate of each group of launches over its FLOPs per byte, below what its device reaches."""

from __future__ import annotations

import math

from torchprof_tui.answers.html import format_share
from torchprof_tui.answers.pictures.svg import (
    BLUE,
    GREY,
    HEADING,
    LINE,
    MARGIN,
    ORANGE,
    RED,
    WIDTH,
    Axis,
    Picture,
    choose_log_axis,
    label_numbers,
    shorten_label,
)
from torchprof_tui.answers.roofline import DeviceRoof, Roofline, RooflineGroup
from torchprof_tui.trace.core.time_format import format_duration

MAX_ROWS = 12
"""Groups in the table below the picture: those with most time."""

LEFT, RIGHT, PLOT = 90, WIDTH - MARGIN, 360
NUMBERED_RADIUS, MAX_RADIUS = 4.0, 22.0

LIMITS = {
    "memory": (BLUE, "memory"),
    "compute": (RED, "compute"),
    "neither": (ORANGE, "neither"),
    "unknown": (GREY, "unknown"),
}
_COLUMNS = (
    (MARGIN + 20, "", "kernel (op)"),
    (430, "end", "GPU time"),
    (500, "end", "share"),
    (600, "end", "FLOP/byte"),
    (710, "end", "rate"),
    (800, "end", "of the peak"),
    (830, "", "limited by"),
)


def draw_roofline(roofline: Roofline) -> str:
    """Draw a roofline as SVG; of groups without counted FLOPs the table below has the GB/s."""
    listed = roofline.groups[:MAX_ROWS]
    points = [each for each in roofline.groups if each.intensity and each.tflops]
    top = HEADING + 2 * LINE + 16
    bottom = top + PLOT
    devices = ", ".join(roof.device for roof in roofline.roofs) or "a device whose peaks are unknown"
    picture = Picture(
        "Roofline",
        [
            f"{shorten_label(roofline.trace)} · {devices}",
            f"{len(points):,} of {len(roofline.groups):,} groups of like launches have FLOPs and bytes: circles, "
            f"larger with more GPU time. Rates are known of {format_share(roofline.known_share)} of it.",
        ],
        bottom + 88 + LINE * (len(listed) + 1),
    )
    _draw_plot(picture, roofline, points, top, bottom)
    _draw_table(picture, listed, bottom + 74)
    return picture.finish()


def _draw_plot(picture: Picture, roofline: Roofline, points: list[RooflineGroup], top: float, bottom: float) -> None:
    ridges = [peak.tflops / roof.gb_s * 1e3 for roof in roofline.roofs if roof.gb_s for peak in roof.peaks]
    peaks = [peak.tflops for roof in roofline.roofs for peak in roof.peaks]
    x_axis = choose_log_axis([*(each.intensity for each in points if each.intensity), *ridges] or [1.0], LEFT, RIGHT)
    y_axis = choose_log_axis([*(each.tflops for each in points if each.tflops), *peaks] or [1.0], bottom, top)
    picture.draw_y_axis(y_axis, LEFT, RIGHT, label_numbers(y_axis))
    picture.draw_x_axis(x_axis, top, bottom, label_numbers(x_axis))
    picture.text(LEFT + 8, top + 16, "TFLOP/s", "muted")
    for number, (color, limit) in enumerate(LIMITS.values()):
        x = LEFT + 6 + number * 180
        picture.shape("circle", {"cx": x, "cy": bottom + 38, "r": 5, "fill": color})
        picture.text(x + 10, bottom + 42, f"limited by {limit}" if limit != "unknown" else limit, "muted")
    picture.text(RIGHT, bottom + 42, "FLOPs per byte", "muted", "end")
    for roof in roofline.roofs:
        _draw_roof(picture, roof, x_axis, y_axis)
    for number, group in reversed([*enumerate(roofline.groups, 1)]):  # the longest one on top
        if group.intensity and group.tflops:
            _draw_point(picture, group, number, x_axis, y_axis)
    if not points:
        middle = (LEFT + RIGHT) / 2
        picture.text(middle, (top + bottom) / 2, "no FLOPs: no matrix product with known shapes", "muted", "middle")


def _draw_roof(picture: Picture, roof: DeviceRoof, x_axis: Axis, y_axis: Axis) -> None:
    """Draw the slope of a device's bandwidth up to each peak, which continues as a horizontal line."""
    for peak in roof.peaks:
        y = y_axis.place(peak.tflops)
        label = f"{peak.dtype} {peak.tflops:,.4g} TFLOP/s"
        ridge = x_axis.low if roof.gb_s is None else peak.tflops / roof.gb_s * 1e3
        ends = [(x_axis.place(ridge), y), (x_axis.end, y)]
        picture.path(ends, "line", f"{roof.device}: {label}", dtype=peak.dtype, tflops=peak.tflops)
        picture.text(x_axis.end - 6, y - 6, label, "bold", "end")
    if roof.gb_s is None:
        return
    highest = max((peak.tflops for peak in roof.peaks), default=y_axis.high)
    first, last = max(x_axis.low, y_axis.low / roof.gb_s * 1e3), min(x_axis.high, highest / roof.gb_s * 1e3)
    ends = [(x_axis.place(x), y_axis.place(x * roof.gb_s / 1e3)) for x in (first, last)]
    label = f"{roof.gb_s:,.4g} GB/s"
    picture.path(ends, "line", f"{roof.device}: {label}", gb_s=roof.gb_s)
    (x0, y0), (x1, y1) = ends
    picture.text(x0 + (x1 - x0) * 0.35 - 8, y0 + (y1 - y0) * 0.35 - 4, f"memory {label}", "bold", "end")


def _draw_point(picture: Picture, group: RooflineGroup, number: int, x_axis: Axis, y_axis: Axis) -> None:
    assert group.intensity is not None
    assert group.tflops is not None
    x, y = x_axis.place(group.intensity), y_axis.place(group.tflops)
    radius = NUMBERED_RADIUS + MAX_RADIUS * math.sqrt(group.share)
    color, limit = LIMITS[group.limit]
    picture.shape(
        "circle",
        {"cx": x, "cy": y, "r": radius, "fill": color, "fill-opacity": 0.75, "class": "mark"},
        f"{group.kernel} ({group.op}): {_format_rate(group)}, {group.intensity:.4g} FLOP/byte, limited by {limit}",
        event=group.event,
        intensity=group.intensity,
        tflops=group.tflops,
    )
    if number <= MAX_ROWS:
        picture.text(x + radius + 2, y + 4, str(number))


def _draw_table(picture: Picture, groups: list[RooflineGroup], y: float) -> None:
    for x, anchor, heading in _COLUMNS:
        picture.text(x, y, heading, "muted", "end" if anchor else "start")
    for number, group in enumerate(groups, 1):
        y += LINE
        color, limit = LIMITS[group.limit]
        picture.text(MARGIN + 14, y, str(number), "muted", "end")
        op = f" ({group.op.removeprefix('aten::')})" if group.op else ""
        shares = (group.memory_share, group.compute_share)
        peak = max((share for share in shares if share is not None), default=None)
        cells = (
            f"{group.kernel}{op}",
            format_duration(group.time_us * 1000),
            format_share(group.share),
            "" if group.intensity is None else f"{group.intensity:,.4g}",
            _format_rate(group),
            format_share(peak),
            f"{limit}: cache" if group.is_cached and group.limit == "unknown" else limit,
        )
        for (x, anchor, _), cell in zip(_COLUMNS, cells, strict=True):
            picture.text(x, y, cell, "", "end" if anchor else "start", most=42)
        picture.shape("circle", {"cx": _COLUMNS[-1][0] - 11, "cy": y - 4, "r": 5, "fill": color})


def _format_rate(group: RooflineGroup) -> str:
    if group.tflops is not None:
        return f"{group.tflops:,.3g} TFLOP/s"
    return "" if group.gb_s is None else f"{group.gb_s:,.3g} GB/s"
