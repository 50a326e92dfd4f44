"""Arrange an account as a waterfall: rows from A's time to B's, each of which begins where the one before ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.trace.core.records import record

if TYPE_CHECKING:
    from torchprof_tui.analysis.compare.account import Account

MAX_PARTS = 12  # parts that are drawn one by one; the rest is one row
_MIN_SHARE = 0.001  # smaller changes, of the longer step, are drawn as a part of the rest


@record
class WaterfallRow:
    """A row: a part with the time of both sides, ns; `start`, `end`: from where to where it moves the step's time."""

    label: str
    a: int
    b: int
    start: int
    end: int
    mark: str = ""

    @property
    def delta(self) -> int:
        return self.b - self.a


def build_rows(account: Account, max_parts: int = MAX_PARTS) -> list[WaterfallRow]:
    """Build the rows of the parts that changed, those beyond noise first; the others are one row, so the sum holds."""
    smallest = _MIN_SHARE * max(account.a, account.b)
    shown = [part for part in account.parts if abs(part.delta) >= smallest][:max_parts]
    rest = [part for part in account.parts if part not in shown]
    rows, time = [], account.a
    for part in shown:
        mark = "~" if part.is_within_noise and part.delta else ""
        rows.append(WaterfallRow(part.label, part.a, part.b, time, time + part.delta, mark))
        time += part.delta
    if rest:
        a, b = sum(part.a for part in rest), sum(part.b for part in rest)
        label = f"{len(rest)} other part{'s' if len(rest) > 1 else ''}" if shown else "all parts"
        rows.append(WaterfallRow(label, a, b, time, time + b - a))
    return rows


def choose_axis(account: Account, rows: list[WaterfallRow]) -> tuple[int, int]:
    """Choose where the bars begin and end, ns: at 0, or later where all that moves lies in a small part at the end."""
    times = [account.a, account.b, *(row.end for row in rows)]
    low, high = min(times), max(times)
    begin = low - (high - low) // 4
    return (begin, high) if begin > high // 2 and high > low else (0, high)
