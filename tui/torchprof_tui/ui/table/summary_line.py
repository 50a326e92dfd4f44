"""The line below the table: how many rows of what are listed, in which order, and the totals."""

from __future__ import annotations

from torchprof_tui.analysis.search.name_search import is_case_sensitive
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.ui.table.row_listing import RowListing


def format_summary(listing: RowListing, group_by: GroupBy, scope: str, totals: str) -> str:
    """Format the rows listed, the grouping ("" for names), the scope, the filter and the totals."""
    assert listing.sheet is not None
    grouping = "" if group_by is GroupBy.NAME else f" by {group_by.value}"
    parts = [f"{len(listing.order):,} of {len(listing.sheet):,} rows{grouping}", scope]
    if listing.filter:
        case = " (case-sensitive)" if is_case_sensitive(listing.filter) else ""
        parts.append(f"filter {listing.filter!r}{case}")
    return " · ".join([*parts, totals] if totals else parts)
