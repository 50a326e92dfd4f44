"""The cheatsheet: patterns that an expert sees in a trace, decided from its events; never guessed.

`checker.Checker` answers. Here is only what an answer is, for those who show it: they are on screen before the modules
that decide are imported.
"""

from __future__ import annotations

from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Finding,
    Pattern,
    Section,
    Severity,
    State,
    Threshold,
)

__all__ = ["Answer", "Finding", "Pattern", "Section", "Severity", "State", "Threshold"]
