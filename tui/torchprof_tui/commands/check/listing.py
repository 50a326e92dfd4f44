"""List all patterns: `torchprof-tui check --list`."""

from __future__ import annotations

from itertools import groupby

from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.answers.check import build_pattern_list
from torchprof_tui.commands.common.output import print_answer


def print_patterns(as_json: bool) -> None:
    """Print every pattern with its title by section, or as JSON with how it is decided."""
    if as_json:
        print_answer(build_pattern_list(PATTERNS.values()))
        return
    cells = max(map(len, PATTERNS))
    for section, patterns in groupby(PATTERNS.values(), key=lambda pattern: pattern.section):
        print(section.value)
        for pattern in patterns:
            print(f"  {pattern.id:<{cells}}  {pattern.severity.value:<8}  {pattern.title}")
