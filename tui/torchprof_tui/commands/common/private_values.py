"""Report what was left out of a written trace as private, and what was kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from torchprof_tui.analysis.completeness.private_metadata import PrivateValue, describe_private_values
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.problems import excerpt

MAX_KEPT = 8
"""Keys that are named, at most."""


def report_private_values(left_out: Sequence[PrivateValue], kept: Sequence[str]) -> None:
    """Report on stderr what was left out, and which other metadata was kept, without any value."""
    if left_out:
        text = clean(describe_private_values(left_out))
        print(f"torchprof-tui: left out: {text}; --keep-metadata keeps it", file=sys.stderr)
    if kept:
        more = f" and {len(kept) - MAX_KEPT} more" if len(kept) > MAX_KEPT else ""
        keys = ", ".join(map(excerpt, kept[:MAX_KEPT]))
        line = f"torchprof-tui: kept: {keys}{more}; nothing private was found there, which is no guarantee"
        print(clean(line), file=sys.stderr)
