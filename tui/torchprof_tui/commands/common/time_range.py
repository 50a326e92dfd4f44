"""Parse the option `--range T0:T1`."""

from __future__ import annotations

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.time_format import parse_time

TIME_RANGE_HELP = "12.5ms:30ms; a bare number is µs"


def parse_time_range(text: str) -> tuple[int, int]:
    """Parse "T0:T1" into (start, end) in ns from the first event of the trace. Raises UsageError."""
    first, colon, last = text.partition(":")
    try:
        if not colon:
            raise ValueError("expected T0:T1")
        times = parse_time(first), parse_time(last)
    except ValueError as error:
        raise UsageError(f"--range {text}: {error}") from error
    if times[1] <= times[0]:
        raise UsageError(f"--range {text}: the end is before the start")
    return times
