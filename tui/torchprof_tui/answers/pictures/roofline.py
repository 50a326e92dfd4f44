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
    Canvas,
    Picture,
    choose_log_axis,
    label_numbers,
    shorten_label,
)
from torchprof_tui.answers.roofline import DeviceRoof, Roofline, RooflineGroup
from torchprof_tui.trace.core.time_format import format_duration

MARKS = "123456789abc"  # on a canvas, of the groups in the table
MAX_ROWS = len(MARKS)  # groups in the table below the picture

LEFT, RIGHT, PLOT = 90, WIDTH - MARGIN, 360
MIN_RADIUS, MAX_RADIUS, LABEL_WIDTH, NUMBER_WIDTH = 4.0, 22.0, 150, 18

LIMITS = {"memory": BLUE, "compute": RED, "neither": ORANGE, "unknown": GREY}
_COLUMNS = (
    (MARGIN + 20, "", "kernel (op)"),
    (430, "end", "GPU time"),
    (500, "end", "share"),
    (600, "end", "FLOP/byte"),
    (710, "end", "rate"),
    (800, "end", "of the peak"),
    (830, "", "limited by"),
)


def draw_roofline(roofline: Roofline, canvas: Canvas | None = None) -> str:
    """Draw a roofline as SVG, with a table of all groups that have a rate; on a canvas the plot alone."""
    points = roofline.list_points()
    listed = roofline.list_known()[:MAX_ROWS]
    top, right = HEADING + 2 * LINE + 16.0, float(RIGHT)
    bottom = top + PLOT
    if canvas is not None:
        top, bottom, right = LINE / 2, max(canvas.height - 50, LINE * 2), max(canvas.width - MARGIN, LEFT + LABEL_WIDTH)
    devices = ", ".join(roof.device for roof in roofline.roofs) or "a device whose peaks are unknown"
    picture = Picture(
        "Roofline",
        [
            f"{shorten_label(roofline.trace)} · {devices}",
            f"{len(points):,} of {len(roofline.groups):,} groups of like launches have FLOPs and bytes: circles, "
            f"larger with more GPU time. Rates are known of {format_share(roofline.known_share)} of it.",
        ],
        round(bottom) + 88 + LINE * (len(listed) + 1),
        canvas,
    )
    x_axis, y_axis = choose_axes(roofline, (LEFT, right), (bottom, top))
    picture.draw_y_axis(y_axis, LEFT, right, label_numbers(y_axis))
    picture.draw_x_axis(x_axis, top, bottom, label_numbers(x_axis))
    labels = [label for roof in roofline.roofs for label in _draw_roof(picture, roof, x_axis, y_axis)]
    numbers = []
    for group in reversed(points):  # the longest one on top
        intensity, tflops = group.intensity or 0.0, group.tflops or 0.0
        x, y = x_axis.place(intensity), y_axis.place(tflops)
        radius = MIN_RADIUS + MAX_RADIUS * math.sqrt(group.share)
        measured = f"{group.format_rate()}, {intensity:.4g} FLOP/byte, limited by {group.limit}"
        picture.shape(
            "circle",
            {"cx": x, "cy": y, "r": radius, "fill": LIMITS[group.limit], "fill-opacity": 0.75, "class": "mark"},
            f"{group.kernel} ({group.op}): {measured}",
            event=group.event,
            intensity=intensity,
            tflops=tflops,
        )
        if group in listed:
            number = listed.index(group)
            numbers.append((x + radius + 2, y + 4, str(number + 1) if canvas is None else MARKS[number]))
    for x, y, mark in reversed(numbers):  # where there is no room, that of the longer one
        if all(abs(x - other) > NUMBER_WIDTH or abs(y - line) > LINE * 0.7 for other, line, _ in labels):
            labels.append((x, y, mark))
    for x, y, label in labels:
        picture.text(x, y, label, "halo")
    if not points:
        said = "no FLOPs: no matrix product with known shapes"
        picture.text((LEFT + right) / 2, (top + bottom) / 2, said, "muted", "middle")
    picture.text(LEFT + 8, top + 16, "TFLOP/s", "muted")
    picture.text(right, bottom + 42, "FLOPs per byte", "muted", "end")
    _draw_limits(picture, bottom + 42, min((right - LEFT - 100) / len(LIMITS), 180))
    if canvas is None:
        _draw_table(picture, listed, bottom + 74)
    return picture.finish()


