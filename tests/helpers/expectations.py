"""Read the expectations of patterns: one Markdown table per trace, one line per pattern."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from torchprof_tui.analysis.patterns.engine.pattern import State

_OTHER_FILES = ("README.md", "new_patterns.md")
FOLDER = Path(__file__).parents[1] / "analysis/patterns/expectations"

_LINE = re.compile(r"\| `(?P<id>[a-z0-9-]+)` \| (?P<state>fired|absent|cannot tell) \| (?P<why>.+) \|")
_STATES = {"fired": State.FIRED, "absent": State.ABSENT, "cannot tell": State.CANNOT_TELL}


class Expectation(NamedTuple):
    """The expected answers of one trace: its regime, and the state and the reason of each pattern id."""

    regime: str
    states: dict[str, State]
    why: dict[str, str]


def _read_folder(folder: Path) -> dict[str, Expectation]:
    """Read a folder of expectations: trace (its path in the folder of traces, without the suffix) -> expectation.

    Raises ValueError for a line that cannot be parsed and for a duplicate id.
    """
    return {
        _read_heading(path): _read_file(path) for path in sorted(folder.glob("*.md")) if path.name not in _OTHER_FILES
    }


def _read_heading(path: Path) -> str:
    return path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def _read_file(path: Path) -> Expectation:
    text = path.read_text(encoding="utf-8")
    states: dict[str, State] = {}
    why: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("| `"):
            continue
        entry = _LINE.fullmatch(line)
        if entry is None or entry["id"] in states:
            raise ValueError(f"{path.name}: {line}")
        states[entry["id"]], why[entry["id"]] = _STATES[entry["state"]], entry["why"]
    regime = re.search(r"^Regime: ([a-z-]+)\.", text, re.MULTILINE)
    if regime is None:
        raise ValueError(f"{path.name} names no regime")
    return Expectation(regime[1], states, why)


SHARED = _read_folder(FOLDER)
"""Expectations of the shared traces."""
SAMPLES = _read_folder(FOLDER / "samples")
"""Expectations of the shipped samples; a sample with the name of a shared trace is a different recording."""
