"""What to say of a slice that was written."""

from __future__ import annotations

from tui.analysis.slicing.writing import Sliced
from tui.trace.ruler import format_time
from tui.widgets.units import format_value


def words(sliced: Sliced) -> str:
    """One line; clean it before it reaches a terminal."""
    kept = f"{sliced.entries:,} of {sliced.of:,} entries, {format_value(sliced.size, 'bytes')}"
    lost = f"; left out: {', '.join(sliced.left_out)}" if sliced.left_out else ""
    return f"wrote {sliced.path}: {kept}; it begins at {format_time(sliced.starts)} of the whole trace{lost}"
