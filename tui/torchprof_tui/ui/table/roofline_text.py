"""Format a roofline as text: a plot in box characters, and the groups with a rate, of at most 78 columns."""

from __future__ import annotations

from rich.cells import cell_len

from torchprof_tui.answers.pictures.roofline import MARKS, choose_axes
from torchprof_tui.answers.pictures.svg import Axis, shorten_label
from torchprof_tui.answers.roofline import Roofline
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.cell_text import truncate
from torchprof_tui.ui.common.number_format import format_share

GUTTER, COLUMNS, LINES = 8, 69, 18
TABLE, NUMBERS, MIN_NAME = 78, 50, 12  # cells of the table, of its columns beside the name, and of the name

X_UNIT = " FLOP/byte"
OTHER, SLOPE, FLAT = "o", "╱", "─"


def format_roofline(roofline: Roofline) -> list[str]:
    """Format the device, the plot, and the table of the groups with a rate, most time first."""
    return [format_heading(roofline), "", *format_plot(roofline), "", *format_table(roofline)]


def format_heading(roofline: Roofline) -> str:
    """Format the trace, the devices and what they reach."""
    peaks = [f"{peak.dtype} {peak.tflops:,.4g} TFLOP/s" for roof in roofline.roofs for peak in roof.peaks]
    rates = [f"memory {roof.gb_s:,.4g} GB/s" for roof in roofline.roofs if roof.gb_s]
    return clean(" · ".join([shorten_label(roofline.trace), *(roof.device for roof in roofline.roofs), *rates, *peaks]))


def format_table(roofline: Roofline, cells: int = TABLE) -> list[str]:
    """Format a row for each group whose rate is known, most time first, at most `cells` wide."""
    listed = [(mark, clean(group.kernel), group) for mark, group in zip(MARKS, roofline.list_known(), strict=False)]
    longest = max((cell_len(name) + 1 for _, name, _ in listed), default=0)
    size = max(min(cells - NUMBERS, max(longest, TABLE - NUMBERS)), MIN_NAME)
    lines = [f"  {'kernel':<{size}}{'GPU time':>9}{'share':>7}{'rate':>15}{'of peak':>8}  limit"]
    for mark, name, group in listed:
        time, share = format_duration(group.time_us * 1000), format_share(group.share)
        peak = "" if group.peak_share is None else format_share(group.peak_share)
        numbers = f"{time:>9}{share:>7}{group.format_rate():>15}{peak:>8}"
        lines.append(f"{mark} {truncate(name, size - 1):<{size}}{numbers}  {group.limit}")
    return lines


def format_plot(roofline: Roofline) -> list[str]:
    """Format the plot; of points in one cell the longest is shown."""
    listed = roofline.list_known()[: len(MARKS)]
    x_axis, y_axis = choose_axes(roofline, (0, COLUMNS - 1), (LINES - 1, 0))
    cells = [[" "] * COLUMNS for _ in range(LINES)]
    for roof in roofline.roofs:
        for peak in roof.peaks:
            _draw_roof(cells, roof.gb_s, peak.tflops, x_axis, y_axis)
    for group in reversed(roofline.list_points()):
        mark = MARKS[listed.index(group)] if group in listed else OTHER
        cells[round(y_axis.place(group.tflops or 0))][round(x_axis.place(group.intensity or 0))] = mark
    labels = {round(y_axis.place(value)): f"{value:,.10g}" for value in y_axis.find_ticks()}
    below = [" "] * (COLUMNS - len(X_UNIT))
    for value in x_axis.find_ticks():
        text, column = f"{value:,.10g}", round(x_axis.place(value))
        if column + len(text) <= len(below):
            below[column : column + len(text)] = text
    rows = [f"{labels.get(row, ''):>{GUTTER - 1}} │{''.join(cells[row])}".rstrip() for row in range(LINES)]
    x_line = f"{'':{GUTTER}}└{FLAT * (COLUMNS - 1)}"
    return [" TFLOP/s", *rows, x_line, f"{'':{GUTTER + 1}}{''.join(below)}{X_UNIT}"]


def _draw_roof(cells: list[list[str]], gb_s: float | None, tflops: float, x_axis: Axis, y_axis: Axis) -> None:
    for column in range(COLUMNS):
        intensity = x_axis.low * (x_axis.high / x_axis.low) ** (column / (COLUMNS - 1))
        reached = tflops if gb_s is None else min(intensity * gb_s / 1e3, tflops)
        if reached >= y_axis.low:
            cells[round(y_axis.place(reached))][column] = FLAT if reached == tflops else SLOPE
