"""List all patterns: `torchprof-tui check --list`."""

from __future__ import annotations

import json
from itertools import groupby

from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.commands.check.document import SCHEMA, thresholds_as_json


def print_patterns(as_json: bool) -> None:
    """Print every pattern with its title by section, or as JSON with how it is decided."""
    if as_json:
        print(json.dumps({"schema": SCHEMA, "patterns": build_pattern_list()}))
        return
    cells = max(map(len, PATTERNS))
    for section, patterns in groupby(PATTERNS.values(), key=lambda pattern: pattern.section):
        print(section.value)
        for pattern in patterns:
            print(f"  {pattern.id:<{cells}}  {pattern.severity.value:<8}  {pattern.title}")


def build_pattern_list() -> list[dict[str, object]]:
    """Build the JSON list of all patterns, by section."""
    return [
        {
            "id": pattern.id,
            "section": pattern.section.value,
            "weight": pattern.severity.value,
            "title": pattern.title,
            "meaning": pattern.meaning,
            "action": pattern.action,
            "code": pattern.code,
            "decided": pattern.decided,
            "thresholds": thresholds_as_json(pattern),
        }
        for pattern in PATTERNS.values()
    ]
