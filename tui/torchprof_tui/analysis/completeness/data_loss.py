"""What a file lost of its events: the reason why a missing event is no proof that it did not happen.

Kineto writes CPU events first and GPU events last. A truncated file has therefore lost most of its kernels, and looks
like a run whose GPU was idle or not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.analysis.completeness.slice_metadata import read_slice_metadata
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.problems import Problem
from torchprof_tui.trace.model.trace import Trace

LOSS_KINDS = frozenset(
    (
        problems.LOST_RANK,
        problems.CUT_SHORT,
        problems.CUT_CONNECTION,
        problems.DAMAGED_COMPRESSION,
        problems.ENDLESS_TEXT,
        problems.DAMAGED_TABLE,
        problems.UNREADABLE_ENTRY,
        problems.UNREADABLE_HEADER,
        problems.TEXT_AFTER_END,
        problems.BAD_TIME,
        problems.BAD_DURATION,
        problems.TOO_MANY_CATEGORIES,
    )
)
"""Problems that lost data; all others were repaired or are merely odd."""

_COUNTED_PROBLEMS = (problems.UNREADABLE_ENTRY, problems.BAD_TIME)
_TRUNCATING_PROBLEMS = (
    problems.CUT_SHORT,
    problems.CUT_CONNECTION,
    problems.DAMAGED_COMPRESSION,
    problems.DAMAGED_TABLE,
    problems.ENDLESS_TEXT,
)
"""The number of entries lost after one of these is unknown."""


@dataclass(frozen=True, slots=True)
class DataLoss:
    """`lost_entries`: entries that were found and could not be read, of `total_entries`. `truncation`: why an unknown
    number of further entries is missing, "" where all are accounted for.
    """

    lost_entries: int
    total_entries: int
    truncation: str

    def __bool__(self) -> bool:
        return bool(self.lost_entries or self.truncation)

    @property
    def share(self) -> float:
        """Lost share of the entries, 0..1; 1 for a truncated file, whose total is unknown."""
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
        """Why the absence of an event is undecidable."""
        return f"the file is partial ({self.summary})"


def find_data_loss(trace: Trace) -> DataLoss:
    """Find what the file of one process lost; for a slice, include what its source had lost."""
    counts: dict[str, int] = {}
    for problem in (*trace.problems, *_list_source_losses(trace)):
        counts[problem.kind] = counts.get(problem.kind, 0) + problem.count
    entries = sum(counts.get(kind, 0) for kind in _COUNTED_PROBLEMS)
    truncation = ", ".join(kind for kind in _TRUNCATING_PROBLEMS if kind in counts)
    return DataLoss(entries, trace.counts.events, truncation)


def list_losses(trace: Trace) -> list[Problem]:
    """List the problems that lost data, without repairs and oddities; for a slice, include those of its source."""
    return [problem for problem in (*trace.problems, *_list_source_losses(trace)) if problem.kind in LOSS_KINDS]


def _list_source_losses(trace: Trace) -> tuple[Problem, ...]:
    """List the losses that a slice reports of the trace that it was cut from; () for a whole trace."""
    metadata = read_slice_metadata(trace)
    return metadata.source_losses if metadata is not None else ()
