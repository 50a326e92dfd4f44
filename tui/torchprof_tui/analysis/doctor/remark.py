"""What the doctor says of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Section(str, Enum):
    """How much a remark matters, worst first. The values are those of `info --json`."""

    LOST = "lost"
    REPAIRED = "repaired"
    ODD = "odd"
    MISSING = "not recorded"


@dataclass(frozen=True, slots=True)
class Remark:
    """`kind`: a short stable word. `count`: how many entries or events. `meaning`: what that is, for somebody who
    meets it here. `example`: one of them, text of the file escaped. `action`: what helps, "" where nothing does.
    `event`: an event that shows it, -1 for none.
    """

    section: Section
    kind: str
    count: int
    meaning: str
    example: str = ""
    action: str = ""
    event: int = -1


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`remarks` by section, the most frequent first in each."""

    remarks: list[Remark]

    def remarks_in(self, section: Section) -> list[Remark]:
        return [remark for remark in self.remarks if remark.section is section]

    @property
    def summary(self) -> str:
        """ "2 lost · 3 repaired · 5 odd · 1 not recorded": kinds, not events."""
        return " · ".join(f"{len(self.remarks_in(section))} {section.value}" for section in Section)
