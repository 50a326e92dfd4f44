"""Which steps of a trace to compare, as a user asks for them."""

from __future__ import annotations

import re

from torchprof_tui.trace.core.errors import NotThereError
from torchprof_tui.trace.core.records import record


class ComparisonError(NotThereError):
    """Nothing can be compared as asked: one line that says what can. Names from files are as recorded."""


_NUMBERS = re.compile(r"#?(\d{1,18})(?:\.\.#?(\d{1,18}))?")


@record
class StepSelection:
    """Steps by number (N of `ProfilerStep#N`), both ends included, or a time range in ns; nothing: the steady ones."""

    numbers: tuple[int, int] | None = None
    time_range: tuple[int, int] | None = None

    @property
    def is_automatic(self) -> bool:
        return self.numbers is None and self.time_range is None


AUTOMATIC = StepSelection()

Selections = tuple[StepSelection, StepSelection]  # the steps of A and of B


def split_sides(text: str) -> tuple[str, str]:
    """Split "3..7/8..12" into what is for A and for B; without a slash both get the same."""
    first, slash, second = text.partition("/")
    return first, second if slash else first


def parse_step_numbers(text: str) -> tuple[int, int]:
    """Parse "3", "#3" or "3..7" into the first and the last number. Raises ComparisonError."""
    match = _NUMBERS.fullmatch(text.strip())
    if match is None:
        raise ComparisonError(f"not steps: {text.strip()!r} (write 3..7 or '#3')")
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    if last < first:
        raise ComparisonError(f"steps {text.strip()}: the last comes before the first")
    return first, last
