"""`--range T0:T1`, as every command that takes one reads it."""

from __future__ import annotations

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.time_format import parse_time

TIME_RANGE_HELP = "12.5ms:30ms; a bare number is µs"


def parse_time_range(text: str) -> tuple[int, int]:
    """ns of "T0:T1", from the trace's first event. Raises UsageError."""
    first, colon, last = text.partition(":")
    try:
        if not colon:
            raise ValueError("expected T0:T1")
        times = parse_time(first), parse_time(last)
    except ValueError as error:
        raise UsageError(f"--range {text}: {error}") from error
    if times[1] <= times[0]:
        raise UsageError(f"--range {text}: it ends before it begins")
    return times
