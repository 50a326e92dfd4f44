"""What the source view says about a file that may have changed since the recording."""

from __future__ import annotations

import pytest

from torchprof_tui.ui.source.source_screen import describe_line_match

FILE = ("@cache", "def forward(x):", "    return x", "", "class Model:", "    async def run(self): ...")


@pytest.mark.parametrize(
    ("line", "function", "expected", "stale"),
    [
        (1, "forward", "the profiler records where forward begins", False),  # a decorator comes first
        (2, "forward", "the profiler records where forward begins", False),
        (3, "forward", "", False),  # the line that ran when the recording began
        (5, "Model", "the profiler records where Model begins", False),
        (6, "run", "the profiler records where run begins", False),
        (7, "run", "line 7 is after the end of the file: the file has changed", True),
        (3, "backward", "no backward in it: the file has changed, or is another", True),
        (3, "for", "no for in it: the file has changed, or is another", True),
        (3, "<module>", "", False),
        (3, "a(b", "", False),
        (None, "<module>", "no mark: began before the recording", False),
        (None, "forward", "no mark: began before the recording", False),
        (None, "backward", "no backward in it: the file has changed, or is another", True),
    ],
)
def test_what_the_line_is(line: int | None, function: str, expected: str, stale: bool) -> None:
    assert describe_line_match(FILE, line, function) == (expected, stale)