def _draw_limits(picture: Picture, y: float, pitch: float) -> None:
    """Draw what the colours mean, each `pitch` units wide."""
    for number, (limit, color) in enumerate(LIMITS.items()):
        x = LEFT + 6 + number * pitch
        picture.shape("circle", {"cx": x, "cy": y - 4, "r": 5, "fill": color})
        label = limit if limit == "unknown" else f"{'limit:' if pitch < 150 else 'limited by'} {limit}"
        picture.text(x + 10, y, label, "muted")


def choose_axes(roofline: Roofline, x_ends: tuple[float, float], y_ends: tuple[float, float]) -> tuple[Axis, Axis]:
    """Choose the axes, drawn between these ends, so that all points and the ridges of the roofs are inside."""
    points = roofline.list_points()
    ridges = [peak.tflops / roof.gb_s * 1e3 for roof in roofline.roofs if roof.gb_s for peak in roof.peaks]
    peaks = [peak.tflops for roof in roofline.roofs for peak in roof.peaks]
    return (
        choose_log_axis([*(each.intensity or 0 for each in points), *ridges] or [1.0], *x_ends),
        choose_log_axis([*(each.tflops or 0 for each in points), *peaks] or [1.0], *y_ends),
    )


def _draw_roof(picture: Picture, roof: DeviceRoof, x_axis: Axis, y_axis: Axis) -> list[tuple[float, float, str]]:
    """Draw the roof of a device. Returns (x, y, text) of the labels, which are drawn above all points."""
    labels = []
    for peak in roof.peaks:
        y = y_axis.place(peak.tflops)
        label = f"{peak.dtype} {peak.tflops:,.4g} TFLOP/s"
        ridge = x_axis.low if roof.gb_s is None else peak.tflops / roof.gb_s * 1e3
        ends = [(x_axis.place(ridge), y), (x_axis.end, y)]
        picture.path(ends, "line", f"{roof.device}: {label}", dtype=peak.dtype, tflops=peak.tflops)
        labels.append((x_axis.end - LABEL_WIDTH, y - 6, label))
    if roof.gb_s is None:
        return labels
    highest = max((peak.tflops for peak in roof.peaks), default=y_axis.high)
    first, last = max(x_axis.low, y_axis.low / roof.gb_s * 1e3), min(x_axis.high, highest / roof.gb_s * 1e3)
    ends = [(x_axis.place(x), y_axis.place(x * roof.gb_s / 1e3)) for x in (first, last)]
    label = f"memory {roof.gb_s:,.4g} GB/s"
    picture.path(ends, "line", f"{roof.device}: {label}", gb_s=roof.gb_s)
    (x0, y0), (x1, y1) = ends
    return [*labels, ((x0 + x1) / 2 + 10, (y0 + y1) / 2 + 16, label)]


def _draw_table(picture: Picture, groups: list[RooflineGroup], y: float) -> None:
    for x, anchor, heading in _COLUMNS:
        picture.text(x, y, heading, "muted", "end" if anchor else "start")
    for number, group in enumerate(groups, 1):
        y += LINE
        picture.text(MARGIN + 14, y, str(number), "muted", "end")
        op = f" ({group.op.removeprefix('aten::')})" if group.op else ""
        cells = (
            f"{group.kernel}{op}",
            format_duration(group.time_us * 1000),
            format_share(group.share),
            "" if group.intensity is None else f"{group.intensity:,.4g}",
            group.format_rate(),
            format_share(group.peak_share),
            f"{group.limit}: cache" if group.is_cached and group.limit == "unknown" else group.limit,
        )
        for (x, anchor, _), cell in zip(_COLUMNS, cells, strict=True):
            picture.text(x, y, cell, "", "end" if anchor else "start", most=42)
        picture.shape("circle", {"cx": _COLUMNS[-1][0] - 11, "cy": y - 4, "r": 5, "fill": LIMITS[group.limit]})
