"""What a file lost of its events: the reason why, of such a file, nothing can be said to be absent.

Kineto writes what the CPU did first and what the GPU did last, so a file that was cut has lost most of its kernels, and
looks like one of a GPU that was idle, or not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.analysis.slicing.slice_metadata import read_slice_metadata
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.model.trace import Trace

_COUNTED_PROBLEMS = (problems.UNREADABLE_ENTRY, problems.BAD_TIME)
_TRUNCATING_PROBLEMS = (problems.CUT_SHORT, problems.CUT_CONNECTION, problems.DAMAGED_COMPRESSION)
"""Nobody can say how many entries are behind these."""


@dataclass(frozen=True, slots=True)
class DataLoss:
    """`entries` that were found and could not be read, of `of` in all; `open_ended`: why further ones may be missing,
    of which there is no count, "" where all are accounted for."""

    lost_entries: int
    total_entries: int
    truncation: str

    def __bool__(self) -> bool:
        return bool(self.lost_entries or self.truncation)

    @property
    def share(self) -> float:
        """Of the entries 0..1; 1 where nobody knows how many there were."""
        return 1.0 if self.truncation else self.lost_entries / max(self.total_entries, 1)

    @property
    def summary(self) -> str:
        """ "10,575 entries lost, cut short"."""
        entries = (
            f"{self.lost_entries:,} {'entry' if self.lost_entries == 1 else 'entries'} lost"
            if self.lost_entries
            else ""
        )
        return ", ".join(part for part in (entries, self.truncation) if part)

    @property
    def reason(self) -> str:
        """Why nothing can be told to be absent."""
        return f"the file is partial ({self.summary})"


def find_data_loss(trace: Trace) -> DataLoss:
    """Of one process's file; of a slice also what the file had lost from which it was cut."""
    mark = read_slice_metadata(trace)
    counts: dict[str, int] = {}
    for problem in (*trace.problems, *(mark.source_losses if mark is not None else ())):
        counts[problem.kind] = counts.get(problem.kind, 0) + problem.count
    entries = sum(counts.get(kind, 0) for kind in _COUNTED_PROBLEMS)
    open_ended = ", ".join(kind for kind in _TRUNCATING_PROBLEMS if kind in counts)
    return DataLoss(entries, trace.counts.events, open_ended)
