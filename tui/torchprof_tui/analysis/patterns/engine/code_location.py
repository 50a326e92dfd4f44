"""Find the line of the user's code behind a verdict or a finding. Every output reads it from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.line_model import SourceLine
    from torchprof_tui.analysis.patterns.engine.pattern import Finding
    from torchprof_tui.analysis.patterns.verdict.verdict import Verdict


def find_code_line(answer: Verdict | Finding) -> SourceLine | None:
    """Return the line of code behind an answer, None if it is unknown."""
    return answer.line


def find_code_location(answer: Verdict | Finding) -> str | None:
    """Return "file:lineno" of the code behind an answer, the file alone if its line is unknown, None without a file.

    As recorded: `clean` it.
    """
    line = find_code_line(answer)
    return None if line is None else line.location or None


def label_code_line(answer: Verdict | Finding) -> str:
    """Return what the code behind an answer is called: "line" of a file, "file", or the "event" that stands for it."""
    line = find_code_line(answer)
    if line is None or line.file is None:
        return "event"
    return "file" if line.line is None else "line"


def describe_code_line(answer: Verdict | Finding) -> str:
    """Describe the code behind an answer for a reader: "train.py(42): forward", "" if it is unknown. As recorded."""
    line = find_code_line(answer)
    return "" if line is None else line.text
