"""What somebody types to go to: `12ms`, `#3`, `step 3`."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.trace.core.time_format import parse_time


@dataclass(frozen=True, slots=True)
class StepNumber:
    """N of ProfilerStep#N."""

    number: int


@dataclass(frozen=True, slots=True)
class TimePoint:
    """ns from the trace's first event."""

    time: int


def parse_goto_target(text: str) -> StepNumber | TimePoint:
    """Raises ValueError, which says what can be typed, for what is neither a time nor a step."""
    wanted = text.strip().lower()
    number = wanted.removeprefix("profiler").removeprefix("step").strip().removeprefix("#")
    if number != wanted and number.isdecimal():
        return StepNumber(int(number))
    return TimePoint(parse_time(wanted))
