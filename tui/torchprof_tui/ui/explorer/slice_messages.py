"""The message about a slice that was written."""

from __future__ import annotations

from torchprof_tui.analysis.slicing.slice_writer import SliceResult
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.ui.common.number_format import format_file_size


def format_slice_result(sliced: SliceResult, with_private: bool = True) -> str:
    """Format the result in one line. It holds names from the trace: clean it before it reaches a terminal.

    `with_private`: name the environment variables and secrets that were left out, too.
    """
    summary = f"{sliced.entries:,} of {sliced.total_entries:,} entries, {format_file_size(sliced.size)}"
    left_out = [*sliced.skipped_keys, *(map(str, sliced.private_values) if with_private else ())]
    skipped = f"; left out: {', '.join(left_out)}" if left_out else ""
    return f"wrote {sliced.path}: {summary}; {_format_start(sliced.first_start)}{skipped}"


def _format_start(start: int) -> str:
    """Describe the start of the first event, ns from time 0 of the whole trace; profiler events may start before 0."""
    if start < 0:
        return f"its start is {format_duration(-start)} before time 0 of the whole trace"
    return f"its start is at {format_time(start)} of the whole trace"
