"""Remarks of the trace doctor and the diagnosis that collects them."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.trace.core.text_enum import TextEnum


class Section(TextEnum):
    """Category of a remark, most severe first. The values appear in `info --json`."""

    LOST = "lost"
    REPAIRED = "repaired"
    ODD = "odd"
    MISSING = "not recorded"


@dataclass(frozen=True, slots=True)
class Remark:
    """One finding about a trace.

    `kind`: a short stable identifier. `count`: the number of entries or events concerned. `meaning`: an explanation
    for a first-time reader. `example`: one of them, with text of the file escaped. `action`: a remedy, "" for none.
    `event`: an event that shows the problem, -1 for none.
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
    """All remarks on a trace: by section, most frequent first within each."""

    remarks: list[Remark]

    def remarks_in(self, section: Section) -> list[Remark]:
        return [remark for remark in self.remarks if remark.section is section]

    @property
    def summary(self) -> str:
        """ "2 lost · 3 repaired · 5 odd · 1 not recorded": counts kinds, not events."""
        return " · ".join(f"{len(self.remarks_in(section))} {section.value}" for section in Section)
