"""Find the line of the user's code behind a verdict or a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.pattern import Finding
    from torchprof_tui.analysis.patterns.verdict.verdict import Verdict


def find_code_location(_answer: Verdict | Finding) -> str:
    """Return "file:lineno" of the code behind an answer, "" if it is unknown. Every output reads it from here."""
    return ""
