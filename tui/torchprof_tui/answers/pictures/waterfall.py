"""Draw the account of a comparison as a waterfall: from a step of A, part by part, to a step of B."""

from __future__ import annotations

import textwrap

from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.waterfall import build_rows, choose_axis
from torchprof_tui.answers.pictures.svg import (
    BLUE,
    GREY,
    HEADING,
    LINE,
    MARGIN,
    RED,
    WIDTH,
    Axis,
    Picture,
    label_times,
    shorten_label,
)
from torchprof_tui.trace.core.time_format import format_duration

LEFT, RIGHT, ROW, BAR = 470, WIDTH - MARGIN, 26, 16
_COLUMNS = (300, 375, LEFT - 16)  # right edges of the texts: A, B, the change

LINE_CHARACTERS = 125
MAX_LINES = 3


def draw_waterfall(comparison: Comparison) -> str:
    """Draw the account as SVG. Its rows are those of the text and the screen."""
    account = comparison.account
    rows = build_rows(account)
    low, high = choose_axis(account, rows)
    said = textwrap.wrap(comparison.verdict.first, LINE_CHARACTERS, max_lines=MAX_LINES, placeholder=" …")
    labels = [shorten_label(side.side.label) for side in (comparison.a, comparison.b)]
    lines = [f"A: {labels[0]}", f"B: {labels[1]}", *said]
    top = HEADING + LINE * len(lines) + 32
    bottom = top + ROW * (len(rows) + 2)
    notes = [
        *(["~ and pale: within the noise, so it may be chance"] if any(row.mark for row in rows) else []),
        *([f"the bars begin at {format_duration(low)}"] if low else []),
    ]
    picture = Picture(
        f"A step: {format_duration(account.a)} → {format_duration(account.b)} "
        f"({_format_change(account.delta)}, {account.ratio:+.1%})",
        lines,
        bottom + 44 + LINE * bool(notes),
    )
    axis = Axis(low, max(high, low + 1), LEFT, RIGHT)
    picture.draw_x_axis(axis, top, bottom, label_times(axis))
    for x, heading in zip(_COLUMNS, ("A", "B", "change"), strict=True):
        picture.text(x, top - 8, heading, "muted", "end")
    _draw_row(picture, axis, top, ("A", format_duration(account.a), "", ""), (low, account.a), GREY, a_ns=account.a)
    for number, row in enumerate(rows, 1):
        y = top + ROW * number
        times = tuple(format_duration(time) if time else "–" for time in (row.a, row.b))
        cells = (row.label, *times, f"{row.mark}{_format_change(row.delta)}")
        start = axis.place(row.start)
        picture.path([(start, y - ROW + BAR + 5), (start, y + 5)], "axis")
        color = RED if row.delta > 0 else BLUE
        _draw_row(picture, axis, y, cells, (row.start, row.end), color, bool(row.mark), delta_ns=row.delta)
    y = bottom - ROW
    _draw_row(picture, axis, y, ("B", "", format_duration(account.b), ""), (low, account.b), GREY, b_ns=account.b)
    picture.text(MARGIN, bottom + 44, "; ".join(notes), "muted")
    return picture.finish()


def _draw_row(
    picture: Picture,
    axis: Axis,
    y: float,
    cells: tuple[str, ...],
    span: tuple[int, int],
    color: str,
    is_noise: bool = False,
    **data: int,
) -> None:
    label, *times = cells
    picture.text(MARGIN, y + 17, label, "" if "delta_ns" in data else "bold", most=32)
    for x, time in zip(_COLUMNS, times, strict=True):
        picture.text(x, y + 17, time, anchor="end")
    first, last = sorted(map(axis.place, span))
    size = {"x": first, "y": y + 5, "width": max(last - first, 1.0), "height": BAR}
    tip = f"{label}: {' '.join(filter(None, times))}"
    picture.shape("rect", {**size, "fill": color, "fill-opacity": 0.4 if is_noise else None}, tip, **data)


def _format_change(delta: int) -> str:
    return f"{'+' if delta > 0 else ''}{format_duration(delta)}"
