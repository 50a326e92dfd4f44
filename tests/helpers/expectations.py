"""The expectations beside this file: one Markdown table a trace, a line a pattern, written for a reviewer to read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from torchprof_tui.analysis.patterns.engine.pattern import State

FOLDER = Path(__file__).parents[1] / "analysis/patterns/expectations"

_LINE = re.compile(r"\| `(?P<id>[a-z0-9-]+)` \| (?P<state>fired|absent|cannot tell) \| (?P<why>.+) \|")
_STATES = {"fired": State.FIRED, "absent": State.ABSENT, "cannot tell": State.CANNOT_TELL}


class Expectation(NamedTuple):
    regime: str
    states: dict[str, State]
    why: dict[str, str]


def _expectations(folder: Path) -> dict[str, Expectation]:
    """Trace (as its path below the folder of traces, without the ending) -> what reading it says. Raises ValueError for
    an entry that cannot be read and for an id that stands twice."""
    return {_heading(path): _read(path) for path in sorted(folder.glob("*.md")) if path.name != "README.md"}


def _heading(path: Path) -> str:
    return path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def _read(path: Path) -> Expectation:
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


SHARED = _expectations(FOLDER)
"""Of the shared traces."""
SAMPLES = _expectations(FOLDER / "samples")
"""Of those that ship with the program; one whose name a shared trace has, too, is another recording."""
