"""Format answers as HTML for notebooks. Names come from traces that others made, so every text is escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from torchprof_tui.trace.core.printable import clean

MAX_ROWS = 20  # rows of a table in a notebook; the answer itself has all of them
MAX_CHARACTERS = 120  # characters of a text in a cell; the whole text is its tooltip

_LEFT, _RIGHT = "text-align:left", "text-align:right;font-variant-numeric:tabular-nums"


def escape(text: object) -> str:
    """Escape a text for HTML, and what a notebook or a terminal would act on."""
    return html.escape(clean(str(text)), quote=True)


def format_number(value: float) -> str:
    """Format a number: integers with separators, fractions with four digits."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return ""
    digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(digits, 6)}f}"


def format_share(share: float | None) -> str:
    """Format a share of 0 to 1 as percent; "" where it is unknown."""
    return "" if share is None else f"{share:.1%}"


def build_table(columns: Sequence[str], rows: Iterable[Sequence[object]], total: int | None = None) -> str:
    """Build a table of at most MAX_ROWS rows; numbers are aligned right. `total`: rows that there are."""
    listed = list(rows)
    shown = listed[:MAX_ROWS]
    head = "".join(f'<th style="{_LEFT}">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(map(_build_cell, row))}</tr>" for row in shown)
    count = len(listed) if total is None else total
    rest = f"<p>{len(shown):,} of {count:,} rows</p>" if count > len(shown) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _build_cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f'<td style="{_RIGHT}">{format_number(value)}</td>'
    text = str(value)
    if len(text) <= MAX_CHARACTERS:
        is_number = text.endswith("%") and text[:1].isdigit()
        return f'<td style="{_RIGHT if is_number else _LEFT}">{escape(text)}</td>'
    return f'<td style="{_LEFT}" title="{escape(text)}">{escape(text[: MAX_CHARACTERS - 1])}…</td>'


def build_block(title: str, lines: Iterable[str] = (), *tables: str) -> str:
    """Build the HTML of an answer: a title, sentences, and tables that are HTML already."""
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in lines if line)
    return f"<div><p><b>{escape(title)}</b></p>{paragraphs}{''.join(tables)}</div>"
