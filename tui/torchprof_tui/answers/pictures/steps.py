"""Draw quantities over equal intervals of time as stacked steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torchprof_tui.answers.pictures.svg import Axis, Canvas, Picture
from torchprof_tui.trace.core.arrays import I64


def draw_steps(canvas: Canvas, sums: I64, reserved: I64, highest: int, colors: Sequence[str]) -> str:
    """Draw bands of w equal intervals, as high as the canvas at `highest`: sums int64[bands, w], reserved int64[w]."""
    edges = np.concatenate([np.zeros((1, sums.shape[1]), np.int64), np.cumsum(np.maximum(sums, 0), axis=0)])
    picture = Picture(canvas=canvas)
    x_axis, y_axis = Axis(0, 1, 0, canvas.width), Axis(0, max(highest, 1), canvas.height, 1)
    draw_bands(picture, [""] * len(sums), edges, reserved, colors, x_axis, y_axis)
    return picture.finish()


def draw_bands(
    picture: Picture, names: Sequence[str], edges: I64, kept: I64, colors: Sequence[str], x_axis: Axis, y_axis: Axis
) -> None:
    """Draw the bands between edges int64[bands + 1, w], and the line of what is reserved."""
    for name, color, low, high in zip(names, colors, edges[:-1], edges[1:], strict=False):
        if (high > low).any():
            points = [*_trace_steps(high, x_axis, y_axis), *reversed(_trace_steps(low, x_axis, y_axis))]
            shape = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
            picture.shape("polygon", {"points": shape, "fill": color}, name, **({"band": name} if name else {}))
    if kept.any():
        first = int(np.argmax(kept > 0))  # before the first record it is unknown
        known = replace(x_axis, start=x_axis.start + first * (x_axis.end - x_axis.start) / len(kept))
        picture.path(_trace_steps(kept[first:], known, y_axis), "line dashed", "reserved")


def _trace_steps(sizes: I64, x_axis: Axis, y_axis: Axis) -> list[tuple[float, float]]:
    """Return the corners of a step function of as many equal intervals as there are sizes."""
    width = (x_axis.end - x_axis.start) / len(sizes)
    changes = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(sizes)]
    levels = [y_axis.place(int(sizes[first])) for first in changes[:-1]]
    return [
        (x_axis.start + width * column, level)
        for level, first, last in zip(levels, changes[:-1], changes[1:], strict=True)
        for column in (first, last)
    ]
