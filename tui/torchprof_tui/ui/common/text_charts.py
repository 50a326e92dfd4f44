"""Charts of characters: durations in time order on one line, and an account as a waterfall from A's time to B's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torchprof_tui.analysis.compare.waterfall import MAX_PARTS, build_rows, choose_axis
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.cell_text import truncate

if TYPE_CHECKING:
    from torchprof_tui.analysis.compare.account import Account

LEVELS = "▁▂▃▄▅▆▇█"  # block characters by height: eighths of a cell


def build_strip_chart(durations: I64, selected: int, cells: int) -> tuple[str, int]:
    """Build the chart and return (its text, the cell of the selected duration).

    Each cell is a block as high as the longest duration in it. The chart has at most `cells` cells, and no more than
    there are durations. Raises ValueError if there are none.
    """
    count = len(durations)
    if not count:
        raise ValueError("no durations")
    cells = max(min(cells, count), 1)
    bins = np.minimum(np.arange(count) * cells // count, cells - 1)
    heights = np.zeros(cells)
    np.maximum.at(heights, bins, durations)
    highest = max(float(heights.max()), 1.0)
    return "".join(LEVELS[min(int(height / highest * 8), 7)] for height in heights.tolist()), int(bins[selected])


LABEL_CELLS, TIME_CELLS, CHANGE_CELLS, BAR_CELLS = 25, 9, 10, 22  # with the spaces between them 80 cells and less
_LONGER, _SHORTER, _CUT = "█", "░", "╱"  # the last one: the axis begins above 0


def format_waterfall(
    account: Account, bar_cells: int = BAR_CELLS, max_parts: int = MAX_PARTS, ends: tuple[str, str] = ("A", "B")
) -> list[str]:
    """Format the account: a row of headings, A, a row of each part, B; bars of at most `bar_cells`.

    `ends`: the labels of A and B.
    """
    rows = build_rows(account, max_parts)
    low, high = choose_axis(account, rows)

    def bar(start: int, end: int) -> str:
        scale = bar_cells / max(high - low, 1)
        first, last = (round((time - low) * scale) for time in sorted((start, end)))
        if start != end:
            first = min(first, bar_cells - 1)
            last = min(max(last, first + 1), bar_cells)
        return " " * first + (_LONGER if end >= start else _SHORTER) * (last - first)

    def whole_bar(end: int) -> str:
        return (_CUT if low else "") + bar(low, end)[bool(low) :]

    heading = "per step, until GPU done" if account.is_of_gpu else "per step"
    lines = [_format_cells(heading, "A", "B", "change", f"{_CUT}from {format_duration(low)}" if low else "")]
    lines.append(_format_cells(ends[0], format_duration(account.a), "", "", whole_bar(account.a)))
    for row in rows:
        change = f"{'+' if row.delta > 0 else ''}{format_duration(row.delta)}{row.mark}"
        if not row.mark:
            change += " "
        times = format_duration(row.a) if row.a else "-", format_duration(row.b) if row.b else "-"
        lines.append(_format_cells(row.label, *times, change, bar(row.start, row.end)))
    lines.append(_format_cells(ends[1], "", format_duration(account.b), "", whole_bar(account.b)))
    if any(row.mark for row in rows):
        lines.append("(~ within the noise)")
    return lines


def _format_cells(label: str, a: str, b: str, change: str, bar: str) -> str:
    name = truncate(clean(label), LABEL_CELLS)
    return f"{name:<{LABEL_CELLS}} {a:>{TIME_CELLS}} {b:>{TIME_CELLS}} {change:>{CHANGE_CELLS}}  {bar}".rstrip()
