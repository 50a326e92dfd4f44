"""Parser for the target of the go-to prompt and of `--at`: a time (`12ms`) or a step (`#3`, `step 3`)."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.trace.core.time_format import parse_time


@dataclass(frozen=True, slots=True)
class StepNumber:
    """The number N of ProfilerStep#N."""

    number: int


@dataclass(frozen=True, slots=True)
class TimePoint:
    """A time in ns from the trace's first event."""

    time: int


def parse_goto_target(text: str) -> StepNumber | TimePoint:
    """Parse a time or a step. Raises ValueError, with the accepted forms, for anything else."""
    target = text.strip().lower()
    number = target.removeprefix("profiler").removeprefix("step").strip().removeprefix("#")
    if number != target and number.isdecimal():
        return StepNumber(int(number))
    return TimePoint(parse_time(target))
