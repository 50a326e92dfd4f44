"""What a file lost of its events: the reason why, of such a file, nothing can be said to be absent.

Kineto writes what the CPU did first and what the GPU did last, so a file that was cut has lost most of its kernels, and
looks like one of a GPU that was idle, or not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.analysis.slicing.slice_metadata import slice_of
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.model.trace import Trace

_COUNTED = (problems.UNREADABLE_ENTRY, problems.BAD_TIME)
_OPEN_ENDED = (problems.CUT_SHORT, problems.CUT_CONNECTION, problems.DAMAGED_COMPRESSION)
"""Nobody can say how many entries are behind these."""


@dataclass(frozen=True, slots=True)
class Losses:
    """`entries` that were found and could not be read, of `of` in all; `open_ended`: why further ones may be missing,
    of which there is no count, "" where all are accounted for."""

    entries: int
    of: int
    open_ended: str

    def __bool__(self) -> bool:
        return bool(self.entries or self.open_ended)

    @property
    def share(self) -> float:
        """Of the entries 0..1; 1 where nobody knows how many there were."""
        return 1.0 if self.open_ended else self.entries / max(self.of, 1)

    @property
    def counted(self) -> str:
        """ "10,575 entries lost, cut short"."""
        entries = f"{self.entries:,} {'entry' if self.entries == 1 else 'entries'} lost" if self.entries else ""
        return ", ".join(part for part in (entries, self.open_ended) if part)

    @property
    def reason(self) -> str:
        """Why nothing can be told to be absent."""
        return f"the file is partial ({self.counted})"


def losses(trace: Trace) -> Losses:
    """Of one process's file; of a slice also what the file had lost from which it was cut."""
    mark = slice_of(trace)
    counts: dict[str, int] = {}
    for problem in (*trace.problems, *(mark.lost if mark is not None else ())):
        counts[problem.kind] = counts.get(problem.kind, 0) + problem.count
    entries = sum(counts.get(kind, 0) for kind in _COUNTED)
    open_ended = ", ".join(kind for kind in _OPEN_ENDED if kind in counts)
    return Losses(entries, trace.counts.events, open_ended)
