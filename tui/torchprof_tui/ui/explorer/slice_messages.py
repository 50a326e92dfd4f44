"""What to say of a slice that was written."""

from __future__ import annotations

from torchprof_tui.analysis.slicing.slice_writer import SliceResult
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.ui.common.number_format import format_value


def format_slice_result(sliced: SliceResult) -> str:
    """One line; clean it before it reaches a terminal."""
    kept = f"{sliced.entries:,} of {sliced.total_entries:,} entries, {format_value(sliced.size, 'bytes')}"
    lost = f"; left out: {', '.join(sliced.skipped_keys)}" if sliced.skipped_keys else ""
    return f"wrote {sliced.path}: {kept}; {_format_start(sliced.first_start)}{lost}"


def _format_start(at: int) -> str:
    """Where its first event lies, in ns from the whole trace's time 0: profilers' own events may lie before that."""
    if at < 0:
        return f"it begins {format_duration(-at)} before time 0 of the whole trace"
    return f"it begins at {format_time(at)} of the whole trace"
